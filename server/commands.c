/* Shared by serve, migrate, token and dev. Main thread. */
#include "server/commands.h"

#include <signal.h>

#include "common/base/log.h"
#include "server/db/migrate.h"
#include "server/demand/demand.h"
#include "server/http/metrics.h"

int command_failed(enum exit_code code, const struct error *error) {
  if (log_format_now() == LOG_FORMAT_JSON)
    log_error("%s", error->message);
  else
    fprintf(stderr, "wavetune-server: %s\n", error->message);
  return code;
}

static sigset_t ends(int also) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (also)
    sigaddset(&set, also);
  return set;
}

void signals_block(int also) {
  sigset_t set = ends(also);
  ALWAYS(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
  signal(SIGPIPE, SIG_IGN);
}

int signals_wait(int also) {
  sigset_t set = ends(also);
  int signal_number = 0;
  ALWAYS(sigwait(&set, &signal_number) == 0);
  return signal_number;
}

bool serve_options(const struct options *options, const char *database, struct server_options *ret,
                   struct error *error) {
  enum demand_policy demand;
  if (!demand_policy_parse(option_text(options, "demand"), &demand))
    return error_set(error, "--demand \"%.32s\" is unknown: it must be off, suggest or automatic",
                     option_text(options, "demand"));
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
      .demand_per_hour = option_integer(options, "demand-per-hour"),
      .require_enrolment = option_flag(options, "require-enrolment"),
      .agent_token_ms = option_integer(options, "agent-token-ms")
                            ? option_integer(options, "agent-token-ms")
                            : option_integer(options, "agent-token-days") * 24 * 60 * 60 * 1000,
      .queue_max = option_integer(options, "queue-max"),
      .log_requests = log_requests,
  };
  ret->n_publisher_keys = option_list(options, "publisher-key", &ret->publisher_keys);
  return true;
}

enum exit_code migrate_database(const char *database, const char *serve_role, int *ret_applied,
                                struct error *error) {
  cleanup_migrations struct migrations *migrations = NULL;
  enum exit_code code = EXIT_OK;
  int64_t version;
  if (!migrations_load(&migrations, error))
    return EXIT_USAGE;
  struct db *db = db_new(database, "wavetune-server migrate");
  if (!migrate_version(db, &version, error))
    code = error->kind == ERROR_UNAVAILABLE || error->kind == ERROR_DEADLINE ? EXIT_UNREACHABLE
                                                                             : EXIT_FAILED;
  else if (!migrate(db, migrations, ret_applied, error) ||
           (serve_role && !migrate_grant(db, serve_role, error)))
    code = EXIT_FAILED;
  db_free(db);
  return code;
}

char *server_url(const struct server *server) {
  const char *address = server_options(server)->listen;
  if (string_equal(address, "0.0.0.0"))
    address = "127.0.0.1";
  if (string_equal(address, "::"))
    address = "::1";
  bool is_six = strchr(address, ':') != NULL;
  return xasprintf("http%s://%s%s%s:%d", server_has_tls(server) ? "s" : "", is_six ? "[" : "",
                   address, is_six ? "]" : "", server_port(server));
}
