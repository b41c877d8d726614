/* wavetune report: what became of jobs, as a table for a terminal or for a comment in Markdown; and
 * files that name jobs.
 *
 * Memory: answers are the caller's. Threads: one. */
#include "cli/cli.h"
#include "common/base/file.h"
#include "common/program/output.h"

json_t *jobs_file_read(const char *path) {
  cleanup_json json_t *json = NULL;
  cleanup_free char *text = NULL;
  size_t size, line_number = 0;
  json_t *ids = json_array();
  struct error error;
  if (!file_read(path, 16 << 20, &text, &size, &error))
    cli_fail(EXIT_USAGE, &error);

  if (text[strspn(text, " \t\r\n")] == '[') {
    if (!json_parse(text, size, &json, &error))
      cli_refuse(EXIT_USAGE, "%s: %s", path, error.message);
    json_elements (json, index, item) {
      json_t *id = json_is_object(item) ? json_object_get(item, "job") : item;
      if (!json_is_string(id) && !json_is_integer(id))
        cli_refuse(EXIT_USAGE, "%s: element %zu is neither an id nor an object with \"job\"", path,
                   index);
      json_array_append(ids, id);
    }
  }

  char *rest = json ? NULL : text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    line_number++;
    line += strspn(line, " \t\r");
    line += string_starts(line, "job ") ? 4 : 0;
    size_t digits = strspn(line, "0123456789");
    if (!*line)
      continue;
    if (!digits || !strchr(" \t\r", line[digits]))
      cli_refuse(EXIT_USAGE, "%s:%zu: there is no id of a job", path, line_number);
    json_push(ids, json_stringn(line, digits));
  }

  if (json_array_size(ids) == 0)
    cli_refuse(EXIT_USAGE, "%s names no job", path);
  return ids;
}

static bool is_open(const json_t *job) {
  const char *state = cli_member(job, "state");
  return string_equal(state, "queued") || string_equal(state, "running");
}

/* A row of the report. */
static json_t *row_of(const json_t *job) {
  const json_t *winner = json_object_get(job, "winner"),
               *verdict = json_object_get(winner, "verdict");
  bool has_winner = json_is_object(winner);
  const char *reason = cli_member(job, "reason");
  if (!has_winner && !is_open(job) && !*reason)
    reason = "no winner";

  json_t *row = json_pack("{s:O*, s:O*, s:O*, s:O*}", "job", json_object_get(job, "job"), "kernel",
                          json_object_get(job, "name"), "key", json_object_get(job, "key"), "state",
                          json_object_get(job, "state"));
  ALWAYS(row != NULL);
  json_put(row, "winner_us", json_incref(json_object_get(verdict, "winner_us")) ?: json_null());
  json_put(row, "speedup", json_incref(json_object_get(verdict, "speedup")) ?: json_null());
  json_put(row, "config",
           json_incref(has_winner ? json_object_get(winner, "config_values") : NULL)
               ?: json_null());
  json_put(row, "reason", *reason ? json_string(reason) : json_null());
  return row;
}

static char *format_number(const json_t *value, int decimals) {
  return json_is_number(value) ? xasprintf("%.*f", decimals, json_number_value(value))
                               : xstrdup("");
}
static char *format_us(const json_t *value) { return format_number(value, 2); }
static char *format_speedup(const json_t *value) { return format_number(value, 3); }

/* The ids that the arguments and --jobs name. */
static json_t *ids_read(const struct options *options) {
  char *const *arguments;
  size_t n = options_arguments(options, &arguments);
  const char *file = option_text(options, "jobs");
  json_t *ids = file ? jobs_file_read(file) : json_array();
  for (size_t i = 0; i < n; i++) {
    if (arguments[i][strspn(arguments[i], "0123456789")] || !*arguments[i])
      cli_refuse(EXIT_USAGE, "\"%.40s\" is no id of a job", arguments[i]);
    json_push(ids, json_string(arguments[i]));
  }

  if (json_array_size(ids) == 0)
    cli_refuse(EXIT_USAGE, "name jobs by their ids, or a file of them with --jobs");
  return ids;
}

static int command_report(struct options *options) {
  static const struct cli_column columns[] = {{"job", "job", true},
                                              {"kernel"},
                                              {"key"},
                                              {"state"},
                                              {"us", "winner_us", true, format_us},
                                              {"speedup", "speedup", true, format_speedup},
                                              {"config"},
                                              {"reason"}};
  enum output output = output_of(options);
  cleanup_json json_t *ids = ids_read(options), *rows = json_array();
  size_t n_open = 0, n_failed = 0;
  cleanup_http_client struct http_client *client = cli_connect(options);

  json_elements (ids, index, id) {
    cleanup_free char *text = cli_format(id), *path = cli_path("/v1/jobs/", text, "");
    cleanup_json json_t *job = cli_get(client, path);
    n_open += is_open(job);
    n_failed += !is_open(job) && !json_is_object(json_object_get(job, "winner"));
    json_push(rows, row_of(job));
  }

  output_rows(output, rows, columns, stdout);
  return n_failed ? EXIT_FAILED : n_open ? EXIT_TIMEOUT : EXIT_OK;
}

static const struct option_spec report_options[] = {
    CLI_TEXT("jobs", "FILE", "the jobs in a file: what `submit` printed, or one id a line"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};

CLI_COMMAND(report, "report", "[JOB]…", report_options,
            "print what became of jobs, with their winners",
            .description = "`us` is the time of the winner in microseconds, `speedup` how many "
                           "times faster it is than the job's baseline. Exits with 1 when a job "
                           "ended without a winner, else with 9 when one has not ended.");
