/* wavetune campaigns and cost: how far campaigns are, what device time went to; and rows about
 * nodes for `wavetune agents` and `wavetune top`. */
#include "cli/fleet.h"

#include <time.h>

#include "cli/cli.h"
#include "common/base/time.h"
#include "common/program/output.h"

#define DOING_MAX 3 /* kernels of a node that are named */

/* How long ago that was, "" when it is not known. */
static char *since_text(const json_t *ms, int64_t now_ms) {
  if (!json_is_integer(ms))
    return xstrdup("");
  int64_t age_ms = now_ms - json_integer_value(ms);
  return xstrdup(SPAN_TEXT(age_ms > 0 ? (double)age_ms / 1e3 : 0));
}

static void put_text(json_t *row, const char *name, char *text) {
  json_put(row, name, json_string(text));
  free(text);
}

char *fleet_state_text(const json_t *device) {
  const char *reason = cli_member(device, "reason"), *by = cli_member(device, "by");
  return xasprintf("%s%s%s%s%s%s", cli_member(device, "state"), *reason ? ": " : "", reason,
                   *by ? " (by " : "", by, *by ? ")" : "");
}

/* Adds one to a counter of `counts`. */
static void count(json_t *counts, const char *name) {
  json_put(counts, name, json_integer(cli_integer(counts, name) + 1));
}

/* "6 measuring, 2 idle"; "" of nothing. States that this program does not know come last. */
static char *counts_text(json_t *counts) {
  static const char *const known[] = {"measuring", "idle",  "yielded", "drained",
                                      "drifted",   "ended", "lost"};
  cleanup_json json_t *ordered = json_object();
  char *text = xstrdup("");
  const char *name;
  json_t *n;

  for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
    if ((n = json_object_get(counts, known[i])))
      json_object_set(ordered, known[i], n);
  json_object_update_missing(ordered, counts);

  json_object_foreach (ordered, name, n)
    text_append(&text, "%s%lld %s", *text ? ", " : "", json_integer_value(n), name);
  return text;
}

/* "matmul ×5, softmax"; the kernels in the order of the devices. */
static char *doing_text(const json_t *kernels) {
  char *text = xstrdup("");
  size_t n_named = 0;
  json_members (kernels, name, n) {
    if (n_named++ >= DOING_MAX)
      continue;
    text_append(&text, "%s%s", *text ? ", " : "", name);
    if (json_integer_value(n) > 1)
      text_append(&text, " ×%lld", json_integer_value(n));
  }

  if (n_named > DOING_MAX)
    text_append(&text, ", …");
  return text;
}

json_t *fleet_node_rows(const json_t *nodes, int64_t now_ms) {
  json_t *rows = json_array();

  json_elements (nodes, index, node) {
    cleanup_json json_t *states = json_object(), *kernels = json_object();
    const char *reason = cli_member(node, "reason");
    json_elements (json_object_get(node, "devices"), at, device) {
      count(states, cli_member(device, "state"));
      if (*cli_member(device, "kernel"))
        count(kernels, cli_member(device, "kernel"));
      if (!*reason)
        reason = cli_member(device, "reason");
    }

    json_t *row = json_pack("{s:O, s:O, s:O, s:s}", "agent", json_object_get(node, "agent"), "host",
                            json_object_get(node, "host"), "version",
                            json_object_get(node, "version"), "reason", reason);
    put_text(row, "devices", counts_text(states));
    put_text(row, "doing", doing_text(kernels));
    put_text(row, "seen", since_text(json_object_get(node, "seen_ms"), now_ms));
    json_push(rows, row);
  }

  return rows;
}

json_t *fleet_device_rows(const json_t *nodes, int64_t now_ms) {
  json_t *rows = json_array();

  json_elements (nodes, index, node)
    json_elements (json_object_get(node, "devices"), at, device) {
      json_t *row = json_copy((json_t *)device);
      json_object_set(row, "host", json_object_get(node, "host"));
      json_object_set(row, "agent", json_object_get(node, "agent"));
      put_text(row, "for", since_text(json_object_get(device, "since_ms"), now_ms));
      put_text(row, "is", fleet_state_text(device));
      json_push(rows, row);
    }

  return rows;
}

json_t *fleet_campaign_rows(const json_t *campaigns) {
  json_t *rows = json_array();

  json_elements (campaigns, index, campaign) {
    const json_t *to_go = json_object_get(campaign, "to_go_s");
    json_int_t open = cli_integer(campaign, "queued") + cli_integer(campaign, "running");
    cleanup_free char *ended =
        xasprintf("%lld/%lld", cli_integer(campaign, "jobs") - open, cli_integer(campaign, "jobs"));
    json_t *row = json_copy((json_t *)campaign);
    json_put(row, "ended", json_string(ended));
    json_put(row, "device_time", json_string(SPAN_TEXT(json_number(campaign, "device_seconds"))));
    json_put(row, "to_go",
             json_string(json_is_number(to_go) ? SPAN_TEXT(json_number_value(to_go))
                         : open                ? "unknown"
                                               : ""));
    json_push(rows, row);
  }

  return rows;
}

