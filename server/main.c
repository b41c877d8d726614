/* wavetune-server: serve, migrate, token, dev. Main thread; everything is freed before it
 * returns. */
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/log.h"
#include "server/commands.h"
#include "server/db/migrate.h"
#include "server/token/tokens.h"

#define DATABASE_OPTION                                                                            \
  {                                                                                                \
      "database",                                                                                  \
      OPTION_TEXT,                                                                                 \
      "CONNINFO",                                                                                  \
      NULL,                                                                                        \
      0,                                                                                           \
      0,                                                                                           \
      "libpq connection string or postgresql:// URI",                                              \
      false}
#define JSON_OPTION {"json", OPTION_FLAG, NULL, NULL, 0, 0, "answer in JSON", false}

/* The connection string; an error when there is none or it is none. */
static bool database_of(const struct options *options, const char **ret_database,
                        struct error *error) {
  *ret_database = option_text(options, "database");
  if (!*ret_database)
    return error_set(
        error, "which database? give --database or WAVETUNE_DATABASE, for example "
               "\"host=/run/postgresql dbname=wavetune\"; \"wavetune-server dev\" brings its own");
  return database_check(*ret_database, error);
}

static int serve_run(struct options *options) {
  struct error error;
  const char *database;
  struct server *server;
  if (!database_of(options, &database, &error))
    return command_failed(EXIT_USAGE, &error);
  signals_block(SIGHUP);
  struct server_options server_options;
  if (!serve_options(options, database, &server_options, &error))
    return command_failed(EXIT_USAGE, &error);
  server_options.migrate = option_flag(options, "migrate");
  server_options.tls_certificate = option_text(options, "tls-certificate");
  server_options.tls_key = option_text(options, "tls-key");
  server_options.tls_client_ca = option_text(options, "tls-client-ca");
  server_options.n_trusted_proxies =
      option_list(options, "trusted-proxy", &server_options.trusted_proxies);
  if (!server_start(&server_options, &server, &error))
    return command_failed(EXIT_USAGE, &error);
  cleanup_free char *url = server_url(server);
  if (log_format_now() ==
      LOG_FORMAT_JSON) { /* in one log with stdout every line shall be an object */
    log_info("server: listening url=%s", url);
  } else {
    printf("listening on %s\n", url);
    fflush(stdout);
  }
  while (signals_wait(SIGHUP) == SIGHUP)
    server_reload(server);
  server_stop(server);
  return EXIT_OK;
}

static int migrate_run(struct options *options) {
  struct error error;
  const char *database;
  int applied;
  if (!database_of(options, &database, &error))
    return command_failed(EXIT_USAGE, &error);
  enum exit_code code =
      migrate_database(database, option_text(options, "serve-role"), &applied, &error);
  if (code != EXIT_OK)
    return command_failed(code, &error);
  printf(option_flag(options, "json") ? "{\"applied\":%d}\n" : "%d migrations applied\n", applied);
  return EXIT_OK;
}

/* The one positional argument. */
static bool name_of(const struct options *options, const char **ret_name, struct error *error) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != 1)
    return error_set(error, "give the token's name, and nothing else");
  if (!token_name_is_good(arguments[0]))
    return error_set(error, "a token's name is 1 to 64 of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"");
  *ret_name = arguments[0];
  return true;
}

static int token_make_with(struct db *db, const struct options *options) {
  struct error error;
  const char *name, *environment = option_text(options, "environment");
  cleanup_token_request struct token_request asked = {0};
  char token[TOKEN_TEXT_SIZE];
  cleanup_json json_t *environment_json = NULL;
  if (!name_of(options, &name, &error) ||
      (environment && !json_parse(environment, strlen(environment), &environment_json, &error)))
    return command_failed(EXIT_USAGE, &error);
  cleanup_json json_t *body = json_pack(
      "{s:s, s:s, s:s*, s:s*, s:s*, s:O*, s:o*}", "name", name, "role",
      option_text(options, "role"), "expires", option_text(options, "expires"), "agent_name",
      option_text(options, "agent-name"), "certificate", option_text(options, "certificate"),
      "environment", environment_json, "channels", option_list_json(options, "channel"));
  ALWAYS(body != NULL);
  if (option_integer(options, "uses"))
    json_object_set_new(body, "uses", json_integer(option_integer(options, "uses")));
  if (!token_request_parse(body, &asked, &error))
    return command_failed(EXIT_USAGE, &error);
  if (!tokens_make(db, &asked, &author_command_line, token, &error))
    return command_failed(error.kind == ERROR_CONFLICT ? EXIT_REFUSED : EXIT_UNREACHABLE, &error);
  if (asked.certificate) {
    cleanup_json json_t *answer = json_pack("{s:s, s:s, s:s}", "certificate", asked.certificate,
                                            "name", name, "role", option_text(options, "role"));
    cleanup_free char *line = json_dumps(answer, JSON_COMPACT);
    printf("%s\n", option_flag(options, "json") ? line : asked.certificate);
    return EXIT_OK;
  }
  printf(option_flag(options, "json") ? "{\"token\":\"%s\",\"name\":\"%s\",\"role\":\"%s\"}\n"
                                      : "%s\n",
         token, name, option_text(options, "role"));
  return EXIT_OK;
}

