/* wavetune agents, agents drain, resume and remove, environments, compatible list, add and remove:
 * which nodes and devices work, the environments that jobs can name, and those whose caches may
 * serve others. */
#include "cli/cli.h"
#include "cli/fleet.h"
#include "common/program/output.h"

/* What the nodes do, by the agents' ids: an object of the items of GET /v1/fleet/nodes. */
static json_t *nodes_read(struct http_client *client, int64_t *ret_now_ms) {
  cleanup_json json_t *summary = cli_get(client, "/v1/fleet");
  *ret_now_ms = cli_integer(summary, "as_of_ms");
  return cli_list(client, "/v1/fleet/nodes");
}

/* Adds what each device does to the items of GET /v1/agents, which have all that is known. */
static void states_add(json_t *agents, const json_t *nodes) {
  cleanup_json json_t *devices = json_object();
  json_elements (nodes, i, node)
    json_elements (json_object_get(node, "devices"), k, device) {
      cleanup_free char *id =
          xasprintf("%s/%s", cli_member(node, "agent"), cli_member(device, "device"));
      json_object_set(devices, id, (json_t *)device);
    }

  json_elements (agents, i, agent) {
    json_elements (json_object_get(agent, "devices"), k, own) {
      cleanup_free char *id =
          xasprintf("%s/%s", cli_member(agent, "agent"), cli_member(own, "device"));
      json_object_update_missing(own, json_object_get(devices, id));
    }
  }
}

/* Adds a row for each agent that is none of the nodes: it was removed, or not seen for long. */
static void gone_add(json_t *rows, const json_t *agents) {
  cleanup_json json_t *listed = json_object();
  json_elements (rows, index, row)
    json_object_set(listed, cli_member(row, "agent"), (json_t *)row);
  json_elements (agents, index, agent) {
    const char *id = cli_member(agent, "agent");
    const char *state = *cli_member(agent, "removed_at") ? "removed" : "gone";
    if (!json_object_get(listed, id))
      json_push(rows, json_pack("{s:s, s:s, s:s, s:s, s:s}", "agent", id, "host",
                                cli_member(agent, "name"), "reason", state, "is", state, "seen",
                                cli_member(agent, "last_seen")));
  }
}

static json_t *agents_list(struct http_client *client, bool is_all) {
  return cli_list(client, is_all ? "/v1/agents?all=true" : "/v1/agents");
}

static int command_agents(struct options *options) {
  static const struct cli_column node_columns[] = {
      {"host"}, {"devices"}, {"doing"}, {"reason"}, {"seen", "seen", true}, {"agent"},
  };
  static const struct cli_column device_columns[] = {
      {"host"},
      {"device"},
      {"state", "is"},
      {"for"},
      {"job", "job", true},
      {"kernel"},
      {"key"},
      {"tag"},
      {"stage"},
      {"config", "config", true},
      {"left", "left", true},
      {"gpu"},
      {"partition"},
      {"agent"},
  };
  enum output output = output_of(options);
  int64_t now_ms;
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *items = agents_list(client, option_flag(options, "all")),
                      *nodes = nodes_read(client, &now_ms), *rows = NULL;
  if (output == OUTPUT_JSON) {
    states_add(items, nodes);
    cli_print_json(items);
    return EXIT_OK;
  }

  bool is_of_nodes = output == OUTPUT_TABLE;
  rows = (is_of_nodes ? fleet_node_rows : fleet_device_rows)(nodes, now_ms);
  gone_add(rows, items);
  output_rows_of(output, rows, is_of_nodes ? node_columns : device_columns,
                 is_of_nodes ? ARRAY_LENGTH(node_columns) : ARRAY_LENGTH(device_columns), stdout);
  if (output == OUTPUT_CSV)
    return EXIT_OK;

  json_elements (items, index, agent) {
    const char *id = cli_member(agent, "agent");
    const json_t *refused = json_object_get(agent, "refused");
    cleanup_free char *keys = cli_compact(agent, "trusted_keys");
    if (*keys)
      printf("agent %s: accepts only code that one of these keys signed: %s\n", id, keys);
    if (json_is_object(refused))
      printf("agent %s: an enrolment as \"%s\" from another machine was refused at %s; one of the "
             "two has a copy of the other's state folder\n",
             id, cli_member(refused, "name"), cli_member(refused, "at"));
  }

  return EXIT_OK;
}

