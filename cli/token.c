/* wavetune token make|list|revoke: who may call the server. */
#include "cli/cli.h"

#define USES_MAX 1000000

static int command_token_make(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error,
              "name the token after who it is for: wavetune token make ci --role submitter");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  const char *environment_text = option_text(options, "environment");
  cleanup_json json_t *environment = NULL, *answer = NULL;
  if (environment_text &&
      !json_parse(environment_text, strlen(environment_text), &environment, &error)) {
    error_prefix(&error, "--environment: ");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_json json_t *body = json_pack(
      "{s:s, s:s, s:s*, s:s*, s:s*, s:O*, s:o*}", "name", arguments[0], "role",
      option_text(options, "role"), "expires", option_text(options, "expires"), "agent_name",
      option_text(options, "agent-name"), "certificate", option_text(options, "certificate"),
      "environment", environment, "channels", option_list_json(options, "channel"));
  if (option_integer(options, "uses"))
    json_object_set_new(body, "uses", json_integer(option_integer(options, "uses")));
  int code = cli_call(client, "POST", "/v1/tokens", body, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("%s\n",
           cli_member(answer, option_text(options, "certificate") ? "certificate" : "token"));
  return EXIT_OK;
}

static int command_token_list(struct options *options) {
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/tokens", &items);
  if (!items)
    return code;
  size_t index;
  json_t *item;
  json_array_foreach (items, index, item) {
    const char *revoked = cli_member(item, "revoked_at"), *expires = cli_member(item, "expires_at");
    const char *agent = cli_member(item, "agent"), *pattern = cli_member(item, "agent_name");
    const json_t *uses = json_object_get(item, "uses_left");
    printf("%-24s %-10s made %s", cli_member(item, "name"), cli_member(item, "role"),
           cli_member(item, "created_at"));
    if (cli_member(item, "made_by")[0])
      printf(" by %s", cli_member(item, "made_by"));
    if (agent[0])
      printf(", agent %s", agent);
    if (json_is_integer(uses))
      printf(", %" JSON_INTEGER_FORMAT " uses left", json_integer_value(uses));
    if (pattern[0])
      printf(", for %s", pattern);
    cleanup_free char *channels = json_texts_join(json_object_get(item, "channels"), ",");
    if (*channels)
      printf(", channels %s", channels);
    if (revoked[0] || expires[0])
      printf(", %s %s", revoked[0] ? "revoked" : "expires", revoked[0] ? revoked : expires);
    putchar('\n');
  }
  return EXIT_OK;
}

static int command_token_revoke(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name one token, as `wavetune token list` prints it");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_free char *escaped = http_escape(arguments[0]);
  cleanup_free char *path = xasprintf("/v1/tokens/%s", escaped);
  cleanup_json json_t *none = NULL;
  int code = cli_call(client, "DELETE", path, NULL, &none);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:s}", "revoked", arguments[0]);
    cli_print_json(answer);
  } else {
    printf("revoked %s\n", arguments[0]);
  }
  return EXIT_OK;
}

static const struct option_spec make_options[] = {
    {.name = "role",
     .type = OPTION_TEXT,
     .argument = "ROLE",
     .default_text = "reader",
     .help = "what it is for, several with a comma between: reader, demand, cache-writer, "
             "submitter, builder, "
             "publisher, agent, enrol, operator or admin",
     .flag_only = true},
    {.name = "channel",
     .type = OPTION_LIST,
     .argument = "NAME",
     .help = "of the role publisher: a channel that it moves, or a pattern like 'test-*'; again "
             "for more",
     .flag_only = true},
    {.name = "expires",
     .type = OPTION_TEXT,
     .argument = "TIME",
     .help = "how long it is good for, like 7d or 12h, or until when",
     .flag_only = true},
    {.name = "uses",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .max = USES_MAX,
     .help = "of the role enrol: how many agents it enrols (0: one)",
     .flag_only = true},
    {.name = "agent-name",
     .type = OPTION_TEXT,
     .argument = "PATTERN",
     .help = "of the role enrol: agents' names, like 'mi300-*'",
     .flag_only = true},
    {.name = "certificate",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .help =
         "of the role agent: make no token; the client certificate with this name stands for it",
     .flag_only = true},
    {.name = "environment",
     .type = OPTION_TEXT,
     .argument = "JSON",
     .help = "of the role enrol: what all devices of the agents have",
     .flag_only = true},
    SERVER_OPTIONS,
};
static const struct option_spec server_options[] = {SERVER_OPTIONS};

const struct command_spec spec_token_make = {
    .name = "token make",
    .arguments = "NAME",
    .summary = "make a token; it is shown once",
    .options = make_options,
    .n_options = ARRAY_LENGTH(make_options),
    .run = command_token_make,
};
const struct command_spec spec_token_list = {
    .name = "token list",
    .arguments = "",
    .summary = "list tokens by name and role",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_token_list,
};
const struct command_spec spec_token_revoke = {
    .name = "token revoke",
    .arguments = "NAME",
    .summary = "revoke a token",
    .options = server_options,
    .n_options = ARRAY_LENGTH(server_options),
    .run = command_token_revoke,
};