static int token_revoke_with(struct db *db, const struct options *options) {
  struct error error;
  const char *name;
  if (!name_of(options, &name, &error))
    return command_failed(EXIT_USAGE, &error);
  /* Also the last admin: who has the database can make another. */
  if (!tokens_revoke(db, name, true, &author_command_line, &error))
    return command_failed(error.kind == ERROR_MISSING ? EXIT_REFUSED : EXIT_UNREACHABLE, &error);
  return EXIT_OK;
}

static void token_print(const json_t *item) {
  const char *revoked_at = json_string_value(json_object_get(item, "revoked_at"));
  const char *expires_at = json_string_value(json_object_get(item, "expires_at"));
  const char *agent = json_string_value(json_object_get(item, "agent"));
  const json_t *uses = json_object_get(item, "uses_left");
  cleanup_free char *channels = json_texts_join(json_object_get(item, "channels"), ",");
  printf("%-32s %-10s %s", json_string_value(json_object_get(item, "name")),
         json_string_value(json_object_get(item, "role")),
         json_string_value(json_object_get(item, "created_at")));
  if (*channels)
    printf("  channels %s", channels);
  if (agent)
    printf("  agent %s", agent);
  if (json_is_integer(uses))
    printf("  %" JSON_INTEGER_FORMAT " uses left", json_integer_value(uses));
  if (revoked_at)
    printf("  revoked %s", revoked_at);
  else if (expires_at)
    printf("  expires %s", expires_at);
  putchar('\n');
}

static int token_list_with(struct db *db, const struct options *options) {
  struct error error;
  cleanup_json json_t *all = json_array();
  int64_t after = 0;
  do {
    cleanup_json json_t *items = NULL;
    if (!tokens_list(db, after, 1000, &items, &after, &error))
      return command_failed(EXIT_UNREACHABLE, &error);
    json_array_extend(all, items);
  } while (after);
  if (option_flag(options, "json")) {
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    return EXIT_OK;
  }
  size_t i;
  json_t *item;
  json_array_foreach (all, i, item)
    token_print(item);
  return EXIT_OK;
}

static int with_database(const struct options *options,
                         int (*run)(struct db *, const struct options *)) {
  struct error error;
  const char *database;
  if (!database_of(options, &database, &error))
    return command_failed(EXIT_USAGE, &error);
  struct db *db = db_new(database, "wavetune-server token");
  int code = run(db, options);
  db_free(db);
  return code;
}

static int token_make_run(struct options *options) {
  return with_database(options, token_make_with);
}
static int token_list_run(struct options *options) {
  return with_database(options, token_list_with);
}
static int token_revoke_run(struct options *options) {
  return with_database(options, token_revoke_with);
}