#define AGENT_ID_LENGTH 32

/* The id of the agent that the argument names: by its id, or by its host. Of several agents of a
 * host, those that are at work are meant, or with `is_gone` those that are not; if these are
 * several, too, it lists them. */
static char *agent_find(struct http_client *client, const char *text, bool is_gone) {
  cleanup_free char *listed = xstrdup("");
  const json_t *found = NULL;
  size_t n = 0, n_meant = 0;
  if (strlen(text) == AGENT_ID_LENGTH && strspn(text, "0123456789abcdef") == AGENT_ID_LENGTH)
    return xstrdup(text);

  cleanup_json json_t *agents = agents_list(client, is_gone);
  json_elements (agents, index, agent) {
    const char *state = cli_member(agent, "state");
    bool is_off = string_equal(state, "lost") || string_equal(state, "ended");
    if (!string_equal(cli_member(agent, "name"), text) || *cli_member(agent, "removed_at"))
      continue;
    text_append(&listed, "\n  %s  %s, last seen at %s", cli_member(agent, "agent"), state,
                cli_member(agent, "last_seen"));
    n++;
    if (n_meant == 0 || is_off == is_gone)
      found = agent;
    n_meant += is_off == is_gone;
  }

  if (n == 0)
    cli_refuse(EXIT_REFUSED,
               "there is no agent on a host \"%.100s\"; `wavetune agents --all` lists all", text);
  if (n > 1 && n_meant != 1)
    cli_refuse(EXIT_USAGE, "%zu agents are on the host %.100s; name one by its id:%s", n, text,
               listed);
  return xstrdup(cli_member(found, "agent"));
}

/* Reads the only argument and finds its agent. */
static char *agent_of_argument(struct options *options, bool is_gone,
                               struct http_client **ret_client) {
  char *const *text = cli_arguments(
      options, 1, "name one agent by its host or its id, as `wavetune agents` prints them");
  *ret_client = cli_connect(options);
  return agent_find(*ret_client, *text, is_gone);
}

/* Drains an agent or one of its devices; with a NULL reason, resumes it. */
static int draining_set(struct options *options, const char *reason) {
  const char *device = option_text(options, "device");
  cleanup_http_client struct http_client *client = NULL;
  cleanup_free char *id = agent_of_argument(options, false, &client),
                    *path = cli_path("/v1/agents/", id, "/drain");
  cleanup_json json_t *body = json_pack("{s:s?, s:s?}", "device", device, "reason", reason),
                      *answer = cli_call(client, "POST", path, body);
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("%s of agent %s %s\n", device ? device : "all devices", id,
           reason ? "get no more leases" : "get leases again");
  return EXIT_OK;
}

static int command_agents_drain(struct options *options) {
  const char *reason = option_text(options, "reason");
  if (!reason)
    cli_refuse(EXIT_USAGE,
               "give the reason with --reason TEXT: the agent's log and `wavetune agents` show it");
  return draining_set(options, reason);
}

static int command_agents_resume(struct options *options) { return draining_set(options, NULL); }

static int command_agents_remove(struct options *options) {
  cleanup_http_client struct http_client *client = NULL;
  cleanup_free char *id = agent_of_argument(options, true, &client),
                    *path = cli_path("/v1/agents/", id, "");
  json_decref(cli_call(client, "DELETE", path, NULL));
  return cli_print_done(options, "removed", id);
}

static int command_environments(struct options *options) {
  static const struct cli_column columns[] = {{"live agents", "agents", true}, {"environment"}};
  return cli_print_list(options, "/v1/environments", columns);
}

static int command_compatible_list(struct options *options) {
  static const struct cli_column columns[] = {
      {"id", "id", true}, {"asked"}, {"served"}, {"made by", "made_by"}, {"reason"}};
  return cli_print_list(options, "/v1/compatibilities", columns);
}

