/* A hash of targets under a reader-writer lock. Entries own their texts and have a share in their
 * body. */
#include "server/http/response_memory.h"

#include <pthread.h>
#include <stdatomic.h>

#include "server/http/header.h"
#include "server/http/response.h"
#include "server/server_private.h"

#define BUCKETS 4096
#define ENTRIES_MAX 8192
#define ENTRY_OVERHEAD 512 /* the entry and its texts */

/* An entry's and that of each response that is being sent: libmicrohttpd has it after the entry is
 * gone. */
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
  enum memory_kind kind;
  char *etag, *content_type, *match; /* match may be NULL */
  struct shared_body *body;
  size_t size;
  atomic_uint_fast64_t used; /* clock of the last use */
};

struct response_memory {
  pthread_rwlock_t lock;
  size_t bytes, bytes_max, n;
  atomic_uint_fast64_t generation;
  response_used *used;
  void *context;
  struct entry *buckets[BUCKETS];
};

struct response_memory *response_memory_new(size_t bytes_max, response_used *used, void *context) {
  struct response_memory *memory = xcalloc(1, sizeof *memory);
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(
      &attributes); /* or readers that never pause would keep a moved channel from being seen */
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&memory->lock, &attributes);
  pthread_rwlockattr_destroy(&attributes);
  memory->bytes_max = bytes_max;
  memory->used = used;
  memory->context = context;
  return memory;
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

void response_memory_free(struct response_memory *memory) {
  if (!memory)
    return;
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry *entry = memory->buckets[i], *next; entry; entry = next) {
      next = entry->next;
      entry_free(entry);
    }
  pthread_rwlock_destroy(&memory->lock);
  free(memory);
}

static uint64_t target_hash(const char *target, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a by eight bytes; keys are compared in full, and
                                          adding is authorised */
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

static struct entry **entry_find(struct response_memory *memory, const char *target, size_t size,
                                 uint64_t hash) {
  struct entry **at = &memory->buckets[hash % BUCKETS];
  while (*at && ((*at)->hash != hash || (*at)->target_size != size ||
                 memcmp((*at)->target, target, size) != 0))
    at = &(*at)->next;
  return at;
}

static void entry_remove(struct response_memory *memory, struct entry **at) {
  struct entry *entry = *at;
  *at = entry->next;
  memory->bytes -= entry->cost;
  memory->n--;
  entry_free(entry);
}

/* Rare: only when an answer is added to a full memory. */
static void evict_oldest(struct response_memory *memory) {
  struct entry **oldest = NULL;
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry **at = &memory->buckets[i]; *at; at = &(*at)->next)
      if (!oldest || atomic_load(&(*at)->used) < atomic_load(&(*oldest)->used))
        oldest = at;
  entry_remove(memory, oldest);
}

static struct entry *entry_new(const char *target, size_t target_size,
                               const struct remembered *remembered) {
  struct entry *entry = xcalloc(1, sizeof *entry);
  entry->target = xmemdup(target, target_size);
  entry->target_size = target_size;
  entry->hash = target_hash(target, target_size);
  entry->cost = remembered->size + target_size + ENTRY_OVERHEAD;
  entry->route = remembered->route;
  entry->kind = remembered->kind;
  entry->etag = xstrdup(remembered->etag);
  entry->content_type = xstrdup(remembered->content_type);
  entry->match = remembered->match ? xstrdup(remembered->match) : NULL;
  entry->body = xmalloc(sizeof *entry->body);
  *entry->body = (struct shared_body){.n_users = 1, .bytes = remembered->body};
  entry->size = remembered->size;
  atomic_store(&entry->used, (uint64_t)clock_monotonic_ms());
  return entry;
}

