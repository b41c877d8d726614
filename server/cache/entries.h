/* The entries of channels as they are read: all of a tag and regime, the one that a query means,
 * and the one for a starting container (GET /v1/cache). server/channel/ writes them.
 *
 * Memory: the caller releases rows, lookups and served entries. Threads: channel_etag and
 * channel_row_state are pure; the others belong to a database worker. */
#ifndef WAVETUNE_SERVER_CACHE_ENTRIES_H
#define WAVETUNE_SERVER_CACHE_ENTRIES_H

#include "common/cache/signatures.h"
#include "server/cache/cache_rules.h"
#include "server/cache/fetches.h"
#include "server/db/db.h"
#include "server/http/request.h"

/* The state of a (channel, environment, tag, regime); counter 0: it has no entry yet. `signings`
 * grows with every signature that is added after a move. */
struct channel_state {
  int64_t counter;
  struct digest release;
  int64_t signings;
};

/* The entity tag of that state, without quotes: "4.1-" and the release's 64 hex digits. */
#define CHANNEL_ETAG_SIZE (2 * 20 + 1 + 2 * DIGEST_SIZE + 1)
char *channel_etag(const struct channel_state *state, char text[CHANNEL_ETAG_SIZE]);

struct channel_row {
  int64_t id;
  struct channel_entry entry; /* counter 0: no entry yet */
  int64_t signings;
};
struct channel_rows {
  size_t n;
  struct channel_row *all;
};
void channel_rows_release(struct channel_rows *rows);
#define cleanup_channel_rows __attribute__((cleanup(channel_rows_release)))
struct channel_state channel_row_state(const struct channel_row *row);
/* Reads and frees the rows of a statement with the columns of a row. False: they are NULL. */
must_check bool channel_rows_read(struct db_rows *rows, struct channel_rows *ret);
/* The rows of a channel, tag and regime, in the order in which they were made. */
must_check bool channel_rows_of_tag(struct db *db, const char *name, const char *tag,
                                    enum regime regime, struct channel_rows *ret,
                                    struct error *error);

/* A query for an entry, and its result. */
struct channel_lookup {
  struct environment asked;
  struct channel_rows rows;
  struct compatibilities declared;
  struct cache_resolved resolved;
  bool may_be_none; /* the caller answers when no entry fits; sets is_none */
  bool is_none;
};
void channel_lookup_release(struct channel_lookup *lookup);
#define cleanup_channel_lookup __attribute__((cleanup(channel_lookup_release)))

/* Finds the row that the query's tag, regime and environment members mean, by the rules of
 * cache_rules.h up to `widest`. NULL: *error says why not; 404 names the nearest environment, 422
 * lists those that fit. */
const struct channel_row *channel_row_look_up(struct worker *worker, struct request *request,
                                              const char *channel, enum cache_rule widest,
                                              struct channel_lookup *lookup, struct error *error);

/* Answers with an entry, which is cached until a channel moves or a compatibility is declared.
 * Takes over `entry`. */
void entry_answer_cached(struct request *request, json_t *entry, const char *etag,
                         const char *match);

/* The entry for a starting program: the one that the request's query means (GET /v1/cache). */
struct served_entry {
  json_t *answer; /* the entry and "match", how it was found; NULL: there is no entry */
  char *why;      /* why there is none, with the nearest environment; NULL: there is one */
  char *match;    /* the header Wavetune-Match */
  char etag[CHANNEL_ETAG_SIZE];
  struct fetch fetch; /* its kind is the caller's to set */
};
/* False: the query is wrong, or there is no entry and not may_be_none. */
must_check bool served_entry_find(struct worker *worker, struct request *request, bool may_be_none,
                                  struct served_entry *ret, struct error *error);
void served_entry_release(struct served_entry *served);
#define cleanup_served_entry __attribute__((cleanup(served_entry_release)))

#endif
