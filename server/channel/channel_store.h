/* Channels: reading rows and their history, moving one and adding a signature to one by compare-and-set.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_CHANNEL_CHANNEL_STORE_H
#define WAVETUNE_SERVER_CHANNEL_CHANNEL_STORE_H

#include "server/audit/audit.h"
#include "server/channel/channels.h"

struct channel_row {
  int64_t id;                 /* what pages go on from */
  struct channel_entry entry; /* counter 0: no entry yet */
  int64_t signings;
  char *updated_at;    /* RFC 3339 */
  char *moved_by;      /* the token's name; of history alone, else NULL */
  int64_t moved_by_id; /* 0: it is not known */
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
must_check bool channel_rows_load(struct db *db, const char *name, const char *tag, enum regime regime,
                                  struct channel_rows *ret, struct error *error);

/* Rows of all channels after id `after`; *ret_next is 0 at the end. */
must_check bool channel_rows_list(struct db *db, int64_t after, int64_t limit, struct channel_rows *ret,
                                  int64_t *ret_next, struct error *error);

/* The row of a channel that a release's environment, tag and regime name, whether there is an entry yet or not (then its counter is
 * 0 and its release none). No row: there is no such release. */
must_check bool channel_row_of_release(struct db *db, const char *name, const struct digest *release,
                                       struct channel_rows *ret, struct error *error);

/* All entries that a row ever had, newest first, with counters below `before`; *ret_next is 0 at the end. */
must_check bool channel_entries_list(struct db *db, const struct channel_row *row, int64_t before, int64_t limit,
                                     struct channel_rows *ret, int64_t *ret_next, struct error *error);

/* Moves the row of the release's environment, tag and regime from exactly `from` to the release, and writes the history with
 * expiry and signatures, in one statement. No row in *ret: it was elsewhere by now. */
must_check bool channel_move(struct db *db, const char *name, const struct channel_state *from,
                             const struct channel_move *move, const struct author *author, struct channel_rows *ret,
                             struct error *error);

/* Adds a signature to the entry of `row`, or replaces the key's. *ret_done false: it was elsewhere by now. */
must_check bool channel_signature_add(struct db *db, const struct channel_row *row,
                                      const struct channel_signature *signature, const struct author *author,
                                      bool *ret_done, struct error *error);

/* A number that is another one after every move, signature and change of a compatibility, in whatever order they commit:
 * what is remembered of lookups holds while it stays. */
must_check bool lookups_state(struct db *db, int64_t *ret_state, struct error *error);

#endif
