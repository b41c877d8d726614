/* wavetune audit: which token wrote what, newest first. Memory: the command's own. */
#include "cli/cli.h"
#include "common/program/table.h"

#define PAGE_MAX 1000

/* At most --limit items of the list, asked for in pages. */
static int audit_load(const struct options *options, json_t **ret_items) {
  static const char *const filters[][2] = {
      {"since", "since"}, {"by", "token"}, {"action", "action"}, {"object", "object"}};
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;

  cleanup_json json_t *items = json_array(), *query = json_object();
  for (size_t i = 0; i < ARRAY_LENGTH(filters); i++)
    if (option_text(options, filters[i][0]))
      json_object_set_new(query, filters[i][1], json_string(option_text(options, filters[i][0])));

  for (size_t left = (size_t)option_integer(options, "limit"); left > 0;) {
    json_object_set_new(query, "limit",
                        json_integer(left < PAGE_MAX ? (json_int_t)left : PAGE_MAX));
    cleanup_free char *arguments = cli_query(query, NULL);
    cleanup_free char *path = xasprintf("/v1/audit%s", arguments);
    cleanup_json json_t *page = NULL;
    int code = cli_call(client, "GET", path, NULL, &page);
    if (code != EXIT_OK)
      return code;
    json_t *more = json_object_get(page, "items"), *next = json_object_get(page, "next");
    json_array_extend(items, more);
    left = json_is_string(next) && json_array_size(more) < left ? left - json_array_size(more) : 0;
    json_object_set(query, "after", next);
  }
  *ret_items = TAKE(items);
  return EXIT_OK;
}

static int command_audit(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = audit_load(options, &items);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    cli_print_json(items);
    return EXIT_OK;
  }

  const struct table_column columns[] = {{"at", false},    {"token", false},  {"role", false},
                                         {"peer", false},  {"action", false}, {"object", false},
                                         {"detail", false}};
  static const char *const members[] = {"at", "token", "role", "peer", "action", "object"};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    cleanup_free char *detail = json_dumps(json_object_get(item, "detail"), JSON_COMPACT);
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
      table_cell(table, "%s", cli_member(item, members[i]));
    table_cell(table, "%s", detail ? detail : "");
  }
  table_print(table, stdout);
  return EXIT_OK;
}

static const struct option_spec audit_options[] = {
    {.name = "since",
     .type = OPTION_TEXT,
     .argument = "TIME",
     .flag_only = true,
     .help = "only from this time on, like 2026-01-31T12:00:00Z, or of the last 12h or 7d"},
    {.name = "by",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .flag_only = true,
     .help = "only what this token wrote"},
    {.name = "action",
     .type = OPTION_TEXT,
     .argument = "WORD",
     .flag_only = true,
     .help = "only this, like submit or move"},
    {.name = "object",
     .type = OPTION_TEXT,
     .argument = "ID",
     .flag_only = true,
     .help = "only what was written of this job, channel, digest, agent or token"},
    {.name = "limit",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "100",
     .min = 1,
     .max = 1000000,
     .flag_only = true,
     .help = "at most so many rows, the newest"},
    SERVER_OPTIONS,
};

const struct command_spec spec_audit = {
    .name = "audit",
    .arguments = "",
    .summary = "list which token wrote what, newest first",
    .options = audit_options,
    .n_options = ARRAY_LENGTH(audit_options),
    .run = command_audit,
};
