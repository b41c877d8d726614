/* Pages of lists whose rows have ids: reads limit and after, writes {"items", "next"}.
 *
 * Memory: items are taken over. Threads: the request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_PAGE_H
#define WAVETUNE_SERVER_HTTP_PAGE_H

#include "server/http/request.h"

/* *ret_after is `start` where the query has no "after". Answers 422 and returns false when they are
 * wrong. */
must_check bool page_by_id(struct request *request, int64_t start, int64_t *ret_limit,
                           int64_t *ret_after);

must_check json_t *page_to_json(json_t *items, int64_t next); /* next 0: null; a new reference */

#endif
