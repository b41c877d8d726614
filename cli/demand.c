/* wavetune demand: the keys that deployments lack, as they report them to a server, or as logs of
 * vLLM, SGLang and AITER state them.
 *
 * Memory: answers are the caller's. Threads: one. */
#include <errno.h>
#include <fcntl.h>

#include "cli/cli.h"
#include "cli/demand_log.h"
#include "common/formats/table_exports.h"

#define MANIFESTS_MAX 1000 /* kernels whose exports are read */
#define TIMEOUT_MS 10000
#define ROWS_USUAL "1..4096*2" /* readers take the nearest row of a table */

static char *format_seconds(const json_t *ms) {
  return xasprintf("%.1f", json_number_value(ms) / 1000);
}

static int reported_print(struct options *options) {
  static const struct cli_column columns[] = {{"kernel", "name"},
                                              {"key"},
                                              {"tag"},
                                              {"misses", "misses", true},
                                              {"hits", "hits", true},
                                              {"saved s", "saved_ms", true, format_seconds},
                                              {"environment"},
                                              {"refused", "refused", false, cli_format_or_dash}};
  static const struct cli_column missed[] = {{"function", "name"},
                                             {"key"},
                                             {"tag"},
                                             {"misses", "misses", true},
                                             {"saved s", "saved_ms", true, format_seconds},
                                             {"captured", "capture", true, cli_format_or_dash},
                                             {"environment"},
                                             {"why"}};
  json_int_t top = option_integer(options, "queue");
  cleanup_json json_t *body = top ? json_pack("{s:I}", "top", top) : NULL,
                      *answer = top ? cli_request(options, "POST", "/v1/demand/queue", body)
                                    : cli_request(options, "GET", "/v1/demand?limit=1000", NULL);

  const json_t *items = json_object_get(answer, "items");
  if (option_flag(options, "json"))
    cli_print_json(items);
  else if (!top) {
    const json_t *misses = json_object_get(answer, "missed");
    cli_print_table(items, columns);
    if (json_array_size(misses)) {
      printf("\nprograms that start tuned had no config for:\n");
      cli_print_table(misses, missed);
    }
  } else
    json_elements (items, index, item) {
      const char *job = cli_member(item, "job"), *refused = cli_member(item, "refused");
      cleanup_free char *key = cli_compact(item, "key");
      printf("%s%s  %s %s%s%s\n", *job ? "job " : "refused", job, cli_member(item, "name"), key,
             *refused ? ": " : "", refused);
    }

  if (!top && string_equal(cli_member(answer, "policy"), "off"))
    fprintf(stderr, "wavetune: the server discards the demand that deployments report; start it "
                    "with --demand suggest to keep it\n");
  return EXIT_OK;
}

/* Logs */

/* Reads what the name of a missed table states of the kernel's key into `key`; *ret_row is the
 * member that tells the rows of a table apart, if the key has one. False: the kernel has no such
 * table. An expression of the exports cannot be inverted and states nothing. */
static bool key_of_miss(const struct kernel *kernel, const json_t *miss, json_t *key,
                        const char **ret_row) {
  cleanup_table_mapping struct table_mapping mapping = {0};
  const struct table_kind *kind;
  struct error ignored;
  if (!table_family_find(cli_member(miss, "table"), &kind) || !table_is_exported(kind, kernel) ||
      !table_mapping_read(kind, kernel, &mapping, &ignored))
    return false;

  for (size_t i = 0; i < kind->n_members; i++) {
    const struct table_member *member = &kind->members[i];
    const struct table_source *source = &mapping.sources[i];
    json_t *found = json_object_get(json_object_get(miss, "members"), member->name);
    if (member->use == TABLE_ROW) {
      if (i + 1 == kind->n_members && member == table_first_row(kind))
        *ret_row = source->member;
      continue;
    }

    cleanup_json json_t *value = found                         ? json_incref(found)
                                 : member->value == TABLE_FLAG ? json_false()
                                                               : json_null();
    const json_t *stated = source->member ? json_object_get(key, source->member) : source->constant;
    if (stated && !json_equal(stated, value))
      return false;
    if (source->member)
      json_object_set(key, source->member, value);
  }
  return true;
}

