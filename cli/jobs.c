/* wavetune jobs: list jobs, and following one to its end. */
#include "cli/cli.h"
#include "common/program/progress.h"
#include "common/program/table.h"

#define FOLLOW_WAIT_S 10
#define TRY_AGAIN_US 500000

struct follow {
  struct http_client *client;
  struct progress progress;
  int64_t patience_ms, answered_ms;
};

static bool is_over(const json_t *job) {
  const char *state = cli_member(job, "state");
  return string_equal(state, "done") || string_equal(state, "failed") ||
         string_equal(state, "cancelled");
}

/* GET that outlasts a server which is restarted: it is asked again until it was away for as long as
 * patience lasts. */
static int follow_get(struct follow *follow, const char *path, json_t **ret_answer) {
  for (bool is_away = false;; is_away = true) {
    struct error error;
    if (http_json(follow->client, "GET", path, NULL, 0, ret_answer, &error)) {
      follow->answered_ms = clock_monotonic_ms();
      return EXIT_OK;
    }
    int64_t left_ms = follow->answered_ms + follow->patience_ms - clock_monotonic_ms();
    if (!is_away)
      progress_end(&follow->progress);
    if (error_exit_code(error.kind) != EXIT_UNREACHABLE || left_ms <= 0)
      return cli_failed(&error);
    if (!is_away)
      fprintf(stderr, "wavetune: %s; trying again for %lld s\n", error.message,
              (long long)(left_ms + 999) / 1000);
    usleep(TRY_AGAIN_US);
  }
}

int job_follow(struct http_client *client, const struct options *options, const char *job,
               json_t **ret_job) {
  cleanup_free char *job_path = xasprintf("/v1/jobs/%s", job);
  cleanup_free char *after = xstrdup("0"), *name = NULL;
  struct follow follow = {.client = client,
                          .patience_ms = option_integer(options, "patience") * 1000,
                          .answered_ms = clock_monotonic_ms()};
  for (;;) {
    cleanup_json json_t *summary = NULL;
    int code = follow_get(&follow, job_path, &summary);
    if (code != EXIT_OK)
      return code;
    if (!name) {
      name = xstrdup(cli_member(summary, "name"));
      follow.progress = progress_start(
          stderr, name, (uint64_t)json_integer_value(json_object_get(summary, "configs")));
    }
    progress_show(&follow.progress,
                  (uint64_t)json_integer_value(json_object_get(summary, "measured")),
                  cli_member(summary, "stage"));
    if (is_over(summary)) {
      progress_end(&follow.progress);
      *ret_job = TAKE(summary);
      return EXIT_OK;
    }
    /* Waits for an event; while somebody watches, looks at the count of measurements more often. */
    int wait_s = follow.progress.out ? 1 : FOLLOW_WAIT_S;
    cleanup_free char *path = xasprintf("/v1/jobs/%s/events?after=%s&wait=%d", job, after, wait_s);
    cleanup_json json_t *events = NULL;
    code = follow_get(&follow, path, &events);
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
  static const char *const filter_names[] = {"state", "tag", "kernel"};
  cleanup_json json_t *filters = json_object(), *items = NULL;
  for (size_t i = 0; i < ARRAY_LENGTH(filter_names); i++) {
    const char *value = option_text(options, filter_names[i]);
    if (value)
      json_object_set_new(filters, filter_names[i], json_string(value));
  }
  cleanup_free char *query = cli_query(filters, NULL);
  cleanup_free char *path = xasprintf("/v1/jobs%s", query);
  int code = cli_list_or_json(options, path, &items);
  if (!items)
    return code;
  const struct table_column columns[] = {{"job", true},     {"kernel", false}, {"key", false},
                                         {"tag", false},    {"state", false},  {"measured", true},
                                         {"configs", true}, {"by", false}};
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
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(job, "measured")));
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(job, "configs")));
    table_cell(table, "%s", cli_member(job, "submitted_by"));
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
    {.name = "tag",
     .type = OPTION_TEXT,
     .argument = "TAG",
     .flag_only = true,
     .help = "only those of a tag"},
    {.name = "kernel",
     .type = OPTION_TEXT,
     .argument = "HASH",
     .flag_only = true,
     .help = "only those of a kernel"},
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
