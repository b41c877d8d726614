/* Limits of what one token may send and have, so that one client does not take what all share.
 *
 * Tokens of operators and admins have none. Requests are counted in memory, by each server for
 * itself; the rest is counted in the database, and requests at the same time may exceed it by what
 * they add. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_LIMITS_H
#define WAVETUNE_SERVER_HTTP_LIMITS_H

#include "common/base/error.h"

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

#define LIMIT_BURST_S 5 /* how many seconds' requests may come at once */

struct author;
struct server;
/* 0: there is none for this author. */
int64_t limit_of(const struct server *server, const struct author *author, enum limit limit);
/* False, with a sentence of the kind ERROR_RATE that names the limit and its option, when `n` is
 * more than the author's limit. */
must_check bool limit_check(const struct server *server, const struct author *author,
                            enum limit limit, int64_t n, struct error *error);

/* The requests of tokens: a bucket for each. */
struct request_rates;
must_check struct request_rates *request_rates_new(void);
void request_rates_free(struct request_rates *rates);
must_check bool request_rates_take(struct request_rates *rates, int64_t token, int64_t now_ms,
                                   int64_t per_second);

/* Counts a request of the request's token; when it sends too many, answers 429, which is held
 * (deadlines.h). */
struct request;
must_check bool request_may_run(struct request *request);

#endif
