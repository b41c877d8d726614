/* The coordinator: its options, shared state and threads.
 *
 * Threads: `event_threads` of libmicrohttpd parse and authorise requests and answer from caches;
 * `workers`, each with a database connection, run handlers; one housekeeper expires leases, writes
 * heartbeats and polls; one thread renders choices before they are requested; one follows the
 * policy. They share queues,
 * caches and tables that have locks. Memory: a server owns everything; server_start makes it,
 * server_stop ends and frees it. */
#ifndef WAVETUNE_SERVER_SERVER_H
#define WAVETUNE_SERVER_SERVER_H

#include "common/base/error.h"
#include "server/http/limits.h"

/* How the server treats keys that deployments report as missing (server/demand/demand.h). */
enum demand_policy { DEMAND_OFF, DEMAND_SUGGEST, DEMAND_AUTOMATIC };

/* Which requests get a line in the log. */
enum request_log { REQUEST_LOG_OFF, REQUEST_LOG_ERRORS, REQUEST_LOG_ALL };
/* "off", "errors", "all". */
must_check bool request_log_parse(const char *name, enum request_log *ret_log);

struct server_options {
  /* Files of public keys, and folders of such files; a channel's entry needs a signature by one of
   * them. Read by server_start and not kept. */
  size_t n_publisher_keys;
  const char *const *publisher_keys;
  /* TOKEN/IMAGE: containers with both share compiled code (remote/remote.h). Copied. */
  size_t n_remote_shares;
  const char *const *remote_shares;
  int64_t remote_bytes; /* how much compiled code the containers of a token may store */

  /* PEM files, read again when they change; NULL: none. See http/tls.h. */
  const char *tls_certificate, *tls_key, *tls_client_ca;
  /* Addresses and networks of proxies that may forward their clients' addresses and certificates.
   * Read by server_start and not kept. */
  size_t n_trusted_proxies;
  const char *const *trusted_proxies;

  const char
      *oidc; /* file of identity providers (oidc/rules.h); NULL: none. Read again on SIGHUP */

  /* user:NAME=TOKEN, group:NAME=TOKEN: as which token a user acts whom a trusted proxy signed in
   * (http/sign_in.h). Read by server_start and not kept. */
  size_t n_sign_in;
  const char *const *sign_in;
  const char *sign_in_secret, *sign_in_user_header, *sign_in_groups_header;

  const char *listen;   /* "127.0.0.1" */
  int port;             /* 0: any free one, see server_port */
  const char *database; /* libpq connection string */
  bool migrate; /* apply missing migrations when the database answers; not ready until then */
  int workers;  /* database workers, default 12 */
  int64_t database_timeout_ms; /* how long a request may use the database, default 30000 */
  int event_threads;           /* default 2 */
  int64_t lease_ms;            /* default 30000 */
  int64_t lease_target_ms;     /* predicted device time of the configs in a screen lease, default
                                  10000 */
  int64_t heartbeat_ms;        /* default 5000 */
  int64_t poll_ms; /* how often parked requests run again without a wake-up, default 1000 */
  enum demand_policy demand;
  int64_t captures_per_day; /* launches that a token may post, default 10000 */
  int64_t capture_days;     /* how long captures are kept after they were last seen, default 90 */
  int64_t demand_per_hour;  /* most jobs that DEMAND_AUTOMATIC queues in an hour, default 60 */
  bool require_enrolment;   /* refuse agents that do not have their own tokens */
  int64_t agent_token_ms;   /* lifetime of an agent's own token, 0: unlimited; default 30 days */
  int64_t end_idle_s;       /* idle transactions of other programs are ended after this; 0: never */
  int64_t keep_days; /* older measurements, and what is not needed, are removed daily; 0: never */
  int64_t queue_max; /* most requests that wait; further ones are answered 503; default 10000 */
  enum request_log log_requests;
  /* How long clients may take for the head of a request and, with what body_rate allows for its
   * bytes, for its body (http/deadlines.h). */
  int64_t head_timeout_ms, body_timeout_ms; /* default 30000 */
  int64_t body_rate;                        /* bytes a second, default 16384 */
  /* In all, and of strangers of an address (http/connections.h). */
  int64_t connections, connections_per_address;
  int64_t limits[LIMIT_COUNT]; /* of each token; 0: none */
  int64_t bodies_bytes;        /* memory for the bodies of open requests (http/bodies.h) */
  int64_t unused_file_days;    /* how long files are kept that nothing names; 0: for ever */
};

/* An agent that has sent no heartbeat for this long is lost: three intervals, and time to store the
 * heartbeats. */
static inline int64_t agent_live_ms(const struct server_options *options) {
  return 3 * options->heartbeat_ms + 2000;
}

struct server;

/* What keeps PostgreSQL from removing dead rows, as last read (server/health/). */
#define HOT_TABLES(TABLE) TABLE(agents) TABLE(jobs) TABLE(leases) TABLE(measurements)
enum hot_table {
#define X(table) HOT_TABLE_##table,
  HOT_TABLES(X)
#undef X
      HOT_TABLE_COUNT
};
#define IDLE_SESSIONS_MAX 8
struct database_health {
  int64_t dead_rows[HOT_TABLE_COUNT];
  int64_t xmin_age;      /* transactions since the oldest one that vacuum respects */
  double longest_idle_s; /* of a transaction that vacuum respects; 0: none is idle */
  size_t n_sessions;     /* that have been idle for long, the longest first */
  struct idle_session {
    int64_t pid;
    char application[64], role[64];
    double idle_s;
  } sessions[IDLE_SESSIONS_MAX];
};

