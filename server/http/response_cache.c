/* A hash of targets under a reader-writer lock. */
#include "server/http/response_cache.h"

#include <pthread.h>
#include <stdatomic.h>

#include "server/http/http_private.h"
#include "server/http/request_private.h"

#define BUCKETS 4096
#define ENTRIES_MAX 8192
#define ENTRY_OVERHEAD 512 /* the entry and its texts */

/* Shared by an entry and by responses that are being sent, which may outlive the entry. */
struct shared_body {
  atomic_size_t n_users;
  char *bytes;
};

struct entry {
  struct entry *next;
  uint64_t hash;
  char *target;
  size_t target_size, cost;
  enum route_id route;
  enum response_kind kind;
  char *etag, *content_type, *match; /* match may be NULL */
  struct shared_body *body;
  size_t size;
  int64_t token_id, made_ms; /* of what is RESPONSE_OF_TOKEN */
  struct fetch fetch;
  atomic_uint_fast64_t used; /* clock_monotonic_ms of a use, at most a second before the last one */
};

struct response_cache {
  pthread_rwlock_t lock;
  size_t bytes, bytes_max, n;
  atomic_uint_fast64_t generation;
  response_fetched *fetched;
  void *context;
  struct entry *buckets[BUCKETS];
};

struct response_cache *response_cache_new(size_t bytes_max, response_fetched *fetched,
                                          void *context) {
  struct response_cache *cache = xcalloc(1, sizeof *cache);
  pthread_rwlockattr_t attributes;

  /* Otherwise continuous readers would delay the removal of a moved channel's answers. */
  pthread_rwlockattr_init(&attributes);
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&cache->lock, &attributes);
  pthread_rwlockattr_destroy(&attributes);
  cache->bytes_max = bytes_max;
  cache->fetched = fetched;
  cache->context = context;
  return cache;
}

static void body_unreference(void *context) {
  struct shared_body *body = context;
  if (atomic_fetch_sub(&body->n_users, 1) > 1)
    return;
  free(body->bytes);
  free(body);
}

static void entry_free(struct entry *entry) {
  body_unreference(entry->body);
  free(entry->target);
  free(entry->etag);
  free(entry->content_type);
  free(entry->match);
  free(entry);
}

struct response_cache *server_response_cache(const struct server *server) {
  return server_http(server)->response_cache;
}

void response_cache_free(struct response_cache *cache) {
  if (!cache)
    return;

  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry *entry = cache->buckets[i], *next; entry; entry = next) {
      next = entry->next;
      entry_free(entry);
    }

  pthread_rwlock_destroy(&cache->lock);
  free(cache);
}

static uint64_t target_hash(const char *target, size_t size) {
  /* FNV-1a by eight bytes. Only a client with a token could force collisions. */
  uint64_t hash = 0xcbf29ce484222325u;
  for (; size >= 8; target += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, target, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }

  for (; size; target++, size--)
    hash = (hash ^ (unsigned char)*target) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

static struct entry **entry_find(struct response_cache *cache, const char *target, size_t size,
                                 uint64_t hash) {
  struct entry **at = &cache->buckets[hash % BUCKETS];
  while (*at && ((*at)->hash != hash || (*at)->target_size != size ||
                 memcmp((*at)->target, target, size) != 0))
    at = &(*at)->next;
  return at;
}

static void entry_remove(struct response_cache *cache, struct entry **at) {
  struct entry *entry = *at;
  *at = entry->next;
  cache->bytes -= entry->cost;
  cache->n--;
  entry_free(entry);
}

void response_cache_add(struct response_cache *cache, const char *target, size_t target_size,
                        const struct cacheable *answer, uint64_t generation) {
  struct entry *entry = xcalloc(1, sizeof *entry);
  entry->target = xmemdup(target, target_size);
  entry->target_size = target_size;
  entry->hash = target_hash(target, target_size);
  entry->cost = answer->size + target_size + ENTRY_OVERHEAD;
  entry->route = answer->route;
  entry->kind = answer->kind;
  entry->etag = xstrdup(answer->etag);
  entry->content_type = xstrdup(answer->content_type);
  entry->match = answer->match ? xstrdup(answer->match) : NULL;
  entry->body = xmalloc(sizeof *entry->body);
  *entry->body = (struct shared_body){.n_users = 1, .bytes = answer->body};
  entry->size = answer->size;
  entry->token_id = answer->token_id;
  if (answer->fetch)
    entry->fetch = *answer->fetch;
  entry->made_ms = clock_monotonic_ms();
  atomic_store(&entry->used, (uint64_t)entry->made_ms);

  pthread_rwlock_wrlock(&cache->lock);
  bool is_stale =
      answer->kind != RESPONSE_IMMUTABLE && atomic_load(&cache->generation) != generation;
  if (is_stale || entry->cost > cache->bytes_max / 2) {
    pthread_rwlock_unlock(&cache->lock);
    entry_free(entry);
    return;
  }

  struct entry **at = entry_find(cache, target, target_size, entry->hash);
  if (*at)
    entry_remove(cache, at);
  /* A full cache is rare: a search for the oldest entry is good enough. */
  while (cache->n && (cache->n >= ENTRIES_MAX || cache->bytes + entry->cost > cache->bytes_max)) {
    struct entry **oldest = NULL;
    for (size_t i = 0; i < BUCKETS; i++)
      for (at = &cache->buckets[i]; *at; at = &(*at)->next)
        if (!oldest || atomic_load(&(*at)->used) < atomic_load(&(*oldest)->used))
          oldest = at;
    entry_remove(cache, oldest);
  }

  entry->next = cache->buckets[entry->hash % BUCKETS];
  cache->buckets[entry->hash % BUCKETS] = entry;
  cache->bytes += entry->cost;
  cache->n++;
  pthread_rwlock_unlock(&cache->lock);
}

uint64_t response_cache_generation(struct response_cache *cache) {
  return atomic_load(&cache->generation);
}

void response_cache_forget(struct response_cache *cache) {
  pthread_rwlock_wrlock(&cache->lock);
  atomic_fetch_add(&cache->generation, 1);
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry **at = &cache->buckets[i]; *at;) {
      if ((*at)->kind != RESPONSE_IMMUTABLE)
        entry_remove(cache, at);
      else
        at = &(*at)->next;
    }

  pthread_rwlock_unlock(&cache->lock);
}