static const struct option_spec serve_specs[] = {
    DATABASE_OPTION,
    SERVE_OPTIONS,
    {"tls-certificate", OPTION_TEXT, "FILE", NULL, 0, 0,
     "speak https:// with this certificate and its issuers (PEM); files of --tls-… are read again "
     "when they change",
     false},
    {"tls-key", OPTION_TEXT, "FILE", NULL, 0, 0, "the certificate's private key (PEM)", false},
    {"tls-client-ca", OPTION_TEXT, "FILE", NULL, 0, 0,
     "authorities (PEM) of client certificates, which may stand for agents' tokens", false},
    {"trusted-proxy", OPTION_LIST, "ADDRESS", NULL, 0, 0,
     "address or network of a proxy whose X-Client-Cert, X-Forwarded-For and X-Forwarded-Proto are "
     "believed",
     false},
    {"migrate", OPTION_FLAG, NULL, NULL, 0, 0,
     "apply missing migrations when the database is there", false},
};
static const struct option_spec dev_specs[] = {
    {"folder", OPTION_TEXT, "DIR", NULL, 0, 0,
     "where it keeps everything (default: ~/.local/share/wavetune/dev, for root "
     "/var/lib/wavetune-dev)",
     true},
    SERVE_OPTIONS,
    {"user", OPTION_TEXT, "NAME", "postgres", 0, 0,
     "whom PostgreSQL runs as when this is run by root", true},
    {"postgres-bin", OPTION_TEXT, "DIR", NULL, 0, 0,
     "where initdb and postgres are (default: found)", true},
    {"json", OPTION_FLAG, NULL, NULL, 0, 0, "print one JSON object when it is ready", false},
};
static const struct option_spec database_specs[] = {DATABASE_OPTION, JSON_OPTION};
static const struct option_spec migrate_specs[] = {
    DATABASE_OPTION,
    {"serve-role", OPTION_TEXT, "NAME", NULL, 0, 0,
     "the database role that servers connect as, if not as the owner: gets what serving needs and "
     "no more",
     false},
    JSON_OPTION,
    OPTION_LOG_FORMAT,
};
static const struct option_spec token_make_specs[] = {
    DATABASE_OPTION,
    {"role", OPTION_TEXT, "ROLE", "reader", 0, 0,
     "what it is for, several with a comma between: reader, demand, cache-writer, submitter, "
     "builder, publisher, "
     "agent, enrol, operator or admin",
     true},
    {"channel", OPTION_LIST, "NAME", NULL, 0, 0,
     "of the role publisher: a channel that it moves, or a pattern like 'test-*'; again for more",
     true},
    {"expires", OPTION_TEXT, "TIME", NULL, 0, 0,
     "how long it is good for, like 7d or 12h, or until when", true},
    {"uses", OPTION_INTEGER, "N", "0", 0, TOKEN_USES_MAX,
     "of the role enrol: how many agents it enrols (0: one)", true},
    {"agent-name", OPTION_TEXT, "PATTERN", NULL, 0, 0,
     "of the role enrol: agents' names, like 'mi300-*'", true},
    {"certificate", OPTION_TEXT, "NAME", NULL, 0, 0,
     "of the role agent: make no token; the client certificate with this name stands for it", true},
    {"environment", OPTION_TEXT, "JSON", NULL, 0, 0,
     "of the role enrol: what all devices of the agents have", true},
    JSON_OPTION,
};

static const struct command_spec commands[] = {
    {"serve", "", "serve the API from a PostgreSQL database",
     "Any number of servers may share one database. SIGTERM ends it after all answers were given; "
     "SIGHUP reads the "
     "files of "
     "--tls-certificate, --tls-key and --tls-client-ca at once.",
     serve_specs, ARRAY_LENGTH(serve_specs), serve_run},
    {"dev", "", "serve from a private PostgreSQL in a folder",
     "Makes a PostgreSQL cluster in the folder, or goes on with the one that is there; migrates "
     "it, serves, and prints "
     "the "
     "URL and an admin token. Ctrl-C stops both; nothing is lost.",
     dev_specs, ARRAY_LENGTH(dev_specs), dev_run},
    {"migrate", "", "bring the database to the version of this program",
     "Safe to run twice and from several machines at once.", migrate_specs,
     ARRAY_LENGTH(migrate_specs), migrate_run},
    {"token make", "NAME", "make a token and print it, once", NULL, token_make_specs,
     ARRAY_LENGTH(token_make_specs), token_make_run},
    {"token list", "", "list the tokens, live and revoked", NULL, database_specs,
     ARRAY_LENGTH(database_specs), token_list_run},
    {"token revoke", "NAME", "revoke a token: servers see it within seconds", NULL, database_specs,
     ARRAY_LENGTH(database_specs), token_revoke_run},
};

int main(int argc, char **argv) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return commands_run("wavetune-server",
                      "The coordinator: jobs, leases, results, winners and releases over HTTP.",
                      commands, ARRAY_LENGTH(commands), argc, argv);
}