/* The leases of the database, as last counted (lease/lease_counts.c). */
struct lease_counts {
  int64_t read_ms; /* by clock_monotonic_ms; 0: not yet */
  int64_t open, held;
  double oldest_open_s, oldest_held_s; /* 0: there is none */
};

/* The housekeeper's duties for leases, by clock_monotonic_ms; 0: not yet. */
struct lease_clock {
  int64_t looked_ms;  /* when it last checked the clock */
  int64_t resumed_ms; /* when it noticed that the process had paused */
  /* When each is due; shares_ms: shares_housekeep. */
  int64_t expire_ms, expire_all_ms, survey_ms, sweep_ms, count_ms, end_ms, shares_ms;
  /* From when on searches look for leases that are due: those that were due earlier are not held
   * any more, or are found by searches of all held ones. 0: not known yet. */
  int64_t due_since_ms;
  bool has_ahead; /* how far the database's clock is ahead of this one: at least and at most */
  int64_t ahead_least_ms, ahead_most_ms;
  bool must_shorten; /* leases, because that clock was stepped back */
};

/* The context of a handler: the server and this worker's connection. */
struct db;
struct worker {
  struct server *server;
  struct db *db;
  uint64_t wake_generation;       /* taken before the handler runs; see request_park */
  struct lease_clock lease_clock; /* the housekeeper's */
  int64_t files_due_ms;           /* the housekeeper's: when files_housekeep is due */
};

must_check bool server_start(const struct server_options *options, struct server **ret_server,
                             struct error *error);
/* Accepts no more connections, answers every parked and queued request with 503, joins the threads
 * and frees the server. */
void server_stop(struct server *server);
/* Reads the files of --tls-… and --oidc again; logs the result. */
void server_reload(struct server *server);
int server_port(const struct server *server);
bool server_has_tls(const struct server *server);
const struct server_options *server_options(const struct server *server);

/* Whether the schema has this program's version and the database answered recently: the answer of
 * /readyz. Any thread. */
bool server_is_ready(const struct server *server);

/* The secret that makes the ids of leases (lease/identity.h) and of agents with certificates
 * (http/tokens.h), of SERVER_SECRET_SIZE bytes; NULL until it is read, before the server is
 * ready. */
#define SERVER_SECRET_SIZE 32
const uint8_t *server_lease_secret(const struct server *server);

/* The publishers' public keys; none: a channel's entry needs no signature. Read-only after the
 * start. */
struct trusted_keys;
const struct trusted_keys *server_publisher_keys(const struct server *server);

/* Heartbeats in memory (server/agent/agents.h). */
struct agent_table;
struct agent_table *server_agents(struct server *server);
/* The summary of the fleet (server/fleet/fleet.h). */
struct fleet;
struct fleet *server_fleet(struct server *server);
/* The next request makes a new summary: an operator changed what it says. */
void fleet_changed(struct fleet *fleet);
/* The same for an enrolment, but at most once a second: after an outage a whole fleet enrols. */
void fleet_enrolled(struct fleet *fleet);
/* Sets the text that /metrics appends; takes it over. */
void server_set_fleet_metrics(struct server *server, char *text);

/* Sets the number of live agents, those of all servers together, for /metrics. */
void server_set_live_agents(struct server *server, size_t n);

/* Set what /metrics and /readyz state of PostgreSQL and of the leases in it. */
void server_set_database_health(struct server *server, const struct database_health *health);
void server_set_lease_counts(struct server *server, const struct lease_counts *counts);

/* Wakes at most `most` requests that are parked under `key` (request_park), the longest parked
 * first. Any thread. */
void park_wake(struct server *server, const char *key, size_t most);

/* The duties of the housekeeper's thread, which calls each about every 250 ms or as its table
 * states, with its own connection. Each logs its failures and is called again. */
void leases_housekeep(struct worker *worker); /* expires leases */
void shares_housekeep(struct worker *worker); /* what owners of jobs used (lease/shares.h) */
void agents_look_up(struct worker *worker);   /* reads agents that enrolled with another server */
void agents_housekeep(struct worker *worker); /* writes heartbeats, finds lost agents */
/* Drops cached answers after another server moved a channel. */
void channels_housekeep(struct worker *worker);
void tokens_housekeep(struct worker *worker);   /* reads tokens that other servers changed */
void demand_housekeep(struct worker *worker);   /* makes jobs for reported misses (--demand) */
void captures_housekeep(struct worker *worker); /* removes old captures */
void remote_housekeep(struct worker *worker);   /* removes compiled code that is no longer used */
void files_housekeep(struct worker *worker);    /* removes files that nothing names */
void fetches_housekeep(struct worker *worker);  /* writes which releases were fetched */
void health_housekeep(struct worker *worker);   /* ends idle transactions, reads their effects */
void fleet_housekeep(struct worker *worker);    /* reads the fleet's gauges */

#endif
