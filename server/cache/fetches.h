/* Which tokens fetched which releases, by which requests and how often: noted in memory and stored
 * about every minute, so that an operator sees what a release is served to, and a release that is
 * in use is never collected.
 *
 * What several servers note is added up. A server that is killed loses what it noted since it
 * stored last, one that is stopped that of its last answers. Where it cannot know whether that was
 * stored, it may be counted twice.
 *
 * Memory: a server owns its fetches, FETCHES_MAX at most. Threads: any; the lock is held for
 * constant time. */
#ifndef WAVETUNE_SERVER_CACHE_FETCHES_H
#define WAVETUNE_SERVER_CACHE_FETCHES_H

#include "common/record/record.h"
#include "server/http/request.h"

/* Different fetches between two writes; half as many are written at once. Further ones are only
 * counted as left out. */
#define FETCHES_MAX 4096
/* Rows of a release that are kept: those that were fetched last. */
#define FETCHERS_MAX 1000

struct noted_fetch {
  struct digest release;
  enum fetch_kind kind;
  char *channel; /* NULL: requested by its digest; `rule` is then -1 */
  enum cache_rule rule;
  char *fetched_by;      /* the token's name; NULL with FETCH_NONE */
  int64_t fetched_by_id; /* the token's id */
  int64_t requests;
  int64_t first_ms, last_ms; /* by clock_monotonic_ms */
  uint16_t next;             /* in its bucket, counted from 1; 0: none */
};
struct fetch_batch {
  size_t n;
  struct noted_fetch all[FETCHES_MAX];
  uint16_t buckets[FETCHES_MAX];
  uint64_t left_out; /* requests beyond FETCHES_MAX */
};
void fetch_batch_free(struct fetch_batch *batch);

struct fetches;
must_check struct fetches *fetches_new(void);
void fetches_free(struct fetches *fetches);
struct fetches *server_fetches(const struct server *server);

/* Notes that a release was made: it counts as used, but no request fetched it. */
void fetches_made(struct fetches *fetches, const struct digest *release);

/* Notes what the request is about to be answered with, unless the web page, in which a person looks
 * at it, sent the request; a cached answer keeps it. */
void fetches_note(struct request *request, const struct fetch *fetch);

/* For response_cache_new: notes a request that was answered from the cache. */
void fetches_of_cached(void *fetches, const struct fetch *fetch, int64_t token_id,
                       const char *token_name);

/* Everything that was noted since the last call; the caller's. NULL: nothing. */
must_check struct fetch_batch *fetches_take(struct fetches *fetches);
/* Notes again what could not be stored. */
void fetches_return(struct fetches *fetches, const struct fetch_batch *batch);

/* Stores what was noted, before its time: when the server ends. The housekeeper's. */
void fetches_write(struct worker *worker);
/* Stores what was noted about every minute. The housekeeper's. */
void fetches_housekeep(struct worker *worker);

extern const struct record listed_fetch_record;

#endif
