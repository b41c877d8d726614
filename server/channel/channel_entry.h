/* What the routes of channels and of the cache share: finding the entry that a query means, and
 * answering it.
 *
 * Memory: rows are borrowed. Threads: a database worker's. */
#ifndef WAVETUNE_SERVER_CHANNEL_CHANNEL_ENTRY_H
#define WAVETUNE_SERVER_CHANNEL_CHANNEL_ENTRY_H

#include "server/cache/cache_rules.h"
#include "server/channel/channels.h"
#include "server/http/request.h"

/* The row of `channel` that the query's tag, regime and environment members mean, of *ret_rows.
 * NULL when it was answered that there is none: 404 says what is nearest, 422 lists those that
 * fit. */
must_check const struct channel_row *channel_row_find(struct worker *worker,
                                                      struct request *request, const char *channel,
                                                      struct channel_rows *ret_rows);

/* Answers with that row's entry, remembered until a channel moves. */
void channel_entry_answer(struct worker *worker, struct request *request, const char *channel);

#endif