static int command_compatible_add(struct options *options) {
  if (!option_text(options, "asked") || !option_text(options, "served"))
    cli_refuse(EXIT_USAGE, "give --asked and --served, e.g. --asked '{\"rocm\": \"6.4.1\"}' "
                           "--served '{\"rocm\": \"6.3.1\"}'");

  cleanup_json json_t *asked = cli_environment(options, "asked"),
                      *served = cli_environment(options, "served"),
                      *body = json_pack("{s:O, s:O, s:s}", "asked", asked, "served", served,
                                        "reason", option_text(options, "reason")),
                      *answer = cli_request_or_json(options, "POST", "/v1/compatibilities", body);
  if (answer)
    printf("compatibility %s\n", cli_member(answer, "id"));
  return EXIT_OK;
}

static int command_compatible_remove(struct options *options) {
  return cli_delete(options, "/v1/compatibilities/", "removed",
                    "name one compatibility, as `wavetune compatible list` prints it");
}

#define OPTION_DEVICE CLI_TEXT("device", "DEVICE", "only this device of the agent")
static const struct option_spec drain_options[] = {
    OPTION_DEVICE,
    CLI_TEXT("reason", "TEXT", "why; the agent's log and `wavetune agents` show it"),
    SERVER_OPTIONS,
};
static const struct option_spec resume_options[] = {OPTION_DEVICE, SERVER_OPTIONS};
static const struct option_spec add_options[] = {
    CLI_TEXT("asked", "JSON|@FILE",
             "members that identify the environment of deployments that have no cache"),
    CLI_TEXT("served", "JSON|@FILE",
             "the same members, with the values of the environment whose cache they get instead"),
    CLI_TEXT("reason", "TEXT", "why that cache is valid there; kept with the declaration",
             .default_text = ""),
    SERVER_OPTIONS,
};
static const struct option_spec agents_options[] = {
    CLI_FLAG("all", "also agents that were removed, or not seen for 7 days"),
    OPTION_OUTPUT,
    SERVER_OPTIONS,
};

CLI_COMMAND(agents, "agents", "", agents_options, "list nodes with what their devices do",
            .description =
                "A line for each node; with -o wide or csv, for each device. Agents that "
                "were removed, or not seen for 7 days, are left out unless --all is given.");
#define AGENT_ARGUMENT                                                                             \
  "AGENT is a host's name or an agent's id. Where several agents are on the host, "
CLI_COMMAND(agents_drain, "agents drain", "AGENT", drain_options,
            "give an agent, or one of its devices, no more leases",
            .description = AGENT_ARGUMENT "the one that is at work is meant.");
CLI_COMMAND(agents_resume, "agents resume", "AGENT", resume_options,
            "give a drained agent or device leases again",
            .description = AGENT_ARGUMENT
            "the one that is at work is meant.\n"
            "A device that was drained because it drifted begins a new history: "
            "earlier measurements are not used to detect its drift any more, and "
            "quarantined measurements stay quarantined.");
CLI_COMMAND(agents_remove, "agents remove", "AGENT", server_options,
            "remove an agent that is gone from the list",
            .description = AGENT_ARGUMENT
            "the one that is gone is meant.\n"
            "Its tokens end, so that it must enrol again; what it measured stays. "
            "An agent that is live is refused. Agents that were not seen for 7 days "
            "leave the list by themselves; `wavetune agents --all` shows them.");
CLI_COMMAND(environments, "environments", "", server_options,
            "list the environments of nodes and builds");
CLI_COMMAND(compatible_list, "compatible list", "", server_options,
            "list the environments whose caches may serve others");
CLI_COMMAND(compatible_add, "compatible add", "", add_options,
            "declare that the cache of one environment may serve another",
            .description = "Only deployments that fetch with --match compatible are served by it. "
                           "arch, compute_units and partition cannot be declared: a config of "
                           "another GPU is never served.");
CLI_COMMAND(compatible_remove, "compatible remove", "ID", server_options,
            "withdraw a declaration of `compatible add`");
