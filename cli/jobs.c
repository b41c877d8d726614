/* wavetune jobs: list jobs, and following one to its end. */
#include "cli/cli.h"
#include "common/progress.h"
#include "common/table.h"

#define FOLLOW_WAIT_S 10

static bool is_over(const json_t *job) {
  const char *state = cli_member(job, "state");
  return string_equal(state, "done") || string_equal(state, "failed") || string_equal(state, "cancelled");
}

int job_follow(struct http_client *client, const char *job, json_t **ret_job) {
  cleanup_free char *job_path = xasprintf("/v1/jobs/%s", job);
  cleanup_free char *after = xstrdup("0");
  struct progress progress = {0};
  bool is_started = false;
  for (;;) {
    cleanup_json json_t *summary = NULL;
    int code = cli_call(client, "GET", job_path, NULL, &summary);
    if (code != EXIT_OK)
      return code;
    if (!is_started) {
      progress = progress_start(stderr, cli_member(summary, "name"),
                                (uint64_t)json_integer_value(json_object_get(summary, "configs")));
      is_started = true;
    }
    progress_show(&progress, (uint64_t)json_integer_value(json_object_get(summary, "measured")),
                  cli_member(summary, "stage"));
    if (is_over(summary)) {
      progress_end(&progress);
      *ret_job = TAKE(summary);
      return EXIT_OK;
    }
    /* Waits for an event; while somebody watches, looks at the count of measurements more often. */
    int wait_s = progress.out ? 1 : FOLLOW_WAIT_S;
    cleanup_free char *path = xasprintf("/v1/jobs/%s/events?after=%s&wait=%d", job, after, wait_s);
    cleanup_json json_t *events = NULL;
    code = cli_call(client, "GET", path, NULL, &events);
    if (code != EXIT_OK)
      return code;
    const char *next = json_string_value(json_object_get(events, "next"));
    if (next) {
      free(after);
      after = http_escape(next);
    }
  }
}

static int command_jobs(struct options *options) {
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  const char *state = option_text(options, "state"), *tag = option_text(options, "tag");
  cleanup_json json_t *filters = json_object(), *items = NULL;
  if (state)
    json_object_set_new(filters, "state", json_string(state));
  if (tag)
    json_object_set_new(filters, "tag", json_string(tag));
  cleanup_free char *query = cli_query(filters, NULL);
  cleanup_free char *path = xasprintf("/v1/jobs%s", query);
  int code = cli_list(client, path, &items);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    cli_print_json(items);
    return EXIT_OK;
  }
  const struct table_column columns[] = {{"job", true},    {"kernel", false},  {"key", false},   {"tag", false},
                                         {"state", false}, {"measured", true}, {"configs", true}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *job;
  json_array_foreach (items, index, job) {
    cleanup_free char *key = json_dumps(json_object_get(job, "key"), JSON_COMPACT);
    table_cell(table, "%s", cli_member(job, "job"));
    table_cell(table, "%s", cli_member(job, "name"));
    table_cell(table, "%s", key ? key : "");
    table_cell(table, "%s", cli_member(job, "tag"));
    table_cell(table, "%s", cli_member(job, "state"));
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(job, "measured")));
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(job, "configs")));
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static const struct option_spec jobs_options[] = {
    {.name = "state",
     .type = OPTION_TEXT,
     .argument = "STATE",
     .flag_only = true,
     .help = "only those queued, running, done, failed or cancelled"},
    {.name = "tag", .type = OPTION_TEXT, .argument = "TAG", .flag_only = true, .help = "only those of a tag"},
    SERVER_OPTIONS,
};

const struct command_spec spec_jobs = {
    .name = "jobs",
    .arguments = "",
    .summary = "list jobs, newest first",
    .options = jobs_options,
    .n_options = ARRAY_LENGTH(jobs_options),
    .run = command_jobs,
};
