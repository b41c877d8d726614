/* wavetune token make|list|revoke: who may call the server. */
#include "cli/cli.h"

static int command_token_make(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1) {
    error_set(&error, "name the token after who it is for: wavetune token make ci --role submitter");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *body = json_pack("{s:s, s:s}", "name", arguments[0], "role", option_text(options, "role")),
                      *answer = NULL;
  int code = cli_call(client, "POST", "/v1/tokens", body, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("%s\n", cli_member(answer, "token"));
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
    const char *revoked = cli_member(item, "revoked_at");
    printf("%-24s %-10s made %s%s%s\n", cli_member(item, "name"), cli_member(item, "role"),
           cli_member(item, "created_at"), revoked[0] ? ", revoked " : "", revoked);
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
     .help = "reader, submitter, agent, demand or admin",
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