void response_memory_add(struct response_memory *memory, const char *target, size_t target_size,
                         const struct remembered *remembered, uint64_t generation) {
  struct entry *entry = entry_new(target, target_size, remembered);
  pthread_rwlock_wrlock(&memory->lock);
  bool is_stale =
      remembered->kind == MEMORY_CHANNELS && atomic_load(&memory->generation) != generation;
  if (!is_stale && entry->cost <= memory->bytes_max / 2) {
    struct entry **at = entry_find(memory, target, target_size, entry->hash);
    if (*at)
      entry_remove(memory, at);
    while (memory->n &&
           (memory->n >= ENTRIES_MAX || memory->bytes + entry->cost > memory->bytes_max))
      evict_oldest(memory);
    entry->next = memory->buckets[entry->hash % BUCKETS];
    memory->buckets[entry->hash % BUCKETS] = entry;
    memory->bytes += entry->cost;
    memory->n++;
    entry = NULL;
  }
  pthread_rwlock_unlock(&memory->lock);
  if (entry)
    entry_free(entry);
}

uint64_t response_memory_generation(struct response_memory *memory) {
  return atomic_load(&memory->generation);
}

void response_memory_forget(struct response_memory *memory) {
  pthread_rwlock_wrlock(&memory->lock);
  atomic_fetch_add(&memory->generation, 1);
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry **at = &memory->buckets[i]; *at;) {
      if ((*at)->kind == MEMORY_CHANNELS)
        entry_remove(memory, at);
      else
        at = &(*at)->next;
    }
  pthread_rwlock_unlock(&memory->lock);
}

static void entry_use(const struct response_memory *memory, struct entry *entry, uint64_t now_ms) {
  atomic_store_explicit(&entry->used, now_ms, memory_order_relaxed);
  if (memory->used)
    memory->used(memory->context, entry->route, entry->target, entry->target_size);
}

/* A response of its own for each request, because each has its own X-Request-Id. */
static struct MHD_Response *entry_response(const struct entry *entry, bool is_known) {
  struct MHD_Response *response;
  if (is_known) {
    response = response_empty();
  } else {
    atomic_fetch_add(&entry->body->n_users, 1);
    response = MHD_create_response_from_buffer_with_free_callback_cls(
        entry->size, entry->body->bytes, body_unreference, entry->body);
    ALWAYS(response != NULL);
    response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, entry->content_type);
  }
  response_entity_headers(response, entry->etag, entry->kind == MEMORY_IMMUTABLE);
  if (entry->match)
    response_header(response, "Wavetune-Match", entry->match);
  return response;
}

enum memory_answer
response_memory_answer(struct response_memory *memory, const char *target, size_t target_size,
                       unsigned roles, const char *if_none_match,
                       void (*send)(void *context, const struct remembered_answer *answer),
                       void *context) {
  enum memory_answer answer = MEMORY_ABSENT;
  uint64_t hash = target_hash(target, target_size);
  pthread_rwlock_rdlock(&memory->lock);
  struct entry *entry = *entry_find(memory, target, target_size, hash);
  if (entry && !roles_may(roles, route_of(entry->route)->roles)) {
    answer = MEMORY_FORBIDDEN;
  } else if (entry) {
    bool is_known = if_none_match && header_etag_listed(if_none_match, entry->etag);
    uint64_t now_ms = (uint64_t)clock_monotonic_ms();
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) + 1000 <
        now_ms) /* seldom: no shared writes when hot */
      entry_use(memory, entry, now_ms);
    answer = MEMORY_ANSWERED;
    struct remembered_answer remembered = {.status = is_known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK,
                                           .response = entry_response(entry, is_known),
                                           .size = is_known ? 0 : entry->size,
                                           .route = entry->route};
    send(context, &remembered);
    MHD_destroy_response(remembered.response);
  }
  pthread_rwlock_unlock(&memory->lock);
  return answer;
}

void response_memory_forget_channels(struct server *server) {
  response_memory_forget(server->memory);
}

void request_answer_remembered(struct request *request, enum memory_kind kind,
                               const char *content_type, char *body, size_t size, const char *etag,
                               const char *match) {
  struct request_private *private_ = request_private_of(request);
  const struct connection *connection = private_->connection;
  if (!connection->target_long) {
    struct remembered remembered = {request->route,      kind, content_type, etag, match,
                                    xmemdup(body, size), size};
    response_memory_add(request->server->memory, connection->target, connection->target_size,
                        &remembered, private_->memory_generation);
  }
  if (match)
    request_add_header(request, "Wavetune-Match", match);
  request_answer_entity(request, content_type, body, size, etag, kind == MEMORY_IMMUTABLE);
}