/* Names, separated by commas. */
static char *format_names(const json_t *names) { return json_texts_join(names, ", "); }

/* The time of a member in milliseconds, as RFC 3339 in UTC to the minute. */
static char *format_time(const json_t *ms) {
  if (!json_is_integer(ms))
    return xstrdup("");
  char *text = TIME_TEXT(json_integer_value(ms) / 1000);
  text[strcspn(text, "T")] = ' ';
  return xstrndup(text, strlen("2026-11-27 22:50"));
}

static char *format_hours(const json_t *seconds) {
  return xasprintf("%.2f", json_number_value(seconds) / 3600);
}

static int command_campaigns(struct options *options) {
  static const struct cli_column columns[] = {
      {"tag"},
      {"run"},
      {"by", "owners", .format = format_names},
      {"ended", "ended", true},
      {"running", "running", true},
      {"failed", "failed", true},
      {"cancelled", "cancelled", true},
      {"device time", "device_time", true},
      {"to go", "to_go", true},
      {"begun (UTC)", "first_ms", .format = format_time},
      {"ended (UTC)", "last_ms", .format = format_time, .is_wide = true},
      {"configs", "configs", true, .is_wide = true},
      {"measurements", "measurements", true, .is_wide = true},
      {"device s", "device_seconds", true, .is_wide = true},
      {"kernels", .format = format_names, .is_wide = true},
  };
  enum output output = output_of(options);
  cleanup_json json_t *members = cli_options_json(options, "tag", "run", "owner", NULL);
  cleanup_free char *query = cli_query(members, option_flag(options, "open") ? "open" : NULL,
                                       "true", NULL),
                    *path = xasprintf("/v1/campaigns%s", query);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *items = cli_list(client, path), *rows = output == OUTPUT_JSON
                                                                   ? json_incref(items)
                                                                   : fleet_campaign_rows(items);
  output_rows(output, rows, columns, stdout);
  return EXIT_OK;
}

/* Reads a duration ("7d": so long ago), a day or a time. */
static int64_t since_ms_of(const char *text) {
  int64_t ago_ms, us;
  cleanup_free char *day = xasprintf("%sT00:00:00Z", text);
  if (duration_parse(text, &ago_ms)) {
    int64_t since_ms = (int64_t)time(NULL) * 1000 - ago_ms;
    return since_ms > 0 ? since_ms : 0;
  }
  if (!time_parse(text, &us) && !time_parse(day, &us))
    cli_refuse(EXIT_USAGE,
               "--since \"%.40s\" must be how long ago, such as 12h or 7d, or a time "
               "like 2026-11-20 or 2026-11-20T07:00:00Z",
               text);
  return us / 1000;
}

static int command_cost(struct options *options) {
  const char *by = option_text(options, "by");
  const struct cli_column columns[] = {
      {by, "name"},
      {"device h", "device_seconds", true, format_hours},
      {"jobs", "jobs", true},
      {"measurements", "measurements", true},
  };
  enum output output = output_of(options);
  const char *since = option_text(options, "since");
  cleanup_free char *from = xasprintf("%lld", since ? (long long)since_ms_of(since) : 0),
                    *query = cli_query(NULL, "by", by, since ? "from_ms" : NULL, from, NULL),
                    *path = xasprintf("/v1/cost%s", query);
  cleanup_json json_t *answer = cli_request(options, "GET", path, NULL);

  const json_t *items = json_object_get(answer, "items");
  if (output == OUTPUT_JSON) {
    cli_print_json(answer);
    return EXIT_OK;
  }
  output_rows(output, items, columns, stdout);
  if (output != OUTPUT_CSV)
    printf("all: %.2f h of device time, %lld jobs\n", json_number(answer, "device_seconds") / 3600,
           cli_integer(answer, "jobs"));
  return EXIT_OK;
}

static const struct option_spec campaigns_options[] = {
    CLI_TEXT("tag", "TAG", "only this tag"),
    CLI_TEXT("run", "RUN", "only this run"),
    CLI_TEXT("owner", "TOKEN", "only campaigns with jobs that the token of this name submitted"),
    CLI_FLAG("open", "only campaigns with jobs that have not ended"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};
static const struct option_spec cost_options[] = {
    CLI_TEXT("by", "week|day|kernel|tag|run|owner", "what device time is summed by",
             .default_text = "week"),
    CLI_TEXT("since", "TIME",
             "only jobs that ended since then: 7d, 12h, or a time like 2026-11-20"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};

CLI_COMMAND(campaigns, "campaigns", "", campaigns_options,
            "list campaigns, the jobs of a tag and run, newest first");
CLI_COMMAND(cost, "cost", "", cost_options, "sum the device time that jobs took",
            .description = "A job counts on the day (UTC) on which it ended; what open jobs used "
                           "so far counts today. A week is named by its Monday.");
