/* wavetune agents and environments: which nodes there are, and the real strings that jobs can name. */
#include "cli/cli.h"
#include "common/table.h"

static int command_agents(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/agents", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {
      {"agent", false}, {"name", false}, {"state", false}, {"device", false}, {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index, device_index;
  json_t *agent, *device;
  json_array_foreach (items, index, agent) {
    const char *reason = cli_member(agent, "drain_reason");
    json_array_foreach (json_object_get(agent, "devices"), device_index, device) {
      cleanup_free char *environment = json_dumps(json_object_get(device, "environment"), JSON_COMPACT);
      table_cell(table, "%s", cli_member(agent, "agent"));
      table_cell(table, "%s", cli_member(agent, "name"));
      table_cell(table, "%s%s%s", cli_member(agent, "state"), reason[0] ? ": " : "", reason);
      table_cell(table, "%s", cli_member(device, "device"));
      table_cell(table, "%s", environment ? environment : "");
    }
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static int command_environments(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/environments", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {{"live agents", true}, {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *environment = json_dumps(json_object_get(item, "environment"), JSON_COMPACT);
    table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(item, "agents")));
    table_cell(table, "%s", environment ? environment : "");
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_agents = {
    .name = "agents",
    .arguments = "",
    .summary = "list agents, their state and devices",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_agents,
};
const struct command_spec spec_environments = {
    .name = "environments",
    .arguments = "",
    .summary = "list the environments that nodes and builds really have",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_environments,
};
