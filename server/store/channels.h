/* Channels: reading rows, and moving one by compare-and-set.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_STORE_CHANNELS_H
#define WAVETUNE_SERVER_STORE_CHANNELS_H

#include "common/environment.h"
#include "server/core/channels.h"
#include "server/store/db.h"

struct channel_row {
  int64_t id;
  char *name;
  struct environment environment;
  char *tag;
  struct channel_state state;
  char *updated_at; /* RFC 3339 */
};
struct channel_rows {
  size_t n;
  struct channel_row *all;
};
void channel_rows_release(struct channel_rows *rows);
#define cleanup_channel_rows __attribute__((cleanup(channel_rows_release)))

/* The rows of a channel and tag, in the order in which they were made. */
must_check bool channel_rows_load(struct db *db, const char *name, const char *tag, struct channel_rows *ret,
                                  struct error *error);

/* Rows of all channels after id `after`; *ret_next is 0 at the end. */
must_check bool channel_rows_list(struct db *db, int64_t after, int64_t limit, struct channel_rows *ret,
                                  int64_t *ret_next, struct error *error);

/* The row of a channel that a release's environment and tag name: one row, or none when there is no entry yet.
 * *ret_known: whether there is such a release at all. */
must_check bool channel_row_of_release(struct db *db, const char *name, const struct digest *release, bool *ret_known,
                                       struct channel_rows *ret, struct error *error);

/* Moves the row of the release's environment and tag from exactly `from` to the release, and writes the history, in one
 * statement. No row in *ret: it was elsewhere by now. */
must_check bool channel_move(struct db *db, const char *name, const struct channel_state *from,
                             const struct digest *release, const char *moved_by, struct channel_rows *ret,
                             struct error *error);

/* How many moves were ever committed: grows with each, in whatever order they commit. */
must_check bool channel_moves(struct db *db, int64_t *ret_moves, struct error *error);

#endif
