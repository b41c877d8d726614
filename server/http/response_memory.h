/* Answers that event threads give from memory: path and query as they were sent → what is answered,
 * or 304.
 *
 * Memory: owns the bodies, bounded in bytes, and each lives until it was sent to all who get it;
 * the one that was used longest ago goes first. Threads: any; looking up takes a reader's lock. */
#ifndef WAVETUNE_SERVER_HTTP_RESPONSE_MEMORY_H
#define WAVETUNE_SERVER_HTTP_RESPONSE_MEMORY_H

#include "server/http/request_private.h"

struct response_memory;
/* Called when an answer is given from memory, at most once a second for one that is given all the
 * time. It must not block: the memory is locked for reading. */
typedef void response_used(void *context, enum route_id route, const char *target,
                           size_t target_size);
/* `used` may be NULL. */
must_check struct response_memory *response_memory_new(size_t bytes_max, response_used *used,
                                                       void *context);
void response_memory_free(struct response_memory *memory);

struct remembered {
  enum route_id route;
  enum memory_kind kind;
  const char *content_type, *etag, *match; /* match may be NULL */
  char *body;                              /* taken over */
  size_t size;
};
/* `generation` is response_memory_generation from before the answer was made: when the channels
 * were forgotten since, a MEMORY_CHANNELS answer is not kept. */
void response_memory_add(struct response_memory *memory, const char *target, size_t target_size,
                         const struct remembered *remembered, uint64_t generation);
uint64_t response_memory_generation(struct response_memory *memory);
void response_memory_forget(struct response_memory *memory); /* the MEMORY_CHANNELS ones */

enum memory_answer { MEMORY_ABSENT, MEMORY_FORBIDDEN, MEMORY_ANSWERED };
/* An answer to one request: `response` is its own, so that `send` may add headers, and is destroyed
 * after `send`. */
struct remembered_answer {
  unsigned status;
  struct MHD_Response *response;
  size_t size; /* of the body */
  enum route_id route;
};
/* Finds the answer and, when a token with `roles` may have it, gives it to `send`: with status 304
 * when `if_none_match` (may be NULL) names it. `send` must not block: the memory is locked for
 * reading. */
enum memory_answer
response_memory_answer(struct response_memory *memory, const char *target, size_t target_size,
                       unsigned roles, const char *if_none_match,
                       void (*send)(void *context, const struct remembered_answer *answer),
                       void *context);

#endif
