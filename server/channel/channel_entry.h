/* What the routes of channels and of the cache share: an entry as JSON, and finding the one that a query means.
 *
 * Memory: rows are borrowed. Threads: a database worker's. */
#ifndef WAVETUNE_SERVER_CHANNEL_CHANNEL_ENTRY_H
#define WAVETUNE_SERVER_CHANNEL_CHANNEL_ENTRY_H

#include "server/cache/cache_rules.h"
#include "server/channel/channel_store.h"
#include "server/http/request.h"

must_check json_t *channel_row_to_json(const struct channel_row *row); /* a new reference */

/* Answers with a row that was read just now, or moved. */
void channel_row_answer(struct request *request, const struct channel_row *row);

/* The row of `channel` that the query's tag, regime and environment members mean, of *ret_rows. NULL when it was answered that
 * there is none: 404 says what is nearest, 422 lists those that fit. */
must_check const struct channel_row *channel_row_find(struct worker *worker, struct request *request,
                                                      const char *channel, struct channel_rows *ret_rows);

/* Answers with that row's entry, remembered until a channel moves. */
void channel_entry_answer(struct worker *worker, struct request *request, const char *channel);

/* The same for GET /v1/cache: by the rules of core/cache_rules.h up to `widest`, and says which one fired, in the header
 * Wavetune-Match and in "match". */
void channel_cache_answer(struct worker *worker, struct request *request, const char *channel, enum cache_rule widest);

/* How often a move or a signature is tried anew, each time because somebody else moved the channel in between; and what
 * is answered then. */
#define CHANNEL_ATTEMPTS 16
void channel_contended_answer(struct request *request, const char *name);

/* 412 with the entry that is there; the row's counter is 0 when there is none. */
void channel_elsewhere_answer(struct request *request, const struct channel_row *row);

/* Whether the operator's keys (--publisher-key) allow the entry; without any all are allowed. Otherwise answers 403. */
must_check bool channel_publisher_is_trusted(struct request *request, const struct channel_entry *entry);

/* Whether the token may move this channel: a publisher's names it, an admin's need not. False, and answered: it may not. */
must_check bool channel_is_publishers(struct worker *worker, struct request *request, const char *channel);

#endif
