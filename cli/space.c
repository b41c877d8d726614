/* wavetune space expand|count: what a configuration space holds, without a server. */
#include <inttypes.h>

#include "cli/cli.h"
#include "common/kernel/kernel_folder.h"

/* The space to look at: a kernel folder's, or a file with one space. */
struct subject {
  struct space *space;          /* borrowed from folder, or own */
  struct kernel_folder *folder; /* or NULL */
  struct key key;
};

static void subject_release(struct subject *subject) {
  if (subject->folder)
    kernel_folder_free(subject->folder);
  else if (subject->space)
    space_free(subject->space);
  key_release(&subject->key);
}

static bool subject_load(const struct options *options, struct subject *ret, struct error *error) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != 1)
    return error_set(error, "name one kernel folder (DIR[:VERSION]) or one space file (FILE.json)");
  size_t length = strlen(arguments[0]);
  bool is_file = length > 5 && string_equal(arguments[0] + length - 5, ".json");
  const char *key_text = option_text(options, "key");
  if (is_file) {
    cleanup_json json_t *json = NULL;
    if (!json_parse_file(arguments[0], 4 << 20, &json, error) ||
        !space_parse(json, &ret->space, error))
      return false;
    return !key_text || key_parse_text(key_text, NULL, 0, &ret->key, error) ||
           error_prefix(error, "--key %s: ", key_text);
  }
  if (!kernel_folder_load(arguments[0], &ret->folder, error))
    return false;
  ret->space = ret->folder->space;
  const struct kernel *kernel = ret->folder->kernel;
  return !key_text ||
         key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names,
                        &ret->key, error) ||
         error_prefix(error, "--key %s: ", key_text);
}

static int command_space_count(struct options *options) {
  __attribute__((cleanup(subject_release))) struct subject subject = {0};
  struct error error;
  if (!subject_load(options, &subject, &error))
    return cli_fail(EXIT_USAGE, &error);
  struct space_facts facts = {.key = &subject.key,
                              .gpu_name = option_text(options, "gpu-name"),
                              .arch = option_text(options, "arch")};
  uint64_t count;
  if (!space_count(subject.space, &facts, SPACE_STEP_LIMIT_DEFAULT, UINT64_MAX, &count, &error))
    return cli_fail(EXIT_USAGE, &error);
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:I, s:I}", "configs", (json_int_t)count, "raw",
                                            (json_int_t)subject.space->raw_count);
    cli_print_json(answer);
  } else {
    printf("%" PRIu64 " of %" PRIu64 " configs hold\n", count, subject.space->raw_count);
  }
  return EXIT_OK;
}

static int command_space_expand(struct options *options) {
  __attribute__((cleanup(subject_release))) struct subject subject = {0};
  struct error error;
  if (!subject_load(options, &subject, &error))
    return cli_fail(EXIT_USAGE, &error);
  struct space_facts facts = {.key = &subject.key,
                              .gpu_name = option_text(options, "gpu-name"),
                              .arch = option_text(options, "arch")};
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(subject.space, &facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, &error))
    return cli_fail(EXIT_USAGE, &error);
  int64_t left = option_integer(options, "limit");
  bool as_json = option_flag(options, "json");
  uint64_t ordinal;
  enum space_step step = SPACE_END;
  while ((step = space_iterator_next(iterator, &ordinal, &error)) == SPACE_POINT && left-- > 0) {
    if (as_json) { /* one object a line: a space may be too large for one document */
      cleanup_json json_t *line = json_pack("{s:I, s:o}", "ordinal", (json_int_t)ordinal, "config",
                                            space_config_to_json(subject.space, ordinal));
      json_dumpf(line, stdout, JSON_COMPACT);
      putchar('\n');
    } else {
      cleanup_free char *text = space_config_format(subject.space, ordinal);
      printf("%10" PRIu64 "  %s\n", ordinal, text);
    }
  }
  if (step == SPACE_POINT)
    fprintf(stderr, "wavetune: there are more configs; --limit says how many to print\n");
  return step == SPACE_ERROR ? cli_fail(EXIT_USAGE, &error) : EXIT_OK;
}

/* clang-format off */
#define OPTIONS_OF_A_POINT \
    {.name = "key", .type = OPTION_TEXT, .argument = "NAME=VALUE,…", \
     .help = "the key that conditions read", .flag_only = true}, \
    {.name = "gpu-name", .type = OPTION_TEXT, .argument = "NAME", \
     .help = "gpu_name for conditions", .flag_only = true}, \
    {.name = "arch", .type = OPTION_TEXT, .argument = "ARCH", \
     .help = "arch for conditions", .flag_only = true}
/* clang-format on */
static const struct option_spec count_options[] = {OPTIONS_OF_A_POINT, OPTION_JSON};
static const struct option_spec expand_options[] = {
    OPTIONS_OF_A_POINT,
    {.name = "limit",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "1000000",
     .min = 1,
     .max = INT64_MAX,
     .help = "print at most N configs",
     .flag_only = true},
    {.name = "json", .type = OPTION_FLAG, .help = "print one JSON object a line instead of text"},
};

const struct command_spec spec_space_count = {
    .name = "space count",
    .arguments = "DIR[:VERSION]|FILE.json",
    .summary = "count the configs of a space that hold",
    .options = count_options,
    .n_options = ARRAY_LENGTH(count_options),
    .run = command_space_count,
};
const struct command_spec spec_space_expand = {
    .name = "space expand",
    .arguments = "DIR[:VERSION]|FILE.json",
    .summary = "list the configs of a space that hold, with their ordinals",
    .options = expand_options,
    .n_options = ARRAY_LENGTH(expand_options),
    .run = command_space_expand,
};
