/* wavetune jobs, cancel and retry: listing and watching jobs, and ending or repeating those that
 * ids or filters select.
 *
 * Memory: answers are the caller's. Threads: one. */
#include "cli/cli.h"
#include "common/program/output.h"

#define WATCH_EVERY_US 2000000
#define SHOWN_MAX 20 /* retried jobs that are printed one by one */

/* The options that select jobs, and the members of a request that they are. */
#define OPTIONS_OF_JOBS                                                                            \
  CLI_TEXT("tag", "TAG", "only jobs with this tag"),                                               \
      CLI_TEXT("run", "RUN", "only jobs of this run"),                                             \
      CLI_TEXT("kernel", "NAME|HASH", "only jobs of this kernel"),                                 \
      CLI_TEXT("user", "NAME", "only jobs that the token of this name submitted")
static json_t *filters_of(const struct options *options) {
  return cli_options_json(options, "tag", "run", "kernel", "user", NULL);
}

static const struct cli_column columns[] = {
    {"job", "job", true},
    {"kernel", "name"},
    {"key"},
    {"tag"},
    {"run"},
    {"state"},
    {"measured", "measured", true},
    {"configs", "configs", true},
    {"by", "submitted_by"},
    {"made", "created_at", .is_wide = true},
    {"finished", "finished_at", .is_wide = true},
    {"device s", "spent_device_seconds", true, .is_wide = true},
    {"reason", .is_wide = true}};

/* Columns that --sort knows: their names are those of the table, and some that it does not show. */
static const char *const sort_columns[][2] = {{"job", "job"},
                                              {"kernel", "name"},
                                              {"key", "key"},
                                              {"tag", "tag"},
                                              {"run", "run"},
                                              {"state", "state"},
                                              {"measured", "measured"},
                                              {"configs", "configs"},
                                              {"by", "submitted_by"},
                                              {"made", "created_at"},
                                              {"finished", "finished_at"},
                                              {"spent", "spent_device_seconds"}};

struct sort {
  const char *member; /* NULL: as the server lists them */
  bool is_descending;
};

static struct sort sort_of_options(const struct options *options) {
  const char *text = option_text(options, "sort");
  if (!text)
    return (struct sort){0};

  bool is_descending = text[0] == '-';
  text += is_descending;
  for (size_t i = 0; i < ARRAY_LENGTH(sort_columns); i++)
    if (string_equal(sort_columns[i][0], text))
      return (struct sort){sort_columns[i][1], is_descending};

  cleanup_free char *known = xstrdup(sort_columns[0][0]);
  for (size_t i = 1; i < ARRAY_LENGTH(sort_columns); i++)
    text_append(&known, ", %s", sort_columns[i][0]);
  cli_refuse(EXIT_USAGE, "--sort %.40s: the columns are %s", text, known);
}

struct sorted {
  const struct sort *sort;
  json_t *job;
  size_t index; /* equal ones keep their order */
};

/* Numbers, and ids, which are texts of digits, by their values; other texts by their bytes. */
static int values_compare(const json_t *left, const json_t *right, bool is_id) {
  double a = is_id ? strtod(json_string_value(left), NULL) : json_number_value(left),
         b = is_id ? strtod(json_string_value(right), NULL) : json_number_value(right);
  if (is_id || (json_is_number(left) && json_is_number(right)))
    return a < b ? -1 : a > b;
  cleanup_free char *a_text = cli_format(left), *b_text = cli_format(right);
  return strcmp(a_text, b_text);
}

static int sorted_compare(const void *a, const void *b) {
  const struct sorted *left = a, *right = b;
  const char *member = left->sort->member;
  int order = values_compare(json_object_get(left->job, member),
                             json_object_get(right->job, member), string_equal(member, "job"));
  if (order)
    return left->sort->is_descending ? -order : order;
  return left->index < right->index ? -1 : 1;
}

/* Sorts the jobs and keeps the first `most`. */
static void jobs_sort(json_t *jobs, const struct sort *sort, size_t most) {
  size_t n = json_array_size(jobs);
  cleanup_free struct sorted *all = xcalloc(n + 1, sizeof *all);
  for (size_t i = 0; i < n; i++)
    all[i] = (struct sorted){sort, json_incref(json_array_get(jobs, i)), i};
  qsort(all, n, sizeof *all, sorted_compare);
  json_array_clear(jobs);
  for (size_t i = 0; i < n; i++)
    if (i < most)
      json_push(jobs, all[i].job);
    else
      json_decref(all[i].job);
}

/* The selected jobs, sorted and limited. */
static json_t *jobs_get(struct http_client *client, const struct options *options,
                        const struct sort *sort) {
  size_t limit = (size_t)option_integer(options, "limit"), most = limit ? limit : SIZE_MAX;
  cleanup_json json_t *members = filters_of(options), *state = option_text_json(options, "state");
  if (state)
    json_object_set(members, "state", state);
  cleanup_free char *query = cli_query(members, NULL), *path = xasprintf("/v1/jobs%s", query);
  json_t *jobs = cli_list_first(client, path, sort->member ? SIZE_MAX : most);
  if (sort->member)
    jobs_sort(jobs, sort, most);
  return jobs;
}

