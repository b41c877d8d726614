/* wavetune-server: serve, dev, migrate, token. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/program/options.h"
#include "server/choice/choices.h"
#include "server/db/migrate.h"
#include "server/demand/demand.h"
#include "server/http/http.h"
#include "server/http/tokens.h"
#include "server/main/cluster.h"
#include "server/main/start.h"
#include "server/token/tokens.h"

#define DEV_TOKEN_NAME "dev"

DEFINE_CLEANUP(struct db *, cleanup_db_free, db_free)
#define cleanup_db __attribute__((cleanup(cleanup_db_free)))

/* Writes to stderr, in the log's format, why the command failed; returns `code`. */
static int command_failed(enum exit_code code, const struct error *error) {
  if (log_format_now() == LOG_FORMAT_JSON)
    log_error("%s", error->message);
  else
    fprintf(stderr, "wavetune-server: %s\n", error->message);
  return code;
}

/* The signals that end a server, and `also`. */
static sigset_t signals_of(int also) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, also);
  return set;
}

/* Blocks the signals in this thread and in those that it starts, for signals_wait. */
static void signals_block(int also) {
  sigset_t set = signals_of(also);
  ALWAYS(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
  signal(SIGPIPE, SIG_IGN);
}

static int signals_wait(int also) {
  sigset_t set = signals_of(also);
  int signal_number = 0;
  ALWAYS(sigwait(&set, &signal_number) == 0);
  return signal_number;
}

#define DATABASE_OPTION                                                                            \
  {"database", OPTION_TEXT, "CONNINFO", .help = "libpq connection string or postgresql:// URI"}
#define JSON_OPTION {"json", OPTION_FLAG, .help = "answer in JSON"}

#define LIMIT_OPTION(id, name, fallback, most, noun, help)                                         \
  {name, OPTION_INTEGER, "N", fallback, 0, most, help},

/* Options of every command that serves. */
/* clang-format off */
#define SERVE_OPTIONS \
  {"publisher-key", OPTION_LIST, "FILE|FOLDER", \
   .help = "public key of a publisher; with one, the server accepts only entries of channels, " \
           "and signatures over choices, that one of these keys signed"}, \
  {"oidc", OPTION_TEXT, "FILE", \
   .help = \
   "identity providers whose tokens are accepted, such as CI systems', and which roles their " \
   "claims give (JSON; docs/ci.md)"}, \
  {"listen", OPTION_TEXT, "ADDRESS", "127.0.0.1", \
   .help = "numeric address to listen on; 0.0.0.0 or :: for all"}, \
  {"port", OPTION_INTEGER, "PORT", "7200", 0, 65535, "0: any free one"}, \
  {"workers", OPTION_INTEGER, "N", "12", 1, 256, \
   "database workers, a connection each: so many commits can wait for the disk together"}, \
  {"database-timeout-ms", OPTION_INTEGER, "MS", "30000", 100, 600000, \
   "how long a request may use the database before it is answered 503"}, \
  {"event-threads", OPTION_INTEGER, "N", "2", 1, 64, "threads that read and answer requests"}, \
  {"lease-ms", OPTION_INTEGER, "MS", "30000", 100, 3600000, \
   "how long a lease lasts without renewal"}, \
  {"lease-target-ms", OPTION_INTEGER, "MS", "10000", 1, 3600000, \
   "predicted device time of the configs in a lease"}, \
  {"heartbeat-ms", OPTION_INTEGER, "MS", "5000", 100, 600000, \
   "how often agents send a heartbeat"}, \
  {"poll-ms", OPTION_INTEGER, "MS", "1000", 10, 60000, \
   "how often long polls query the database without a wake-up"}, \
  {"demand", OPTION_TEXT, "POLICY", "suggest", \
   .help = \
   "what to do with keys that deployments miss: off, or suggest (list them)"}, \
  {"captures-per-day", OPTION_INTEGER, "N", "10000", 0, 10000000, \
   "how many new launches the programs of one token may record in a day"}, \
  {"capture-days", OPTION_INTEGER, "DAYS", "90", 1, 3650, \
   "how long recorded launches are kept after a program last had them"}, \
  {"remote-share", OPTION_LIST, "TOKEN/IMAGE", \
   .help = \
   "serve compiled code that a container wrote, and configs that its autotuners found, to " \
   "containers with the same token and image; they must trust each other"}, \
  {"remote-mib", OPTION_INTEGER, "MIB", "1024", 0, 1048576, \
   "how much compiled code the containers of one token may store"}, \
  {"require-enrolment", OPTION_FLAG, \
   .help = \
   "accept only agents that enrolled with a token of the role enrol and have their own token"}, \
  {"agent-token-days", OPTION_INTEGER, "DAYS", "30", 0, 3650, \
   "lifetime of an agent's own token, which the agent replaces in time; 0: unlimited"}, \
  {"agent-token-ms", OPTION_INTEGER, "MS", "0", 0, 315360000000, \
   "the same in milliseconds, for tests; 0: --agent-token-days"}, \
  {"end-idle-transactions", OPTION_INTEGER, "SECONDS", "0", 0, 86400, \
   "end other programs' database sessions that have been idle in a transaction for this long and " \
   "keep PostgreSQL from removing dead rows; 0: never"}, \
  {"keep-days", OPTION_INTEGER, "DAYS", "0", 0, 36500, \
   "once a day remove the measurements of jobs that ended more than DAYS days ago, and what " \
   "\"wavetune gc\" removes; 0: never"}, \
  {"queue-max", OPTION_INTEGER, "N", "10000", 1, 1000000, \
   "how many requests may wait; further ones are answered 503"}, \
  {"head-timeout-ms", OPTION_INTEGER, "MS", "30000", 100, 600000, \
   "how long a client may take to send the head of a request"}, \
  {"body-timeout-ms", OPTION_INTEGER, "MS", "30000", 100, 600000, \
   "how long a client may take to send a body, besides its bytes at --body-rate"}, \
  {"body-rate", OPTION_INTEGER, "BYTES", "16384", 1, 1073741824, \
   "bytes a second that a body must arrive, and an answer be read, at least"}, \
  {"connections", OPTION_INTEGER, "N", "16384", 16, 1048576, \
   "how many connections may be open; those without a token may have three quarters"}, \
  {"connections-per-address", OPTION_INTEGER, "N", "2048", 1, 1048576, \
   "how many connections without a token one address may have, unless it is a trusted proxy's"}, \
  {"bodies-mib", OPTION_INTEGER, "MIB", "1024", 128, 1048576, \
   "how much memory the bodies of requests, and the JSON values made of them, may take together"}, \
  LIMITS(LIMIT_OPTION) \
  {"unused-file-days", OPTION_INTEGER, "DAYS", "7", 0, 36500, \
   "after how long a stored file that no kernel, build or measurement names is removed; " \
   "0: never"}, \
  OPTION_LOG_FORMAT, \
  {"log-requests", OPTION_TEXT, "WHICH", "errors", \
   .help = \
   "which requests are logged: off, errors (answered 5xx, or after a second or more of work) " \
   "or all"}
/* clang-format on */

/* From SERVE_OPTIONS; texts are borrowed. */
static bool serve_options(const struct options *options, const char *database,
                          struct server_options *ret, struct error *error) {
  const char *demand_name = option_text(options, "demand");
  enum demand_policy demand;
  int64_t token_ms = option_integer(options, "agent-token-ms");
  if (string_equal(demand_name, "automatic"))
    return error_set(error,
                     "--demand automatic is a policy now: start with --demand suggest, and with a "
                     "submitter's token run `wavetune policy set --mode automatic --owner '*' "
                     "--jobs-per-hour 60 --run ''`");
  if (!demand_policy_parse(demand_name, &demand))
    return error_set(error, "--demand \"%.32s\" is unknown: it must be off or suggest",
                     demand_name);

  enum request_log log_requests;
  if (!request_log_parse(option_text(options, "log-requests"), &log_requests))
    return error_set(error, "--log-requests \"%.32s\" is unknown: it must be off, errors or all",
                     option_text(options, "log-requests"));

  *ret = (struct server_options){
      .listen = option_text(options, "listen"),
      .port = (int)option_integer(options, "port"),
      .database = database,
      .workers = (int)option_integer(options, "workers"),
      .database_timeout_ms = option_integer(options, "database-timeout-ms"),
      .event_threads = (int)option_integer(options, "event-threads"),
      .lease_ms = option_integer(options, "lease-ms"),
      .lease_target_ms = option_integer(options, "lease-target-ms"),
      .heartbeat_ms = option_integer(options, "heartbeat-ms"),
      .poll_ms = option_integer(options, "poll-ms"),
      .demand = demand,
      .remote_bytes = option_integer(options, "remote-mib") * MIB,
      .captures_per_day = option_integer(options, "captures-per-day"),
      .capture_days = option_integer(options, "capture-days"),
      .require_enrolment = option_flag(options, "require-enrolment"),
      .agent_token_ms =
          token_ms ? token_ms : option_integer(options, "agent-token-days") * 24 * 60 * 60 * 1000,
      .end_idle_s = option_integer(options, "end-idle-transactions"),
      .keep_days = option_integer(options, "keep-days"),
      .queue_max = option_integer(options, "queue-max"),
      .log_requests = log_requests,
      .head_timeout_ms = option_integer(options, "head-timeout-ms"),
      .body_timeout_ms = option_integer(options, "body-timeout-ms"),
      .body_rate = option_integer(options, "body-rate"),
      .connections = option_integer(options, "connections"),
      .connections_per_address = option_integer(options, "connections-per-address"),
  };

#define X(id, name, ...) ret->limits[LIMIT_##id] = option_integer(options, name);
  LIMITS(X)
#undef X

  ret->oidc = option_text(options, "oidc");
  ret->bodies_bytes = option_integer(options, "bodies-mib") * MIB;
  ret->unused_file_days = option_integer(options, "unused-file-days");
  ret->n_remote_shares = option_list(options, "remote-share", &ret->remote_shares);
  ret->n_publisher_keys = option_list(options, "publisher-key", &ret->publisher_keys);
  return true;
}

/* Applies the migrations and grants a role (NULL: none) the rights to serve. EXIT_UNREACHABLE: the
 * database is away; EXIT_FAILED: it refuses. */
static enum exit_code migrate_database(const char *database, const char *serve_role,
                                       int *ret_applied, struct error *error) {
  cleanup_migrations struct migrations *migrations = NULL;
  int64_t version;
  if (!migrations_load(&migrations, error))
    return EXIT_USAGE;

  cleanup_db struct db *db = db_new(database, "wavetune-server migrate");
  if (!migrate_version(db, &version, error))
    return error->kind == ERROR_UNAVAILABLE || error->kind == ERROR_DEADLINE ? EXIT_UNREACHABLE
                                                                             : EXIT_FAILED;

  bool is_good = migrate(db, migrations, ret_applied, error) &&
                 (!serve_role || migrate_grant(db, serve_role, error));
  return is_good ? EXIT_OK : EXIT_FAILED;
}

/* "http://127.0.0.1:7200" or "https://…", the caller's. 0.0.0.0 and :: become the local address,
 * which a client can call. */
static char *server_url(const struct server *server) {
  const char *address = server_options(server)->listen;
  if (string_equal(address, "0.0.0.0"))
    address = "127.0.0.1";
  if (string_equal(address, "::"))
    address = "::1";
  bool is_six = strchr(address, ':') != NULL;
  return xasprintf("http%s://%s%s%s:%d", http_has_tls(server_http(server)) ? "s" : "",
                   is_six ? "[" : "", address, is_six ? "]" : "", http_port(server_http(server)));
}

static char *dev_folder(void) {
  if (geteuid() == 0)
    return xstrdup("/var/lib/wavetune-dev");
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  if (data && *data == '/')
    return xasprintf("%s/wavetune/dev", data);
  return home && *home == '/' ? xasprintf("%s/.local/share/wavetune/dev", home)
                              : xstrdup("./wavetune-dev");
}

static void json_print(const json_t *value) {
  json_dumpf(value, stdout, JSON_COMPACT);
  putchar('\n');
}

/* Reads the token in DIR/token; when it is not live, makes a new one. */
static bool token_ensure(struct db *db, const char *folder, char token[TOKEN_TEXT_SIZE],
                         struct error *error) {
  cleanup_free char *path = xasprintf("%s/token", folder), *text = NULL;
  size_t size, n;
  struct error unread;
  if (file_read(path, 1024, &text, &size, &unread) && size >= TOKEN_TEXT_SIZE - 1) {
    struct auth_token found;
    snprintf(token, TOKEN_TEXT_SIZE, "%s", text);
    struct digest digest = digest_of(token, strlen(token));
    if (!tokens_find(db, &digest, 1, &found, &n, error))
      return false;
    if (n > 0 && !found.is_expired)
      return true;
  }

  struct token_request request;
  token_request_init(&request);
  request.name = DEV_TOKEN_NAME;
  request.role = "admin";
  if ((!tokens_revoke(db, DEV_TOKEN_NAME, true, &author_command_line, error) &&
       error->kind != ERROR_MISSING) ||
      !tokens_make(db, &request, &author_command_line, token, error))
    return false;

  cleanup_free char *line = xasprintf("%s\n", token);
  return file_write_atomically(path, line, strlen(line), 0600, error);
}

/* Serves until a signal arrives or PostgreSQL ends. */
static int dev_serve(const struct options *options, struct cluster *cluster, const char *folder,
                     struct error *error) {
  cleanup_free char *maintenance = cluster_conninfo(cluster, "postgres"),
                    *database = cluster_conninfo(cluster, "wavetune");
  struct server_options server_options;
  char token[TOKEN_TEXT_SIZE];
  struct server *server;
  int applied;
  if (!serve_options(options, database, &server_options, error) ||
      !database_ensure(maintenance, error) ||
      migrate_database(database, NULL, &applied, error) != EXIT_OK)
    return EXIT_USAGE;

  cleanup_db struct db *db = db_new(database, "wavetune-server dev");
  if (!token_ensure(db, folder, token, error) || !server_start(&server_options, &server, error))
    return EXIT_USAGE;
  db_free(TAKE(db)); /* no idle connection while it serves */

  cleanup_free char *url = server_url(server);
  cleanup_json json_t *facts = json_pack("{s:s, s:s, s:s, s:s}", "url", url, "token", token,
                                         "folder", folder, "database", database);
  if (option_flag(options, "json"))
    json_print(facts);
  else
    printf("url %s\ntoken %s\nfolder %s\ndatabase %s\n", url, token, folder, database);
  fflush(stdout);

  int ended_by;
  do
    ended_by = signals_wait(SIGCHLD);
  while (ended_by == SIGCHLD && !cluster_has_ended(cluster));
  server_stop(server);
  if (ended_by != SIGCHLD)
    return EXIT_OK;

  error_set(error, "PostgreSQL ended by itself; the reason is in %s. Start again: the data is kept",
            cluster_log_path(cluster));
  return EXIT_INTERNAL;
}

static int dev_run(struct options *options) {
  struct error error;
  const char *given = option_text(options, "folder");
  cleanup_free char *folder = given ? xstrdup(given) : dev_folder();
  char resolved[PATH_MAX]; /* for PostgreSQL: absolute, without links */
  struct cluster *cluster;

  signals_block(SIGCHLD);
  if (!folder_make(folder, 0755, &error))
    return command_failed(EXIT_USAGE, &error);
  if (!realpath(folder, resolved)) {
    error_set(&error, "cannot resolve %s: %s", folder, strerror(errno));
    return command_failed(EXIT_USAGE, &error);
  }

  if (!cluster_start(resolved, option_text(options, "postgres-bin"), option_text(options, "user"),
                     &cluster, &error))
    return command_failed(EXIT_USAGE, &error);

  int code = dev_serve(options, cluster, resolved, &error);
  cluster_stop(cluster);
  return code == EXIT_OK ? code : command_failed((enum exit_code)code, &error);
}

/* The connection string of --database. */
static bool database_of(const struct options *options, const char **ret_database,
                        struct error *error) {
  *ret_database = option_text(options, "database");
  if (!*ret_database)
    return error_set(
        error, "no database is named: give --database or WAVETUNE_DATABASE, for example "
               "\"host=/run/postgresql dbname=wavetune\"; \"wavetune-server dev\" makes its own");
  return database_check(*ret_database, error);
}

static int serve_run(struct options *options) {
  struct error error;
  const char *database;
  struct server *server;
  struct server_options server_options;

  signals_block(SIGHUP);
  if (!database_of(options, &database, &error) ||
      !serve_options(options, database, &server_options, &error))
    return command_failed(EXIT_USAGE, &error);

  server_options.migrate = option_flag(options, "migrate");
  server_options.tls_certificate = option_text(options, "tls-certificate");
  server_options.tls_key = option_text(options, "tls-key");
  server_options.tls_client_ca = option_text(options, "tls-client-ca");
  server_options.n_trusted_proxies =
      option_list(options, "trusted-proxy", &server_options.trusted_proxies);
  server_options.n_sign_in = option_list(options, "sign-in", &server_options.sign_in);
  server_options.sign_in_secret = option_text(options, "sign-in-secret");
  server_options.sign_in_user_header = option_text(options, "sign-in-user-header");
  server_options.sign_in_groups_header = option_text(options, "sign-in-groups-header");
  if (!server_start(&server_options, &server, &error))
    return command_failed(EXIT_USAGE, &error);

  cleanup_free char *url = server_url(server);
  if (log_format_now() == LOG_FORMAT_JSON)
    log_info("server: listening url=%s", url); /* stdout and stderr may go to one log of objects */
  else
    printf("listening on %s\n", url);
  fflush(stdout);
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

static bool database_open(const struct options *options, struct db **ret_db, struct error *error) {
  const char *database;
  if (!database_of(options, &database, error))
    return false;
  *ret_db = db_new(database, "wavetune-server token");
  return true;
}

/* The token's name: the one positional argument. `is_new`: not an identity's, either. */
static bool name_of(const struct options *options, bool is_new, const char **ret_name,
                    struct error *error) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != 1)
    return error_set(error, "give the token's name as the only argument");
  if (!token_name_is_good(arguments[0]) && (is_new || !strchr(arguments[0], ':')))
    return error_set(error, "a token's name is 1 to 64 of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"");
  *ret_name = arguments[0];
  return true;
}

static int token_make(struct options *options) {
  struct error error;
  cleanup_db struct db *db = NULL;
  const char *name, *environment = option_text(options, "environment"),
                    *role = option_text(options, "role");
  bool as_json = option_flag(options, "json");
  cleanup_token_request struct token_request request = {0};
  char token[TOKEN_TEXT_SIZE];
  cleanup_json json_t *environment_json = NULL;

  if (!database_open(options, &db, &error) || !name_of(options, true, &name, &error) ||
      (environment && !json_parse(environment, strlen(environment), &environment_json, &error)))
    return command_failed(EXIT_USAGE, &error);

  cleanup_json json_t *body =
      json_pack("{s:s, s:s, s:s*, s:s*, s:s*, s:O*, s:o*}", "name", name, "role", role, "expires",
                option_text(options, "expires"), "agent_name", option_text(options, "agent-name"),
                "certificate", option_text(options, "certificate"), "environment", environment_json,
                "channels", option_list_json(options, "channel"));
  ALWAYS(body != NULL);
  if (option_integer(options, "uses"))
    json_put(body, "uses", json_integer(option_integer(options, "uses")));
  if (!token_request_parse(body, &request, &error))
    return command_failed(EXIT_USAGE, &error);
  if (!tokens_make(db, &request, &author_command_line, token, &error))
    return command_failed(error.kind == ERROR_CONFLICT ? EXIT_REFUSED : EXIT_UNREACHABLE, &error);

  const char *made = request.certificate ? request.certificate : token;
  cleanup_json json_t *answer =
      json_pack("{s:s, s:s, s:s}", request.certificate ? "certificate" : "token", made, "name",
                name, "role", role);
  if (as_json)
    json_print(answer);
  else
    printf("%s\n", made);
  return EXIT_OK;
}

static int token_revoke(struct options *options) {
  struct error error;
  cleanup_db struct db *db = NULL;
  const char *name;
  if (!database_open(options, &db, &error) || !name_of(options, false, &name, &error))
    return command_failed(EXIT_USAGE, &error);

  /* The last admin token may be revoked too: this command can make another one. */
  if (!tokens_revoke(db, name, true, &author_command_line, &error))
    return command_failed(error.kind == ERROR_MISSING ? EXIT_REFUSED : EXIT_UNREACHABLE, &error);
  return EXIT_OK;
}

static const char *text_of(const json_t *item, const char *name) {
  return json_string_value(json_object_get(item, name));
}

static int token_list(struct options *options) {
  struct error error;
  cleanup_db struct db *db = NULL;
  cleanup_json json_t *all = NULL;

  if (!database_open(options, &db, &error))
    return command_failed(EXIT_USAGE, &error);
  if (!tokens_list(db, &all, &error))
    return command_failed(EXIT_UNREACHABLE, &error);

  if (option_flag(options, "json")) {
    json_print(all);
    return EXIT_OK;
  }

  size_t i;
  json_t *item;
  json_array_foreach (all, i, item) {
    const json_t *uses = json_object_get(item, "uses_left");
    cleanup_free char *channels = json_texts_join(json_object_get(item, "channels"), ",");
    printf("%-32s %-10s %s", text_of(item, "name"), text_of(item, "role"),
           text_of(item, "created_at"));
    if (*channels)
      printf("  channels %s", channels);
    if (text_of(item, "issuer"))
      printf("  identity of %s", text_of(item, "issuer"));
    if (text_of(item, "agent"))
      printf("  agent %s", text_of(item, "agent"));
    if (json_is_integer(uses))
      printf("  %" JSON_INTEGER_FORMAT " uses left", json_integer_value(uses));
    if (text_of(item, "revoked_at"))
      printf("  revoked %s", text_of(item, "revoked_at"));
    else if (text_of(item, "expires_at"))
      printf("  expires %s", text_of(item, "expires_at"));
    putchar('\n');
  }

  return EXIT_OK;
}

static const struct option_spec serve_specs[] = {
    DATABASE_OPTION,
    SERVE_OPTIONS,
    {"tls-certificate", OPTION_TEXT, "FILE",
     .help = "serve https:// with this certificate and its issuers (PEM); files of --tls-… are "
             "read again when they change"},
    {"tls-key", OPTION_TEXT, "FILE", .help = "the certificate's private key (PEM)"},
    {"tls-client-ca", OPTION_TEXT, "FILE",
     .help = "authorities (PEM) of client certificates, which agents may use instead of tokens"},
    {"trusted-proxy", OPTION_LIST, "ADDRESS",
     .help = "address or network of a proxy whose X-Client-Cert, X-Forwarded-For and "
             "X-Forwarded-Proto are trusted"},
    {"sign-in", OPTION_LIST, "RULE",
     .help = "user:NAME=TOKEN or group:NAME=TOKEN: a user whom a trusted proxy signed in acts as "
             "the token of this name; NAME may be a pattern, the first rule that fits counts"},
    {"sign-in-secret", OPTION_TEXT, "FILE",
     .help = "file with what the proxy sends as X-Wavetune-Proxy when it states a user"},
    {"sign-in-user-header", OPTION_TEXT, "NAME", "X-Forwarded-User",
     .help = "the header in which the proxy states the user"},
    {"sign-in-groups-header", OPTION_TEXT, "NAME", "X-Forwarded-Groups",
     .help = "the header in which it states the user's groups, separated by commas"},
    {"migrate", OPTION_FLAG, .help = "apply missing migrations once the database answers"},
};
static const struct option_spec dev_specs[] = {
    {"folder", OPTION_TEXT, "DIR",
     .help = "folder of the database, its log and the token (default: ~/.local/share/wavetune/dev, "
             "for root /var/lib/wavetune-dev)",
     .flag_only = true},
    SERVE_OPTIONS,
    {"user", OPTION_TEXT, "NAME", "postgres",
     .help = "the user that PostgreSQL runs as when root starts this", .flag_only = true},
    {"postgres-bin", OPTION_TEXT, "DIR",
     .help = "folder of initdb and postgres (default: searched for)", .flag_only = true},
    {"json", OPTION_FLAG, .help = "print one JSON object when it is ready"},
};
static const struct option_spec database_specs[] = {DATABASE_OPTION, JSON_OPTION};
static const struct option_spec migrate_specs[] = {
    DATABASE_OPTION,
    {"serve-role", OPTION_TEXT, "NAME",
     .help = "the database role that servers connect as, if it is not the owner: it gets only the "
             "rights that serving needs"},
    JSON_OPTION,
    OPTION_LOG_FORMAT,
};
static const struct option_spec token_make_specs[] = {
    DATABASE_OPTION,
    {"role", OPTION_TEXT, "ROLE", "reader",
     .help = "its roles, separated by commas: reader, demand, cache-writer, submitter, builder, "
             "publisher, agent, enrol, operator or admin",
     .flag_only = true},
    {"channel", OPTION_LIST, "NAME",
     .help =
         "of the role publisher: a channel that it may move, or a pattern like 'test-*'; may be "
         "repeated",
     .flag_only = true},
    {"expires", OPTION_TEXT, "TIME", .help = "how long it is valid, like 7d or 12h, or until when",
     .flag_only = true},
    {"uses", OPTION_INTEGER, "N", "0", 0, TOKEN_USES_MAX,
     "of the role enrol: how many agents it enrols (0: one)", .flag_only = true},
    {"agent-name", OPTION_TEXT, "PATTERN",
     .help = "of the role enrol: pattern of the agents' names, like 'mi300-*'", .flag_only = true},
    {"certificate", OPTION_TEXT, "NAME",
     .help = "of the role agent: the name of the client certificate to use instead of a token",
     .flag_only = true},
    {"environment", OPTION_TEXT, "JSON",
     .help =
         "of the role enrol: members of the environment that each device of the agents must have",
     .flag_only = true},
    JSON_OPTION,
};

static const struct command_spec commands[] = {
    {"serve", "", "serve the API from a PostgreSQL database",
     "Any number of servers may share one database. SIGTERM ends it after all answers are sent; "
     "SIGHUP reads the files of --tls-certificate, --tls-key, --tls-client-ca and --oidc again at "
     "once.",
     serve_specs, ARRAY_LENGTH(serve_specs), serve_run, true},
    {"dev", "", "serve from a private PostgreSQL in a folder",
     "Makes a PostgreSQL cluster in the folder, or uses the one in it; migrates it, serves, and "
     "prints the URL and an admin token. Ctrl-C stops both; no data is lost.",
     dev_specs, ARRAY_LENGTH(dev_specs), dev_run, true},
    {"migrate", "", "bring the database to the version of this program",
     "Safe to run twice and from several machines at once.", migrate_specs,
     ARRAY_LENGTH(migrate_specs), migrate_run},
    {"token make", "NAME", "make a token and print it, once", NULL, token_make_specs,
     ARRAY_LENGTH(token_make_specs), token_make},
    {"token list", "", "list the tokens, live and revoked", NULL, database_specs,
     ARRAY_LENGTH(database_specs), token_list},
    {"token revoke", "NAME", "revoke a token; servers refuse it within seconds", NULL,
     database_specs, ARRAY_LENGTH(database_specs), token_revoke},
};

int main(int argc, char **argv) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return commands_run("wavetune-server",
                      "The coordinator: jobs, leases, results, winners and releases over HTTP.",
                      commands, ARRAY_LENGTH(commands), argc, argv);
}
