/* wavetune space expand and count: the configs of a space, without a server. */
#include <inttypes.h>

#include "cli/cli.h"
#include "common/kernel/kernel_folder.h"

/* The space of a kernel folder or of a space file, and the facts that its conditions read. */
struct subject {
  struct space *space;          /* borrowed from `folder`, or owned */
  struct kernel_folder *folder; /* or NULL */
  struct key_list keys;         /* at least one, which may be empty */
  struct space_facts facts;     /* without the key */
};

static void subject_release(struct subject *subject) {
  if (subject->folder)
    kernel_folder_free(subject->folder);
  else if (subject->space)
    space_free(subject->space);
  key_list_release(&subject->keys);
}
#define cleanup_subject cleanup_by(subject_release)

static void subject_load(const struct options *options, struct subject *ret) {
  char *const *arguments;
  const char *key_text = option_text(options, "key"), *const *names = NULL;
  size_t n_names = 0;
  struct error error;
  if (options_arguments(options, &arguments) != 1)
    cli_refuse(EXIT_USAGE, "name one kernel folder (DIR[:VERSION]) or one space file (FILE.json)");

  if (string_ends(arguments[0], ".json")) {
    cleanup_json json_t *json = NULL;
    if (!json_parse_file(arguments[0], 4 << 20, &json, &error) ||
        !space_parse(json, &ret->space, &error))
      cli_fail(EXIT_USAGE, &error);
  } else {
    if (!kernel_folder_describe(arguments[0], &ret->folder, &error))
      cli_fail(EXIT_USAGE, &error);
    ret->space = ret->folder->space;
    names = (const char *const *)ret->folder->kernel->key_names;
    n_names = ret->folder->kernel->n_key_names;
  }

  if (!key_list_add(&ret->keys, key_text ? key_text : "", key_text ? names : NULL,
                    key_text ? n_names : 0, &error))
    cli_fail_in(EXIT_USAGE, &error, "--key %s: ", key_text ? key_text : "");
  ret->facts = (struct space_facts){.gpu_name = option_text(options, "gpu-name"),
                                    .arch = option_text(options, "arch")};
}

static int command_space_count(struct options *options) {
  cleanup_subject struct subject subject = {0};
  cleanup_json json_t *answers = json_array();
  bool as_json = option_flag(options, "json");
  struct error error;
  subject_load(options, &subject);
  array_foreach (key, subject.keys.keys, subject.keys.n) {
    uint64_t count;
    subject.facts.key = key;
    if (!space_count(subject.space, &subject.facts, SPACE_STEP_LIMIT_DEFAULT, UINT64_MAX, &count,
                     &error))
      cli_fail(EXIT_USAGE, &error);

    cleanup_free char *key_text = key_format(key);
    json_push(answers, json_pack("{s:I, s:I, s:o*}", "configs", (json_int_t)count, "raw",
                                 (json_int_t)subject.space->raw_count, "key",
                                 subject.keys.n > 1 ? key_to_json(key) : NULL));
    if (!as_json)
      printf("%s%s%" PRIu64 " of %" PRIu64 " configs are valid\n",
             subject.keys.n > 1 ? key_text : "", subject.keys.n > 1 ? ": " : "", count,
             subject.space->raw_count);
  }

  if (as_json)
    cli_print_json(subject.keys.n > 1 ? answers : json_array_get(answers, 0));
  return EXIT_OK;
}

/* Prints at most *left configs of a key, whose text precedes them where there are several. */
static void configs_print(const struct subject *subject, const struct key *key, bool as_json,
                          int64_t *left) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  struct space_facts facts = subject->facts;
  struct error error;
  facts.key = key;
  if (!space_iterator_new(subject->space, &facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, &error))
    cli_fail(EXIT_USAGE, &error);

  bool is_one = subject->keys.n == 1;
  uint64_t ordinal;
  enum space_step step;
  if (!is_one && !as_json) {
    cleanup_free char *text = key_format(key);
    printf("%s\n", text);
  }
  while ((step = space_iterator_next(iterator, &ordinal, &error)) == SPACE_POINT && *left > 0) {
    --*left;
    if (as_json) { /* one object a line: a space may be too large for one document */
      cleanup_json json_t *line = json_pack("{s:I, s:o, s:o*}", "ordinal", (json_int_t)ordinal,
                                            "config", space_config_to_json(subject->space, ordinal),
                                            "key", is_one ? NULL : key_to_json(key));
      json_dumpf(line, stdout, JSON_COMPACT);
      putchar('\n');
    } else {
      cleanup_free char *text = space_config_format(subject->space, ordinal);
      printf("%10" PRIu64 "  %s\n", ordinal, text);
    }
  }

  if (step == SPACE_POINT)
    *left = -1;
  if (step == SPACE_ERROR)
    cli_fail(EXIT_USAGE, &error);
}

static int command_space_expand(struct options *options) {
  cleanup_subject struct subject subject = {0};
  int64_t left = option_integer(options, "limit");
  subject_load(options, &subject);
  for (size_t i = 0; i < subject.keys.n && left >= 0; i++)
    configs_print(&subject, &subject.keys.keys[i], option_flag(options, "json"), &left);
  if (left < 0)
    fprintf(stderr, "wavetune: there are more configs; print them with a higher --limit\n");
  return EXIT_OK;
}

#define OPTIONS_OF_CONDITIONS                                                                      \
  CLI_TEXT("key", "NAME=VALUE,…|JSON", "the key that conditions read, or several"),                \
      CLI_TEXT("gpu-name", "NAME", "the gpu_name that conditions read"),                           \
      CLI_TEXT("arch", "ARCH", "the arch that conditions read")
static const struct option_spec count_options[] = {OPTIONS_OF_CONDITIONS, OPTION_JSON};
static const struct option_spec expand_options[] = {
    OPTIONS_OF_CONDITIONS,
    CLI_INTEGER("limit", "N", "1000000", 1, INT64_MAX, "print at most N configs"),
    {.name = "json", .type = OPTION_FLAG, .help = "print one JSON object per line instead of text"},
};

CLI_COMMAND(space_count, "space count", "DIR[:VERSION]|FILE.json", count_options,
            "count the configs of a space that satisfy its conditions");
CLI_COMMAND(space_expand, "space expand", "DIR[:VERSION]|FILE.json", expand_options,
            "list the configs of a space that satisfy its conditions, with their ordinals");
