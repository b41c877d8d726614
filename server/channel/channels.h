/* Channels: what a move or one more signature does to the row it finds, and the rows, which are
 * changed by compare-and-set.
 *
 * Memory: results are the caller's. Threads: decisions are pure functions; the rest has its
 * thread's db. */
#ifndef WAVETUNE_SERVER_CHANNEL_CHANNELS_H
#define WAVETUNE_SERVER_CHANNEL_CHANNELS_H

#include "common/cache/channel_entry.h"
#include "server/audit/audit.h"

/* Decisions */

/* Where a (channel, environment, tag, regime) is; counter 0: no entry yet. `signings` grows with
 * every signature that is added after a move. */
struct channel_state {
  int64_t counter;
  struct digest release;
  int64_t signings;
};

/* The entity tag of that state, without quotes: "4.1-" and the release's 64 hex digits. */
#define CHANNEL_ETAG_SIZE (2 * 20 + 1 + 2 * DIGEST_SIZE + 1)
char *channel_etag(const struct channel_state *state, char text[CHANNEL_ETAG_SIZE]);

/* If-Match (a list of strong tags, or *) and If-None-Match (only *), either NULL. Refuses what
 * cannot be understood: a precondition that is ignored would move a channel that somebody else just
 * moved. */
must_check bool channel_precondition_check(const char *if_match, const char *if_none_match,
                                           struct error *error);

/* The body of PUT /v1/channels/{name}. */
struct channel_move {
  struct digest release;
  int64_t counter;   /* that the entry is to have; 0: the next one */
  int64_t expires_s; /* 0: never */
  struct channel_signatures signatures;
};
extern const struct record channel_move_record;
must_check bool channel_move_parse(const json_t *json, struct channel_move *ret,
                                   struct error *error);

enum channel_decision {
  CHANNEL_KEEP,   /* it is there already: a repeated request, whatever its precondition (RFC
                     9110, 13.1.1) */
  CHANNEL_MOVE,   /* from exactly this state */
  CHANNEL_REFUSE, /* the precondition or the counter does not hold */
};
/* `entry` is what is there; not read when the state's counter is 0. A move that names its counter
 * is there already when the entry has that counter and says the same, with its signatures among
 * others; one that names none, when the entry has its release and expiry. */
must_check enum channel_decision channel_decide(const struct channel_state *state,
                                                const struct channel_entry *entry,
                                                const struct channel_move *wanted,
                                                const char *if_match, const char *if_none_match);

/* The body of POST /v1/channels/{name}/signatures. */
struct channel_signing {
  struct environment environment;
  char *tag;
  enum regime regime;
  int64_t counter;
  struct channel_signature signature;
};
extern const struct record channel_signing_record;
must_check bool channel_signing_parse(const json_t *json, struct channel_signing *ret,
                                      struct error *error);
void channel_signing_release(struct channel_signing *signing);
#define cleanup_channel_signing __attribute__((cleanup(channel_signing_release)))

enum signing_decision {
  SIGNING_KEEP, /* the entry has this signature */
  SIGNING_ADD,
  SIGNING_ELSEWHERE, /* the entry has another counter */
  SIGNING_FULL,      /* CHANNEL_SIGNATURES_MAX others are there */
};
must_check enum signing_decision channel_signing_decide(const struct channel_entry *entry,
                                                        const struct channel_signing *signing);

/* Rows */

struct channel_row {
  int64_t id;                 /* what pages go on from */
  struct channel_entry entry; /* counter 0: no entry yet */
  int64_t signings;
};
struct channel_rows {
  size_t n;
  struct channel_row *all;
};
void channel_rows_release(struct channel_rows *rows);
#define cleanup_channel_rows __attribute__((cleanup(channel_rows_release)))

static inline struct channel_state channel_row_state(const struct channel_row *row) {
  return (struct channel_state){row->entry.counter, row->entry.release, row->signings};
}

/* The rows of a channel, tag and regime, in the order in which they were made. */
must_check bool channel_rows_load(struct db *db, const char *name, const char *tag,
                                  enum regime regime, struct channel_rows *ret,
                                  struct error *error);

/* Rows of all channels after id `after`; *ret_next is 0 at the end. */
must_check bool channel_rows_list(struct db *db, int64_t after, int64_t limit,
                                  struct channel_rows *ret, int64_t *ret_next, struct error *error);

/* The row of a channel that a release's environment, tag and regime name, whether there is an entry
 * yet or not (then its counter is 0 and its release none). No row: there is no such release. */
must_check bool channel_row_of_release(struct db *db, const char *name,
                                       const struct digest *release, struct channel_rows *ret,
                                       struct error *error);

/* All entries that a row ever had, newest first, with counters below `before`; *ret_next is 0 at
 * the end. */
must_check bool channel_entries_list(struct db *db, const struct channel_row *row, int64_t before,
                                     int64_t limit, struct channel_rows *ret, int64_t *ret_next,
                                     struct error *error);

/* Moves the row of the release's environment, tag and regime from exactly `from` to the release,
 * and writes the history with expiry and signatures, in one statement. No row in *ret: it was
 * elsewhere by now. */
must_check bool channel_move(struct db *db, const char *name, const struct channel_state *from,
                             const struct channel_move *move, const struct author *author,
                             struct channel_rows *ret, struct error *error);

/* Adds a signature to the entry of `row`, or replaces the key's. *ret_done false: it was elsewhere
 * by now. */
must_check bool channel_signature_add(struct db *db, const struct channel_row *row,
                                      const struct channel_signature *signature,
                                      const struct author *author, bool *ret_done,
                                      struct error *error);

/* A number that is another one after every move, signature and change of a compatibility, in
 * whatever order they commit: what is remembered of lookups holds while it stays. */
must_check bool lookups_state(struct db *db, int64_t *ret_state, struct error *error);

#endif
