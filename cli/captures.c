/* wavetune captures: functions whose launches programs recorded, from seen to tuned. */
#include "cli/cli.h"
#include "common/space/key.h"

static int command_captures(struct options *options) {
  static const struct cli_column columns[] = {
      {"id", "id", true},       {"function", "name"},       {"owner"},
      {"keys", "keys", true},   {"built", "built", true},   {"refused", "refused", true},
      {"tuned", "tuned", true}, {"served", "served", true}, {"channel"},
      {"seen", "seen_at"},      {"move of", "move"},        {"waits for", "waits_for"}};
  return cli_print_list(options, "/v1/captures", columns);
}

static int command_captures_show(struct options *options) {
  static const struct cli_column columns[] = {{"key"},
                                              {"state"},
                                              {"arch"},
                                              {"image"},
                                              {"times", "seen", true},
                                              {"seen", "seen_at"},
                                              {"kernel"},
                                              {"job", "job", true},
                                              {"proposal", "proposal", true},
                                              {"channel"},
                                              {"move of", "move"},
                                              {"waits for", "waits_for"},
                                              {"triton"}};
  char *const *id =
      cli_arguments(options, 1, "name one function by its id, as `wavetune captures` prints it");
  if (!id)
    return EXIT_USAGE;

  cleanup_free char *path = cli_path("/v1/captures/", *id, "");
  cleanup_json json_t *answer = cli_request_or_json(options, "GET", path, NULL);
  if (!answer)
    return EXIT_OK;

  const json_t *function = json_object_get(answer, "function");
  const json_t *launches = json_object_get(answer, "launches");
  size_t n = ARRAY_LENGTH(columns) - 1;
  json_elements (json_object_get(function, "parts"), index, part)
    printf("# %s:%s\n%s\n", cli_member(part, "module"), cli_member(part, "qualname"),
           cli_member(part, "text"));

  /* The last column tells keys apart that are the same to people. */
  json_elements (launches, index, launch)
    if (!string_equal(cli_member(launch, "triton"),
                      cli_member(json_array_get(launches, 0), "triton")))
      n = ARRAY_LENGTH(columns);
  cli_print_table_of(launches, columns, n);
  return EXIT_OK;
}

/* The jobs of the answer, for jobs_await. */
static json_t *jobs_of(const json_t *items) {
  json_t *jobs = json_array();
  json_elements (items, index, item)
    if (json_object_get(item, "job"))
      json_array_append(jobs, item);
  return jobs;
}

static json_t *tune_body(const struct options *options, const char *which) {
  json_t *body = cli_options_json(options, "run", NULL);
  cleanup_key_list struct key_list keys = {0};
  const char *const *texts;
  size_t n = option_list(options, "key", &texts);
  struct error error;
  if (strspn(which, "0123456789") == strlen(which))
    json_put(body, "functions", json_pack("[s]", which));
  else
    json_put(body, "name", json_string(which));
  for (size_t i = 0; i < n; i++)
    if (!key_list_add(&keys, texts[i], NULL, 0, &error))
      cli_fail_in(EXIT_USAGE, &error, "--key %s: ", texts[i]);
  if (keys.n)
    json_put(body, "keys", key_list_to_json(&keys));
  json_put(body, "priority", json_integer(option_integer(options, "priority")));
  if (option_integer(options, "budget") > 0)
    json_put(body, "budget",
             json_pack("{s:I}", "device_seconds", (json_int_t)option_integer(options, "budget")));
  return body;
}

static int command_captures_tune(struct options *options) {
  static const struct cli_column columns[] = {
      {"function", "name"}, {"key"}, {"state"}, {"job", "job", true}, {"new", "created"}, {"why"}};
  char *const *which = cli_arguments(
      options, 1,
      "name captured functions by an id or a pattern, as `wavetune captures` prints them");
  cleanup_json json_t *body = tune_body(options, *which);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *answer = cli_call(client, "POST", "/v1/captures/tune", body);
  const json_t *items = json_object_get(answer, "items");
  bool as_json = option_flag(options, "json"), is_waiting = option_flag(options, "wait");
  cleanup_json json_t *jobs = jobs_of(items);
  if (as_json && !is_waiting)
    cli_print_json(answer);
  else if (!as_json)
    cli_print_table(items, columns);
  long long left = cli_integer(answer, "left");
  if (left)
    fprintf(stderr, "%lld more keys match; run it again when these have jobs, or name keys\n",
            left);
  if (!json_array_size(jobs))
    cli_refuse(
        EXIT_FAILED,
        "no key has a job: `wavetune captures` shows what each waits for, and whose move it is");
  fflush(stdout);
  return is_waiting ? jobs_await(client, options, jobs, "job") : EXIT_OK;
}

static int command_captures_remove(struct options *options) {
  return cli_delete(options, "/v1/captures/", "removed",
                    "name one function by its id, as `wavetune captures` prints it");
}

static const struct option_spec tune_options[] = {
    CLI_LIST("key", "NAME=VALUE,…|JSON",
             "only keys that have these members, ranges and lists as with submit; default: all"),
    CLI_TEXT("run", "RUN",
             "name of a run; a new name measures again what has a job; default: it keeps that job"),
    CLI_INTEGER("priority", "N", "0", -1000, 1000, "jobs with a higher priority are leased first"),
    CLI_INTEGER("budget", "SECONDS", "0", 0, 1000000000,
                "device seconds of each new job, as with submit; 0: no limit"),
    CLI_FLAG("wait", "follow the jobs to their end and print the winners"),
    OPTION_PATIENCE,
    OPTION_TIMEOUT,
    SERVER_OPTIONS,
};

CLI_COMMAND(captures_tune, "captures tune", "ID|PATTERN", tune_options,
            "make jobs of captured keys that have a build",
            .description =
                "Role submitter. A pattern, with * and ?, is of whole names, MODULE:QUALNAME. "
                "Keys that wait for a builder are listed, and get no job. Exits with 1 when no "
                "key has one.");
CLI_COMMAND(captures, "captures", "", server_options,
            "list functions whose launches programs recorded, what each waits for, and whose move "
            "that is",
            .description =
                "A program records launches with WAVETUNE_CAPTURE=source. A builder makes "
                "kernels and builds of them; jobs tune their keys.");
CLI_COMMAND(captures_show, "captures show", "ID", server_options,
            "print a captured function's texts and its keys");
CLI_COMMAND(captures_remove, "captures remove", "ID", server_options,
            "remove a captured function with its keys");
