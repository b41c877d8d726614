/* wavetune measurements and events: what was measured for a job, and what happened to it.
 *
 * Memory: answers are the caller's. Threads: one. */
#include "cli/cli.h"
#include "common/base/numbers.h"
#include "common/program/output.h"
#include "common/space/space.h"

#define SAMPLES_MAX 4096

/* The median of an array of numbers; absent for none. */
static json_t *median_to_json(const json_t *numbers) {
  double all[SAMPLES_MAX];
  size_t n = json_array_size(numbers) < SAMPLES_MAX ? json_array_size(numbers) : SAMPLES_MAX;
  for (size_t i = 0; i < n; i++)
    all[i] = json_number_value(json_array_get(numbers, i));
  return n ? json_real(median_of(all, n)) : NULL;
}

/* Adds to each measurement its config's values, as "config.NAME", and the medians of its samples.
 */
static void rows_complete(json_t *rows, const struct space *space) {
  json_elements (rows, index, row) {
    json_int_t ordinal = cli_integer(row, "config");
    json_t *us = median_to_json(json_object_get(row, "samples_us")),
           *baseline_us = median_to_json(json_object_get(row, "baseline_us"));
    if (us)
      json_put(row, "median_us", us);
    if (baseline_us)
      json_put(row, "baseline_median_us", baseline_us);
    if (ordinal < 0 || (uint64_t)ordinal >= space->raw_count)
      continue;
    cleanup_json json_t *config = space_config_to_json(space, (uint64_t)ordinal);
    json_members (config, name, value) {
      cleanup_free char *member = xasprintf("config.%s", name);
      json_object_set(row, member, value);
    }
  }
}

/* The columns: the config's number and values, then what was measured. */
static struct cli_column *columns_make(const struct space *space, size_t *ret_n) {
  static const struct cli_column before[] = {{"config", "config", true}},
                                 after[] = {{"stage"},
                                            {"round", "round", true},
                                            {"process", "process", true},
                                            {"outcome"},
                                            {"median us", "median_us", true},
                                            {"baseline us", "baseline_median_us", true},
                                            {"device"},
                                            {"late"},
                                            {"detail"},
                                            {"agent", .is_wide = true},
                                            {"quarantined", .is_wide = true},
                                            {"vgprs", "vgprs", true, .is_wide = true},
                                            {"agprs", "agprs", true, .is_wide = true},
                                            {"spills", "spills", true, .is_wide = true},
                                            {"lds", "lds_bytes", true, .is_wide = true},
                                            {"occupancy", "occupancy", true, .is_wide = true},
                                            {"compile ms", "compile_ms", true, .is_wide = true},
                                            {"device us", "device_us", true, .is_wide = true},
                                            {"clock MHz", "clock_mhz", true, .is_wide = true},
                                            {"at", .is_wide = true},
                                            {"samples us", "samples_us", .is_wide = true},
                                            {"baseline us", "baseline_us", .is_wide = true}};
  cleanup_json json_t *config = space_config_to_json(space, 0);
  struct cli_column *columns = xcalloc(
      ARRAY_LENGTH(before) + json_object_size(config) + ARRAY_LENGTH(after), sizeof *columns);
  size_t n = ARRAY_LENGTH(before);
  memcpy(columns, before, sizeof before);
  json_members (config, name, value)
    columns[n++] = (struct cli_column){.heading = xstrdup(name),
                                       .member = xasprintf("config.%s", name),
                                       .is_number = json_is_number(value)};
  memcpy(columns + n, after, sizeof after);
  *ret_n = n + ARRAY_LENGTH(after);
  return columns;
}

static void columns_free(struct cli_column *columns, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (columns[i].member && string_starts(columns[i].member, "config.")) {
      free((char *)(uintptr_t)columns[i].heading);
      free((char *)(uintptr_t)columns[i].member);
    }
  free(columns);
}

static int command_measurements(struct options *options) {
  char *const *id = cli_arguments(options, 1, "name one job, as `wavetune jobs` prints it");
  enum output output = output_of(options);
  if (option_flag(options, "csv"))
    output = OUTPUT_CSV;
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_free char *job_path = cli_path("/v1/jobs/", *id, ""),
                    *path = cli_path("/v1/jobs/", *id, "/measurements");
  cleanup_json json_t *job = cli_get(client, job_path), *rows = cli_list(client, path);
  cleanup_space struct space *space = NULL;
  struct error error;
  if (!space_parse(json_object_get(job, "space"), &space, &error))
    cli_fail_in(EXIT_REFUSED, &error, "the server's answer is not a job: ");

  size_t n;
  struct cli_column *columns = columns_make(space, &n);
  rows_complete(rows, space);
  output_rows_of(output, rows, columns, n, stdout);
  columns_free(columns, n);
  return EXIT_OK;
}

static void event_print(const json_t *event, bool as_json) {
  cleanup_free char *detail = cli_compact(event, "detail");
  if (as_json) {
    json_dumpf(event, stdout, JSON_COMPACT);
    putchar('\n');
  } else {
    printf("%s  %3lld  %-10s  %s\n", cli_member(event, "at"),
           (long long)cli_integer(event, "event"), cli_member(event, "kind"),
           string_equal(detail, "{}") ? "" : detail);
  }
}

/* Prints a job's events from the first one; with --follow until the job has ended. */
static int command_events(struct options *options) {
  char *const *id = cli_arguments(options, 1, "name one job, as `wavetune jobs` prints it");
  bool is_following = option_flag(options, "follow"), has_ended = false;
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_free char *after = xstrdup("0"), *job_path = cli_path("/v1/jobs/", *id, "");
  for (;;) {
    cleanup_free char *tail = xasprintf("/events?limit=1000&after=%s%s", after,
                                        is_following && !has_ended ? "&wait=10" : ""),
                      *path = cli_path("/v1/jobs/", *id, tail);
    cleanup_json json_t *page = cli_get(client, path);
    const json_t *items = json_object_get(page, "items");
    json_elements (items, index, event)
      event_print(event, option_flag(options, "json"));
    if (fflush(stdout) != 0)
      return EXIT_OK;
    if (json_array_size(items)) {
      free(after);
      after = http_escape(cli_member(page, "next"));
    } else if (!is_following || has_ended) {
      return EXIT_OK;
    }

    /* A job that ended may have had an event after the last page. */
    if (is_following && !has_ended) {
      cleanup_json json_t *job = cli_get(client, job_path);
      const char *state = cli_member(job, "state");
      has_ended = !string_equal(state, "queued") && !string_equal(state, "running");
    }
  }
}

static const struct option_spec measurements_options[] = {
    CLI_FLAG("csv", "print CSV, with a column for each parameter; the same as -o csv"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};
static const struct option_spec events_options[] = {
    CLI_FLAG("follow", "wait for more until the job has ended"),
    SERVER_OPTIONS,
};

CLI_COMMAND(measurements, "measurements", "JOB", measurements_options,
            "list what was measured for a job",
            .description = "Each row is a config in one process. Its values are config.NAME in CSV "
                           "and JSON; samples_us and baseline_us are in pairs. Late rows are "
                           "evidence that decided nothing.");
CLI_COMMAND(events, "events", "JOB", events_options, "print what happened to a job",
            .description = "With --json each event is a line.");