/* Prints the jobs whose state or measurements changed since they were printed last, a line each. */
static void changes_print(const json_t *jobs, json_t *printed, bool as_json) {
  json_elements (jobs, index, job) {
    const char *id = cli_member(job, "job"), *state = cli_member(job, "state");
    if (string_equal(cli_member(printed, id), state))
      continue;
    json_put(printed, id, json_string(state));
    if (as_json) {
      json_dumpf(job, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
      putchar('\n');
      continue;
    }
    cleanup_free char *key = cli_compact(job, "key");
    printf("job %s  %s  %s  %lld of %lld  %s\n", id, cli_member(job, "name"), key,
           cli_integer(job, "measured"), cli_integer(job, "configs"), state);
  }
}

static size_t count_open(const json_t *jobs) {
  size_t n = 0;
  json_elements (jobs, index, job)
    n += string_equal(cli_member(job, "state"), "queued") ||
         string_equal(cli_member(job, "state"), "running");
  return n;
}

/* Until no listed job is queued or running: on a terminal draws the table again and again, else
 * prints what changes. */
static int jobs_watch(struct http_client *client, const struct options *options,
                      const struct sort *sort, enum output output) {
  bool as_json = output == OUTPUT_JSON, is_drawn = output <= OUTPUT_WIDE && isatty(fileno(stdout));
  cleanup_json json_t *printed = json_object();
  for (;;) {
    cleanup_json json_t *jobs = jobs_get(client, options, sort);
    size_t n_open = count_open(jobs);
    if (is_drawn) {
      fputs("\x1b[H\x1b[2J", stdout);
      output_rows(output, jobs, columns, stdout);
      printf("\n%zu of %zu jobs have ended\n", json_array_size(jobs) - n_open,
             json_array_size(jobs));
    } else {
      changes_print(jobs, printed, as_json);
    }
    if (fflush(stdout) != 0 || n_open == 0)
      return EXIT_OK;
    usleep(WATCH_EVERY_US);
  }
}

static int command_jobs(struct options *options) {
  struct sort sort = sort_of_options(options);
  enum output output = output_of(options);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (option_flag(options, "watch"))
    return jobs_watch(client, options, &sort, output);

  cleanup_json json_t *jobs = jobs_get(client, options, &sort);
  output_rows(output, jobs, columns, stdout);
  return EXIT_OK;
}

/* The body that selects jobs, by the arguments or by filters. */
static json_t *selection_body(const struct options *options) {
  char *const *ids;
  size_t n = options_arguments(options, &ids);
  json_t *body = filters_of(options);
  size_t n_filters = json_object_size(body);
  if (!n == !n_filters)
    cli_refuse(EXIT_USAGE, "name jobs by their ids, as `wavetune jobs` prints them, or "
                           "select them with --tag, --run, --kernel and --user");

  json_t *jobs = n ? json_array() : NULL;
  for (size_t i = 0; i < n; i++)
    if (ids[i][0] && ids[i][strspn(ids[i], "0123456789")] == '\0')
      json_push(jobs, json_string(ids[i]));
    else
      cli_refuse(EXIT_USAGE, "\"%.40s\" is not the id of a job", ids[i]);
  if (jobs)
    json_put(body, "jobs", jobs);
  if (option_flag(options, "any"))
    json_put(body, "any", json_true());
  return body;
}

/* Asks before more than one job is changed. Without a terminal there is no answer: then --yes is
 * needed. */
static void confirm(const struct options *options, const char *verb, json_int_t n) {
  char answer[16];
  if (n <= 1 || option_flag(options, "yes"))
    return;
  if (!isatty(fileno(stdin)))
    cli_refuse(EXIT_USAGE, "this would %s %lld jobs; add --yes to do it", verb, (long long)n);
  fprintf(stderr, "%s %lld jobs? [y/N] ", verb, (long long)n);
  if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
    cli_refuse(EXIT_FAILED, "nothing was done");
}

/* Reads the selection, and asks before more than one job is changed. The body gets the newest of
 * the selected jobs as the last one, so that no job that is submitted meanwhile is changed.
 * `counted`: the member of the route's answer that has their number. */
static json_t *selection_begin(struct options *options, const char *path, const char *counted,
                               const char *verb, struct http_client **ret_client) {
  json_t *body = selection_body(options);
  *ret_client = cli_connect(options);
  json_put(body, "dry_run", json_true());
  cleanup_json json_t *answer = cli_call(*ret_client, "POST", path, body);

  const char *newest = cli_member(answer, "newest");
  json_put(body, "dry_run", json_false());
  if (*newest)
    json_put(body, "up_to", json_string(newest));
  confirm(options, verb, cli_integer(answer, counted));
  return body;
}

static int command_cancel(struct options *options) {
  cleanup_http_client struct http_client *client = NULL;
  cleanup_json json_t *body =
      selection_begin(options, "/v1/jobs/cancel", "cancelled", "cancel", &client);
  json_int_t cancelled = 0, ended = 0;

  for (bool is_more = true; is_more;) {
    cleanup_json json_t *answer = cli_call(client, "POST", "/v1/jobs/cancel", body);
    cancelled += cli_integer(answer, "cancelled");
    ended = cli_integer(answer, "ended") - (cancelled - cli_integer(answer, "cancelled"));
    is_more = json_flag(answer, "more");
  }

  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:I, s:I}", "cancelled", cancelled, "ended", ended);
    cli_print_json(answer);
  } else {
    printf("%lld cancelled, %lld had ended already\n", (long long)cancelled, (long long)ended);
  }
  return EXIT_OK;
}

