/* The options of `wavetune-server serve`, and the limits of tokens (http/limits.h) among them.
 *
 * Memory: texts and lists are main's, which ends after the server. Threads: any, read-only. */
#ifndef WAVETUNE_SERVER_OPTIONS_H
#define WAVETUNE_SERVER_OPTIONS_H

#include "common/base/base.h"

/* LIMIT(id, option, default, most, noun, help) */
/* clang-format off */
#define LIMITS(LIMIT) \
  LIMIT(REQUESTS, "token-requests", "1000", 1000000, "requests a second", \
        "how many requests of one token a second may use the database, and five times as many at " \
        "once; 0: no limit. No limit of --token-… applies to operators and admins") \
  LIMIT(FILES, "token-files-mib", "16384", 1073741824, "MiB of stored files", \
        "how many MiB of files (/v1/blobs) of one token may be stored; each counts 4 KiB more") \
  LIMIT(AGENTS, "token-agents", "1024", 1000000, "agents a day", \
        "how many agents one token of the role agent may have enrolled that were live within a " \
        "day") \
  LIMIT(DEVICES, "token-devices", "8192", 100000000, "devices of its agents", \
        "how many devices these agents may have together") \
  LIMIT(OPEN_JOBS, "token-open-jobs", "50000", 1000000000, "open jobs", \
        "how many jobs of one token may be queued or running")
/* clang-format on */

enum limit {
#define X(id, ...) LIMIT_##id,
  LIMITS(X)
#undef X
      LIMIT_COUNT
};

/* How the server treats keys that deployments report as missing (server/demand/demand.h). */
enum demand_policy { DEMAND_OFF, DEMAND_SUGGEST };

/* Which requests get a line in the log. */
enum request_log { REQUEST_LOG_OFF, REQUEST_LOG_ERRORS, REQUEST_LOG_ALL };
/* "off", "errors", "all". */
must_check bool request_log_parse(const char *name, enum request_log *ret_log);

struct server_options {
  /* Files of public keys, and folders of such files; a channel's entry needs a signature by one of
   * them. */
  size_t n_publisher_keys;
  const char *const *publisher_keys;
  /* TOKEN/IMAGE: containers with both share compiled code (remote/remote.h). */
  size_t n_remote_shares;
  const char *const *remote_shares;
  int64_t remote_bytes; /* how much compiled code the containers of a token may store */

  /* PEM files, read again when they change; NULL: none. See http/tls.h. */
  const char *tls_certificate, *tls_key, *tls_client_ca;
  /* Addresses and networks of proxies that may forward their clients' addresses and certificates.
   */
  size_t n_trusted_proxies;
  const char *const *trusted_proxies;

  const char
      *oidc; /* file of identity providers (oidc/rules.h); NULL: none. Read again on SIGHUP */

  /* user:NAME=TOKEN, group:NAME=TOKEN: as which token a user acts whom a trusted proxy signed in
   * (http/sign_in.h). */
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

#endif
