/* wavetune agents, agents drain, agents resume and environments: which nodes there are, which of
 * them and of their devices work, and the real strings that jobs can name. */
#include "cli/cli.h"
#include "common/program/table.h"

static int command_agents(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/agents", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {{"agent", false},
                                         {"name", false},
                                         {"state", false},
                                         {"device", false},
                                         {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index, device_index;
  json_t *agent, *device;
  json_array_foreach (items, index, agent) {
    const char *agent_reason = cli_member(agent, "drain_reason");
    json_array_foreach (json_object_get(agent, "devices"), device_index, device) {
      cleanup_free char *environment =
          json_dumps(json_object_get(device, "environment"), JSON_COMPACT);
      const char *device_reason = cli_member(device, "drain_reason");
      const char *reason = agent_reason[0] ? agent_reason : device_reason;
      table_cell(table, "%s", cli_member(agent, "agent"));
      table_cell(table, "%s", cli_member(agent, "name"));
      const char *by = cli_member(agent_reason[0] ? agent : device, "drained_by");
      table_cell(table, "%s%s%s%s%s%s", device_reason[0] ? "draining" : cli_member(agent, "state"),
                 reason[0] ? ": " : "", reason, by[0] ? " (by " : "", by, by[0] ? ")" : "");
      table_cell(table, "%s", cli_member(device, "device"));
      table_cell(table, "%s", environment ? environment : "");
    }
  }
  table_print(table, stdout);
  json_array_foreach (items, index, agent) {
    const json_t *refused = json_object_get(agent, "refused");
    cleanup_free char *keys = json_dumps(json_object_get(agent, "trusted_keys"), JSON_COMPACT);
    if (keys)
      printf("agent %s: takes only what one of these keys signed: %s\n", cli_member(agent, "agent"),
             keys);
    if (json_is_object(refused))
      printf("agent %s: an enrolment as \"%s\" from another machine was refused at %s; one of the "
             "two has a copy of the "
             "other's state folder\n",
             cli_member(agent, "agent"), cli_member(refused, "name"), cli_member(refused, "at"));
  }
  return EXIT_OK;
}

/* Drains an agent or one of its devices; a NULL reason ends it. */
static int draining_set(struct options *options, const char *reason) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one agent by its id, as `wavetune agents` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  const char *device = option_text(options, "device");
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/agents/%s/drain", escaped);
  cleanup_json json_t *body = json_pack("{s:s?, s:s?}", "device", device, "reason", reason),
                      *answer = NULL;
  int code = cli_call(client, "POST", path, body, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("%s of agent %s %s\n", device ? device : "all devices", arguments[0],
           reason ? "get no more leases" : "get leases again");
  return EXIT_OK;
}

static int command_drain(struct options *options) {
  struct error error;
  const char *reason = option_text(options, "reason");
  if (!reason) {
    error_set(&error,
              "say why with --reason TEXT: the agent's log and `wavetune agents` repeat it");
    return cli_fail(EXIT_USAGE, &error);
  }
  return draining_set(options, reason);
}

static int command_resume(struct options *options) { return draining_set(options, NULL); }

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

/* clang-format off */
#define OPTION_DEVICE \
  {.name = "device", .type = OPTION_TEXT, .argument = "DEVICE", .flag_only = true, \
   .help = "only this device of the agent"}
/* clang-format on */
static const struct option_spec drain_options[] = {
    OPTION_DEVICE,
    {.name = "reason",
     .type = OPTION_TEXT,
     .argument = "TEXT",
     .flag_only = true,
     .help = "why; it is shown to who asks"},
    SERVER_OPTIONS,
};
static const struct option_spec resume_options[] = {OPTION_DEVICE, SERVER_OPTIONS};
static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_agents = {
    .name = "agents",
    .arguments = "",
    .summary = "list agents, their state and devices",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_agents,
};
const struct command_spec spec_agents_drain = {
    .name = "agents drain",
    .arguments = "AGENT",
    .summary = "give an agent, or one of its devices, no more leases",
    .options = drain_options,
    .n_options = ARRAY_LENGTH(drain_options),
    .run = command_drain,
};
const struct command_spec spec_agents_resume = {
    .name = "agents resume",
    .arguments = "AGENT",
    .summary = "give a drained agent or device leases again",
    .description = "A device that was drained because it drifted begins a new history: what it "
                   "measured before it was "
                   "resumed is not held against it, and what was quarantined stays so.",
    .options = resume_options,
    .n_options = ARRAY_LENGTH(resume_options),
    .run = command_resume,
};
const struct command_spec spec_environments = {
    .name = "environments",
    .arguments = "",
    .summary = "list the environments that nodes and builds really have",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_environments,
};