/* The command that queues the key; `row` may be NULL. The caller's. */
static char *submit_command(const json_t *miss, const json_t *key, const char *row) {
  cleanup_key struct key values = {0};
  cleanup_json json_t *environment = json_object();
  struct error error;
  if (!key_parse(key, NULL, 0, &values, &error))
    cli_fail(EXIT_FAILED, &error);
  cleanup_free char *known = key_format(&values), *gpu = xstrdup(cli_member(miss, "device"));
  cleanup_free char *text =
      row ? xasprintf("%s%s%s=" ROWS_USUAL, known, *known ? ", " : "", row) : xstrdup(known);
  json_put(environment, "gpu", json_string(text_replace(gpu, "_", ' ')));
  cleanup_free char *json = json_dumps(environment, 0), *of_key = shell_quote(text),
                    *of_environment = shell_quote(json);
  return xasprintf("wavetune submit DIR --key %s --environment %s", of_key, of_environment);
}

/* Adds to each miss whose table the kernel has, in "kernels", what is known of its key. */
static void misses_map(const json_t *misses, const struct kernel *kernel) {
  json_elements (misses, i, miss) {
    cleanup_json json_t *found = json_object(), *key = json_object(), *lacks = json_array();
    const char *row = NULL;
    if (!key_of_miss(kernel, miss, found, &row))
      continue;
    for (size_t j = 0; j < kernel->n_key_names; j++) { /* in the order of the key */
      const char *name = kernel->key_names[j];
      json_t *value = json_object_get(found, name);
      if (value)
        json_object_set(key, name, value);
      else if (!string_equal(name, row))
        json_push(lacks, json_string(name));
    }

    json_t *kernels = json_object_get(miss, "kernels");
    cleanup_free char *command = json_array_size(lacks) ? NULL : submit_command(miss, key, row);
    if (!kernels)
      json_put(miss, "kernels", kernels = json_array());
    json_push(kernels, json_pack("{s:s, s:o, s:O, s:s?, s:O, s:s?}", "name", kernel->name, "kernel",
                                 json_digest_text(&kernel->hash), "key", key, "row", row, "lacks",
                                 lacks, "command", command));
  }
}

/* Maps the misses to the newest registered kernel of each name. Without a server that answers they
 * are listed without. */
static void misses_look_up(const struct options *options, const json_t *misses) {
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *first = NULL, *names = json_object();
  struct error error;
  if (!http_json(client, "GET", "/v1/kernels?limit=1", NULL, TIMEOUT_MS, &first, &error)) {
    fprintf(stderr, "wavetune: registered kernels were not looked up: %s\n", error.message);
    return;
  }

  cleanup_json json_t *kernels = cli_list(client, "/v1/kernels");
  for (size_t i = json_array_size(kernels); i-- > 0;) {
    const json_t *kernel = json_array_get(kernels, i);
    const char *hash = cli_member(kernel, "kernel");
    if (string_equal(cli_member(kernel, "language"), "external") ||
        !set_add(names, cli_member(kernel, "name")))
      continue;
    if (json_object_size(names) > MANIFESTS_MAX) {
      fprintf(stderr, "wavetune: only the newest %d kernels were looked up\n", MANIFESTS_MAX);
      return;
    }
    cleanup_free char *path = cli_path("/v1/kernels/", hash, "");
    cleanup_json json_t *answer = cli_get(client, path);
    cleanup_kernel struct kernel *parsed = NULL;
    bool is_read = kernel_parse(json_object_get(answer, "manifest"), &parsed, &error);
    if (is_read) /* else a newer server has it */
      misses_map(misses, parsed);
  }
}

