/* The cache of responses that event threads send: by path and query, as the client sent them, the
 * response, which is 200 with a body, or 304.
 *
 * Memory: owns the bodies, bounded in bytes, until they are sent to every client. The least
 * recently used entry is evicted first. Threads: any; a look-up takes a reader's lock. */
#ifndef WAVETUNE_SERVER_HTTP_RESPONSE_CACHE_H
#define WAVETUNE_SERVER_HTTP_RESPONSE_CACHE_H

#include <microhttpd.h>

#include "server/http/request.h"

/* Less than a day: what is used often is then read from the database, which notes its use. */
#define RESPONSE_OF_TOKEN_MS (60 * 60 * 1000)

struct response_cache;
/* Called for each request that a cached answer with a `fetch` is sent to. It must not block: the
 * cache is locked for reading. */
typedef void response_fetched(void *context, const struct fetch *fetch, int64_t token_id,
                              const char *token_name);
must_check struct response_cache *response_cache_new(size_t bytes_max, response_fetched *fetched,
                                                     void *context);
void response_cache_free(struct response_cache *cache);
struct response_cache *server_response_cache(const struct server *server);

struct cacheable {
  enum route_id route;
  enum response_kind kind;
  const char *content_type, *etag, *match; /* match may be NULL */
  char *body;                              /* taken over */
  size_t size;
  int64_t token_id;          /* for RESPONSE_OF_TOKEN */
  const struct fetch *fetch; /* NULL: it serves no release */
};
/* `generation` is response_cache_generation before the answer was made: an answer that is not
 * immutable is not cached when channels have changed since. */
void response_cache_add(struct response_cache *cache, const char *target, size_t target_size,
                        const struct cacheable *answer, uint64_t generation);
uint64_t response_cache_generation(struct response_cache *cache);
void response_cache_forget(struct response_cache *cache); /* all answers but immutable ones */

enum cache_result { CACHE_ABSENT, CACHE_FORBIDDEN, CACHE_ANSWERED };
/* An answer to one request. `send` may add headers to `response`, which it takes over. */
struct cached_answer {
  unsigned status;
  struct MHD_Response *response;
  size_t size; /* of the body */
  enum route_id route;
};
struct cache_query {
  const char *target;
  size_t target_size;
  unsigned roles;            /* of the token */
  const char *if_none_match; /* NULL: none */
  int64_t token_id;
  const char *token_name;
  bool is_of_page; /* a person looks at it: it is not noted as a fetch */
};
/* The header that has `match`. */
const char *response_match_header(enum response_kind kind);
/* Finds the answer and, when a token with these roles may read it, calls `send` with it: with
 * status 304 when if_none_match lists its ETag. `send` must not block: the cache is locked for
 * reading. */
enum cache_result
response_cache_answer(struct response_cache *cache, const struct cache_query *query,
                      void (*send)(void *context, const struct cached_answer *answer),
                      void *context);

/* Answers the request with the cached answer, if there is one that it may read. */
must_check bool request_answer_from_cache(struct request *request);

#endif