const char *response_match_header(enum response_kind kind) {
  return kind == RESPONSE_OF_TOKEN ? "Wavetune-Origin" : "Wavetune-Match";
}

enum cache_result
response_cache_answer(struct response_cache *cache, const struct cache_query *query,
                      void (*send)(void *context, const struct cached_answer *answer),
                      void *context) {
  uint64_t hash = target_hash(query->target, query->target_size);
  pthread_rwlock_rdlock(&cache->lock);
  struct entry *entry = *entry_find(cache, query->target, query->target_size, hash);
  int64_t now_ms = clock_monotonic_ms();
  if (entry && entry->kind == RESPONSE_OF_TOKEN &&
      (entry->token_id != query->token_id || now_ms - entry->made_ms > RESPONSE_OF_TOKEN_MS))
    entry = NULL;
  if (!entry || !roles_may(query->roles, route_of(entry->route)->roles)) {
    pthread_rwlock_unlock(&cache->lock);
    return entry ? CACHE_FORBIDDEN : CACHE_ABSENT;
  }

  /* At most once a second, so that threads do not write shared memory for answers that are not
   * noted. */
  if (atomic_load_explicit(&entry->used, memory_order_relaxed) + 1000 < (uint64_t)now_ms)
    atomic_store_explicit(&entry->used, (uint64_t)now_ms, memory_order_relaxed);
  if (entry->fetch.kind != FETCH_NONE && !query->is_of_page)
    cache->fetched(cache->context, &entry->fetch, query->token_id, query->token_name);

  /* Each request has its own response, because each has its own X-Request-Id. */
  bool is_current = query->if_none_match && header_etag_listed(query->if_none_match, entry->etag);
  struct cached_answer answer = {is_current ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, NULL,
                                 is_current ? 0 : entry->size, entry->route};
  if (is_current) {
    answer.response = response_empty();
  } else {
    atomic_fetch_add(&entry->body->n_users, 1);
    answer.response = MHD_create_response_from_buffer_with_free_callback_cls(
        entry->size, entry->body->bytes, body_unreference, entry->body);
    ALWAYS(answer.response != NULL);
    response_header(answer.response, MHD_HTTP_HEADER_CONTENT_TYPE, entry->content_type);
  }

  response_entity_headers(answer.response, entry->etag, entry->kind == RESPONSE_IMMUTABLE);
  if (entry->match)
    response_header(answer.response, response_match_header(entry->kind), entry->match);
  send(context, &answer);
  pthread_rwlock_unlock(&cache->lock);
  return CACHE_ANSWERED;
}

static void cached_take(void *context, const struct cached_answer *cached) {
  request_finish(context, (int)cached->status, cached->response, cached->size);
}

bool request_answer_from_cache(struct request *request) {
  const struct connection *connection = request_private_of(request)->connection;
  const struct cache_query query = {.target = connection->target,
                                    .target_size = connection->target_size,
                                    .roles = request->roles,
                                    .if_none_match = connection->headers[HEADER_IF_NONE_MATCH],
                                    .token_id = request->token_id,
                                    .token_name = request->token_name,
                                    .is_of_page = connection->headers[HEADER_PAGE] != NULL};
  return response_cache_answer(server_http(request->server)->response_cache, &query, cached_take,
                               request) == CACHE_ANSWERED;
}

void response_cache_forget_channels(struct server *server) {
  response_cache_forget(server_http(server)->response_cache);
}

bool request_answer_cached(struct request *request, enum response_kind kind,
                           const char *content_type, char *body, size_t size, const char *etag,
                           const char *match) {
  struct request_private *private_ = request_private_of(request);
  const struct connection *connection = private_->connection;
  ALWAYS(private_->route->is_cached);
  const struct cacheable answer = {.route = request->route,
                                   .kind = kind,
                                   .content_type = content_type,
                                   .etag = etag,
                                   .match = match,
                                   .body = xmemdup(body, size),
                                   .size = size,
                                   .token_id = request->token_id,
                                   .fetch = &request->fetch};
  response_cache_add(server_http(request->server)->response_cache, connection->target,
                     connection->target_size, &answer, private_->cache_generation);
  if (match)
    request_add_header(request, response_match_header(kind), match);
  return request_answer_entity(request, content_type, body, size, etag, kind == RESPONSE_IMMUTABLE);
}