static char *format_names(const json_t *kernels) {
  cleanup_json json_t *names = json_array();
  json_elements (kernels, i, kernel)
    json_push(names, json_string(cli_member(kernel, "name")));
  return json_array_size(names) ? json_texts_join(names, ", ") : xstrdup("-");
}

static void misses_print(const json_t *misses) {
  static const struct cli_column columns[] = {{"table"},
                                              {"members"},
                                              {"device", "device", false, cli_format_or_dash},
                                              {"misses", "misses", true},
                                              {"kernel", "kernels", false, format_names}};
  cli_print_table(misses, columns);
  json_elements (misses, i, miss)
    json_elements (json_object_get(miss, "kernels"), j, kernel) {
      cleanup_free char *lacks = json_texts_join(json_object_get(kernel, "lacks"), ", ");
      cleanup_free char *key = cli_compact(kernel, "key");
      const char *name = cli_member(kernel, "name");
      if (*lacks)
        printf("\n%s: the name of the table gives %s of the key and lacks %s%s\n", name, key, lacks,
               string_starts(name, "fused_moe/")
                   ? "; `wavetune shapes CONFIG.json --tp N --tokens '" ROWS_USUAL
                     "' --for fused_moe` states them"
                   : "");
      else
        printf("\n# DIR: the folder of %s\n%s\n", name, cli_member(kernel, "command"));
    }
}

static int log_read(struct options *options, const char *name) {
  bool is_input = string_equal(name, "-");
  cleanup_fd int opened = is_input ? -1 : open(name, O_RDONLY | O_CLOEXEC);
  cleanup_demand_log struct demand_log log = demand_log_new();
  struct error error;
  if (option_integer(options, "queue"))
    cli_refuse(EXIT_USAGE, "--queue is of the demand that the server has: leave out --from-log");
  if (!is_input && opened < 0)
    cli_refuse(EXIT_USAGE, "cannot read %s: %s", name, strerror(errno));
  if (!demand_log_read(&log, is_input ? STDIN_FILENO : opened, is_input ? "standard input" : name,
                       &error))
    cli_fail(EXIT_USAGE, &error);

  if (json_array_size(log.misses))
    misses_look_up(options, log.misses);
  if (option_flag(options, "json"))
    cli_print_json(log.misses);
  else if (json_array_size(log.misses))
    misses_print(log.misses);
  else
    fprintf(stderr, "wavetune: %s states no missing table\n", name);

  if (log.n_unread)
    fprintf(stderr, "wavetune: lines with missing files whose names are not understood: %zu\n",
            log.n_unread);
  if (log.n_left)
    fprintf(stderr, "wavetune: lines left out, with other misses than the first %d: %zu\n",
            LOG_MISSES_MAX, log.n_left);
  return EXIT_OK;
}

static int command_demand(struct options *options) {
  const char *log = option_text(options, "from-log");
  return log ? log_read(options, log) : reported_print(options);
}

static const struct option_spec demand_options[] = {
    CLI_INTEGER("queue", "N", "0", 0, 1000, "queue jobs for the first N keys"),
    CLI_TEXT("from-log", "FILE|-",
             "list the tables that a log of vLLM, SGLang or AITER states as missing, in place of "
             "what is reported"),
    SERVER_OPTIONS,
};

CLI_COMMAND(
    demand, "demand", "", demand_options,
    "list untuned keys that deployments requested, or queue jobs for them",
    .description =
        "Then the keys for which programs that start tuned had no config, the most missed first, "
        "with why, and the id of the captured function (see captures tune). The former are sorted "
        "by the GPU time that tuning would have saved: the time that deployments spent on "
        "tuning the key, plus their calls times the kernel's time times the share that its winners "
        "save on average. A job has the space of the kernel's newest done job.\n"
        "With --from-log, each missing table with its device and how many lines state it, and for "
        "registered kernels whose exports have the table the command that queues its keys, or what "
        "of the key the table's name does not state. Without a server the tables alone are "
        "listed.");
