/* wavetune compatible list|add|remove: which environments an operator lets serve each other.
 * Memory: each command's own. */
#include "cli/cli.h"
#include "common/program/table.h"

static int command_list(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/compatibilities", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {
      {"id", true}, {"asked", false}, {"served", false}, {"made by", false}, {"reason", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *asked = json_dumps(json_object_get(item, "asked"), JSON_COMPACT);
    cleanup_free char *served = json_dumps(json_object_get(item, "served"), JSON_COMPACT);
    table_cell(table, "%s", cli_member(item, "id"));
    table_cell(table, "%s", asked ? asked : "");
    table_cell(table, "%s", served ? served : "");
    table_cell(table, "%s", cli_member(item, "made_by"));
    table_cell(table, "%s", cli_member(item, "reason"));
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static bool sides_read(const struct options *options, json_t **ret_asked, json_t **ret_served,
                       struct error *error) {
  if (!option_text(options, "asked") || !option_text(options, "served"))
    return error_set(error, "say --asked and --served, e.g. --asked '{\"rocm\": \"6.4.1\"}' "
                            "--served '{\"rocm\": \"6.3.1\"}'");
  return cli_environment_of(options, "asked", ret_asked, error) &&
         cli_environment_of(options, "served", ret_served, error);
}

static int command_add(struct options *options) {
  cleanup_json json_t *asked = NULL, *served = NULL, *answer = NULL;
  struct error error;
  if (!sides_read(options, &asked, &served, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *body = json_pack("{s:O, s:O, s:s}", "asked", asked, "served", served,
                                        "reason", option_text(options, "reason"));
  int code = cli_call(client, "POST", "/v1/compatibilities", body, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("compatibility %s\n", cli_member(answer, "id"));
  return EXIT_OK;
}

static int command_remove(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one compatibility, as `wavetune compatible list` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/compatibilities/%s", escaped);
  cleanup_json json_t *none = NULL;
  int code = cli_call(client, "DELETE", path, NULL, &none);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:s}", "removed", arguments[0]);
    cli_print_json(answer);
  } else {
    printf("removed %s\n", arguments[0]);
  }
  return EXIT_OK;
}

static const struct option_spec add_options[] = {
    {.name = "asked",
     .type = OPTION_TEXT,
     .argument = "JSON|@FILE",
     .flag_only = true,
     .help =
         "members that identify the environment of a deployment that finds no cache of its own"},
    {.name = "served",
     .type = OPTION_TEXT,
     .argument = "JSON|@FILE",
     .flag_only = true,
     .help =
         "the same members, with the values of the environment whose cache it is served instead"},
    {.name = "reason",
     .type = OPTION_TEXT,
     .argument = "TEXT",
     .default_text = "",
     .flag_only = true,
     .help = "why that cache is valid there; kept with the declaration"},
    SERVER_OPTIONS,
};
static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_compatible_list = {
    .name = "compatible list",
    .arguments = "",
    .summary = "list which environments may serve each other",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_list,
};
const struct command_spec spec_compatible_add = {
    .name = "compatible add",
    .arguments = "",
    .summary = "declare that one environment's cache may serve another",
    .description = "Only deployments that fetch with --match compatible are served by it. arch, "
                   "compute_units and partition "
                   "cannot be declared: a config of another GPU is never served.",
    .options = add_options,
    .n_options = ARRAY_LENGTH(add_options),
    .run = command_add,
};
const struct command_spec spec_compatible_remove = {
    .name = "compatible remove",
    .arguments = "ID",
    .summary = "withdraw such a declaration",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_remove,
};
