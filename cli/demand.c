/* wavetune demand: untuned keys that deployments ask for, and jobs for them. Memory: each command's
 * own. */
#include "cli/cli.h"
#include "common/program/table.h"

static void demand_print(const json_t *items) {
  const struct table_column columns[] = {{"kernel", false},     {"key", false}, {"tag", false},
                                         {"misses", true},      {"hits", true}, {"saved s", true},
                                         {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *key = json_dumps(json_object_get(item, "key"), JSON_COMPACT);
    cleanup_free char *environment = json_dumps(json_object_get(item, "environment"), JSON_COMPACT);
    table_cell(table, "%s", cli_member(item, "name"));
    table_cell(table, "%s", key ? key : "");
    table_cell(table, "%s", cli_member(item, "tag"));
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(item, "misses")));
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(item, "hits")));
    table_cell(table, "%.1f", json_number_value(json_object_get(item, "saved_ms")) / 1000);
    table_cell(table, "%s", environment ? environment : "");
  }
  table_print(table, stdout);
}

static void queued_print(const json_t *items) {
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *key = json_dumps(json_object_get(item, "key"), JSON_COMPACT);
    const char *job = cli_member(item, "job"), *refused = cli_member(item, "refused");
    printf("%s%s  %s %s%s%s\n", job[0] ? "job " : "refused", job, cli_member(item, "name"),
           key ? key : "", refused[0] ? ": " : "", refused);
  }
}

static int command_demand(struct options *options) {
  int64_t top = option_integer(options, "queue");
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *answer = NULL,
                      *body = top ? json_pack("{s:I}", "top", (json_int_t)top) : NULL;
  int code = top ? cli_call(client, "POST", "/v1/demand/queue", body, &answer)
                 : cli_call(client, "GET", "/v1/demand?limit=1000", NULL, &answer);
  if (code != EXIT_OK)
    return code;
  const json_t *items = json_object_get(answer, "items");
  if (option_flag(options, "json"))
    cli_print_json(items);
  else if (top)
    queued_print(items);
  else
    demand_print(items);
  if (!top && string_equal(cli_member(answer, "policy"), "off"))
    fprintf(stderr, "wavetune: the server drops what deployments report; start it with --demand "
                    "suggest to keep it\n");
  return EXIT_OK;
}

static const struct option_spec demand_options[] = {
    {.name = "queue",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .min = 0,
     .max = 1000,
     .flag_only = true,
     .help = "queue jobs for the first N"},
    SERVER_OPTIONS,
};

const struct command_spec spec_demand = {
    .name = "demand",
    .arguments = "",
    .summary = "list untuned keys that deployments ask for, or queue jobs for them",
    .description = "Sorted by the GPU time that tuning would have saved: what deployments spent on "
                   "tuning the key, and their "
                   "calls times the kernel's time times the share that its winners save on "
                   "average. A job takes the "
                   "space of the kernel's newest done job.",
    .options = demand_options,
    .n_options = ARRAY_LENGTH(demand_options),
    .run = command_demand,
};
