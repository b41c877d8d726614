/* What the routes of channels and of the cache share: an entry as JSON, and answering with the one that a query means.
 *
 * Memory: rows are borrowed. Threads: a database worker's. */
#ifndef WAVETUNE_SERVER_HTTP_CHANNEL_ENTRY_H
#define WAVETUNE_SERVER_HTTP_CHANNEL_ENTRY_H

#include "server/http/request.h"
#include "server/store/channels.h"

must_check json_t *channel_row_to_json(const struct channel_row *row); /* a new reference */

/* Answers with the entry of `channel` that the query's tag and environment members mean, remembered until a channel
 * moves; 404 says what is nearest, 422 lists those that fit. `match` is Wavetune-Match or NULL. */
void channel_entry_answer(struct worker *worker, struct request *request, const char *channel, const char *match);

#endif
