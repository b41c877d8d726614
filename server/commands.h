/* What the commands of wavetune-server share: waiting for the end, starting to serve, tokens.
 *
 * Threads: main's. */
#ifndef WAVETUNE_SERVER_COMMANDS_H
#define WAVETUNE_SERVER_COMMANDS_H

#include "common/program/options.h"
#include "server/server.h"

/* Says on stderr, in the log's format, why the command failed; returns `code`. */
int command_failed(enum exit_code code, const struct error *error);

/* SIGTERM, SIGINT and the signal `also` wait in every thread that is started from now on, for
 * signals_wait. */
void signals_block(int also);
/* Returns the signal. */
int signals_wait(int also);

/* Options of every command that serves. */
/* clang-format off */
#define SERVE_OPTIONS \
  {"publisher-key", OPTION_LIST, "FILE|FOLDER", NULL, 0, 0, \
   "public key of a publisher; then channels take only entries that one signed", false}, \
  {"listen", OPTION_TEXT, "ADDRESS", "127.0.0.1", 0, 0, \
   "numeric address to listen on; 0.0.0.0 or :: for all", false}, \
  {"port", OPTION_INTEGER, "PORT", "7200", 0, 65535, "0: any free one", false}, \
  {"workers", OPTION_INTEGER, "N", "4", 1, 256, "database workers, a connection each", false}, \
  {"database-timeout-ms", OPTION_INTEGER, "MS", "30000", 100, 600000, \
   "what the database may take for a request before it is answered 503", false}, \
  {"event-threads", OPTION_INTEGER, "N", "2", 1, 64, \
   "threads that read and answer requests", false}, \
  {"lease-ms", OPTION_INTEGER, "MS", "30000", 100, 3600000, \
   "how long a lease lasts without renewal", false}, \
  {"lease-target-ms", OPTION_INTEGER, "MS", "10000", 1, 3600000, \
   "predicted device time of the configs in a lease", false}, \
  {"heartbeat-ms", OPTION_INTEGER, "MS", "5000", 100, 600000, \
   "how often agents say that they live", false}, \
  {"poll-ms", OPTION_INTEGER, "MS", "1000", 10, 60000, \
   "how often waiting requests look again by themselves", false}, \
  {"demand", OPTION_TEXT, "POLICY", "suggest", 0, 0, \
   "what becomes of keys that deployments miss: off, suggest or automatic (jobs for " \
   "them)", false}, \
  {"demand-per-hour", OPTION_INTEGER, "N", "60", 1, 100000, \
   "jobs an hour that --demand automatic queues at the most", false}, \
  {"require-enrolment", OPTION_FLAG, NULL, NULL, 0, 0, \
   "take only agents that enrolled with a token of the role enrol and have tokens of their " \
   "own", false}, \
  {"agent-token-days", OPTION_INTEGER, "DAYS", "30", 0, 3650, \
   "how long an agent's own token lives; the agent replaces it in time; 0: for ever", false}, \
  {"agent-token-ms", OPTION_INTEGER, "MS", "0", 0, 315360000000, \
   "the same in milliseconds, for tests; 0: --agent-token-days", false}, \
  {"queue-max", OPTION_INTEGER, "N", "10000", 1, 1000000, \
   "waiting requests beyond which 503 is answered", false}, \
  OPTION_LOG_FORMAT, \
  {"log-requests", OPTION_TEXT, "WHICH", "errors", 0, 0, \
   "which requests get a line in the log: off, errors (answered 5xx, or after a second and more " \
   "of work) or all", false}
/* clang-format on */

/* From SERVE_OPTIONS; texts are borrowed from `options` and `database`. */
must_check bool serve_options(const struct options *options, const char *database,
                              struct server_options *ret, struct error *error);

/* Runs all migrations, and gives a role (NULL: none) what serving needs; logs what it applied.
 * EXIT_UNREACHABLE: the database is away; EXIT_FAILED: it is refused. */
must_check enum exit_code migrate_database(const char *database, const char *serve_role,
                                           int *ret_applied, struct error *error);

/* "http://127.0.0.1:7200" or "https://…", the caller's: an address that listens everywhere is shown
 * as one that can be called. */
must_check char *server_url(const struct server *server);

int dev_run(struct options *options);

#endif
