/* wavetune releases and channels: what was published, and what deployments follow. Memory: each
 * command's own. */
#include "cli/cli.h"
#include "common/program/table.h"

static void environment_cell(struct table *table, const json_t *item) {
  cleanup_free char *environment = json_dumps(json_object_get(item, "environment"), JSON_COMPACT);
  table_cell(table, "%s", environment ? environment : "");
}

static int command_releases(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/releases", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {{"release", false}, {"made", false},
                                         {"tag", false},     {"winners", true},
                                         {"by", false},      {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    table_cell(table, "%s", cli_member(item, "release"));
    table_cell(table, "%s", cli_member(item, "created_at"));
    table_cell(table, "%s", cli_member(item, "tag"));
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(item, "winners")));
    table_cell(table, "%s", cli_member(item, "made_by"));
    environment_cell(table, item);
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static int command_channels(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/channels", &items);
  if (!items)
    return code;
  const struct table_column columns[] = {
      {"channel", false}, {"tag", false},   {"counter", true},  {"moved", false},
      {"release", false}, {"signed", true}, {"expires", false}, {"environment", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    table_cell(table, "%s", cli_member(item, "channel"));
    table_cell(table, "%s", cli_member(item, "tag"));
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(item, "counter")));
    table_cell(table, "%s", cli_member(item, "updated_at"));
    table_cell(table, "%s", cli_member(item, "release"));
    table_cell(table, "%zu", json_array_size(json_object_get(item, "signatures")));
    table_cell(table, "%s", cli_member(item, "expires"));
    environment_cell(table, item);
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_releases = {
    .name = "releases",
    .arguments = "",
    .summary = "list releases, newest first",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_releases,
};
const struct command_spec spec_channels = {
    .name = "channels",
    .arguments = "",
    .summary = "list channels and the releases they point at",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_channels,
};