/* Retries all selected jobs, by the server's batches. */
static void retry_all(struct http_client *client, json_t *body, json_t *retried, json_t *refused) {
  for (bool is_more = true; is_more;) {
    cleanup_json json_t *answer = cli_call(client, "POST", "/v1/jobs/retry", body);
    json_array_extend(retried, json_object_get(answer, "retried"));
    json_array_extend(refused, json_object_get(answer, "refused"));
    json_t *next = json_object_get(answer, "next");
    is_more = json_is_string(next);
    if (is_more)
      json_object_set(body, "after", next);
  }
}

static int command_retry(struct options *options) {
  cleanup_http_client struct http_client *client = NULL;
  cleanup_json json_t *retried = json_array(), *refused = json_array(),
                      *body =
                          selection_begin(options, "/v1/jobs/retry", "retriable", "retry", &client);
  bool as_json = option_flag(options, "json"), is_waiting = option_flag(options, "wait");
  retry_all(client, body, retried, refused);

  if (as_json && !is_waiting) {
    cleanup_json json_t *answer = json_pack("{s:O, s:O}", "retried", retried, "refused", refused);
    cli_print_json(answer);
  } else if (!as_json) {
    json_elements (retried, index, one)
      if (index < SHOWN_MAX)
        printf("job %s  again as job %s  %s\n", cli_member(one, "job"), cli_member(one, "as"),
               json_flag(one, "created") ? "new" : "known");
    printf("%zu tried again, %zu refused\n", json_array_size(retried), json_array_size(refused));
  }
  json_elements (refused, index, one)
    fprintf(stderr, "wavetune: job %s is not tried again: %s\n", cli_member(one, "job"),
            cli_member(one, "reason"));
  fflush(stdout);

  int code = is_waiting ? jobs_await(client, options, retried, "as") : EXIT_OK;
  return code != EXIT_OK ? code : json_array_size(refused) ? EXIT_FAILED : EXIT_OK;
}

#define OPTION_ANY CLI_FLAG("any", "also jobs that others submitted; needs the role operator")
#define OPTION_YES CLI_FLAG("yes", "do not ask before more than one job is changed")
static const struct option_spec jobs_options[] = {
    CLI_TEXT("state", "STATE", "only jobs that are queued, running, done, failed or cancelled"),
    OPTIONS_OF_JOBS,
    CLI_INTEGER("limit", "N", "0", 0, 1000000, "at most N jobs; 0: all"),
    CLI_TEXT("sort", "COLUMN",
             "sort all selected jobs by job, kernel, key, tag, run, state, measured, configs, by, "
             "made, finished or spent (device time); -COLUMN: the highest first"),
    CLI_FLAG("watch",
             "repeat until no listed job is queued or running; where stdout is no terminal, print "
             "a line for each change of a job's state"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};
static const struct option_spec cancel_options[] = {
    OPTIONS_OF_JOBS,
    OPTION_ANY,
    OPTION_YES,
    SERVER_OPTIONS,
};
static const struct option_spec retry_options[] = {
    OPTIONS_OF_JOBS, OPTION_ANY,
    OPTION_YES,      CLI_FLAG("wait", "follow the new jobs to their end"),
    OPTION_TIMEOUT,  OPTION_PATIENCE,
    SERVER_OPTIONS,
};

CLI_COMMAND(jobs, "jobs", "", jobs_options, "list jobs, newest first");
CLI_COMMAND(cancel, "cancel", "[JOB]…", cancel_options, "cancel jobs",
            .description =
                "Names jobs, or selects them by all of the given filters; jobs that have "
                "ended stay as they are. What was measured stays, too. Asks before it "
                "cancels more than one. Refused, as retry is, when others submitted one of them, "
                "without --any.");
CLI_COMMAND(retry, "retry", "[JOB]…", retry_options, "try failed and cancelled jobs again",
            .description =
                "For each a new job is queued with its kernel, key, space, environment, tag, run "
                "and regime, so that `submit` finds the new one from then on. The old one keeps "
                "its id, its reason and its measurements, and gets the run RUN/retried-ID. "
                "Retrying it again names the same new job. Of jobs that are selected by filters, "
                "those that failed or were cancelled and were not retried yet are tried. Exits "
                "with 1 when one cannot be submitted any more, and says why.");
