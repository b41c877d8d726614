/* A table of tokens under a reader-writer lock, a small memory of nobodies, and a bucket that
 * limits look-ups. */
#include "server/http/auth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define NOBODIES 1024
#define NOBODY_MS 10000
#define LOOKUPS_PER_SECOND 100
#define LOOKUPS_BURST 200

struct auth {
  pthread_rwlock_t lock;
  atomic_uint_fast64_t generation, answers;
  size_t n, capacity;
  struct auth_token *tokens; /* sorted by digest */
  pthread_mutex_t nobodies_lock;
  struct {
    struct digest digest;
    int64_t until_ms;
    bool is_expired;
  } nobodies[NOBODIES];
  double lookups; /* left in the bucket */
  int64_t lookups_at_ms;
  size_t n_used; /* under nobodies_lock */
  int64_t used[AUTH_USED_MAX];
};

bool auth_has_expired(int64_t expires_ms) {
  struct timespec now;
  if (expires_ms == 0)
    return false;
  ALWAYS(clock_gettime(CLOCK_REALTIME, &now) == 0);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 >= expires_ms;
}

struct auth *auth_new(void) {
  struct auth *auth = xcalloc(1, sizeof *auth);
  pthread_rwlock_init(&auth->lock, NULL);
  pthread_mutex_init(&auth->nobodies_lock, NULL);
  atomic_store(&auth->generation, 1);
  auth->lookups = LOOKUPS_BURST;
  auth->lookups_at_ms = clock_monotonic_ms();
  return auth;
}

void auth_free(struct auth *auth) {
  if (!auth)
    return;
  pthread_rwlock_destroy(&auth->lock);
  pthread_mutex_destroy(&auth->nobodies_lock);
  free(auth->tokens);
  free(auth);
}

static int token_compare(const void *a, const void *b) {
  return memcmp(((const struct auth_token *)a)->digest.bytes,
                ((const struct auth_token *)b)->digest.bytes, DIGEST_SIZE);
}

/* What is compared is a hash of the secret, so its time tells nothing about the secret. */
static const struct auth_token *token_find(const struct auth *auth, const struct digest *digest) {
  struct auth_token wanted = {.digest = *digest};
  return auth->n ? bsearch(&wanted, auth->tokens, auth->n, sizeof *auth->tokens, token_compare)
                 : NULL;
}

static size_t nobody_slot(const struct digest *digest) {
  return (digest->bytes[0] | (size_t)digest->bytes[1] << 8) % NOBODIES;
}

static enum auth_answer nobody_find(struct auth *auth, const struct digest *digest) {
  int64_t now_ms = clock_monotonic_ms();
  enum auth_answer answer = AUTH_ASK;
  pthread_mutex_lock(&auth->nobodies_lock);
  size_t slot = nobody_slot(digest);
  if (auth->nobodies[slot].until_ms > now_ms &&
      digest_equal(&auth->nobodies[slot].digest, digest)) {
    answer = auth->nobodies[slot].is_expired ? AUTH_EXPIRED : AUTH_NOBODY;
  } else {
    auth->lookups += (double)(now_ms - auth->lookups_at_ms) * LOOKUPS_PER_SECOND / 1000;
    auth->lookups_at_ms = now_ms;
    if (auth->lookups > LOOKUPS_BURST)
      auth->lookups = LOOKUPS_BURST;
    if (auth->lookups < 1)
      answer = AUTH_BUSY;
    else
      auth->lookups--;
  }
  pthread_mutex_unlock(&auth->nobodies_lock);
  return answer;
}

enum auth_answer auth_find(struct auth *auth, const struct digest *digest,
                           struct auth_token *ret_token) {
  pthread_rwlock_rdlock(&auth->lock);
  const struct auth_token *token = token_find(auth, digest);
  if (token)
    *ret_token = *token;
  pthread_rwlock_unlock(&auth->lock);
  if (!token)
    return nobody_find(auth, digest);
  return auth_has_expired(ret_token->expires_ms) ? AUTH_EXPIRED : AUTH_KNOWN;
}

static void generation_next(struct auth *auth) { atomic_fetch_add(&auth->generation, 1); }

bool auth_add(struct auth *auth, const struct auth_token *tokens, size_t n, uint64_t since) {
  pthread_rwlock_wrlock(&auth->lock);
  bool is_newest = auth_answers(auth) == since;
  for (size_t i = 0; is_newest && i < n; i++) {
    if (token_find(auth, &tokens[i].digest))
      continue;
    GROW(auth->tokens, auth->n, auth->capacity);
    auth->tokens[auth->n++] = tokens[i];
    qsort(auth->tokens, auth->n, sizeof *auth->tokens, token_compare);
    generation_next(auth);
    atomic_fetch_add(&auth->answers, 1);
  }
  pthread_rwlock_unlock(&auth->lock);
  return is_newest;
}

void auth_add_nobody(struct auth *auth, const struct digest *digest, bool is_expired) {
  pthread_mutex_lock(&auth->nobodies_lock);
  size_t slot = nobody_slot(digest);
  auth->nobodies[slot].digest = *digest;
  auth->nobodies[slot].until_ms = clock_monotonic_ms() + NOBODY_MS;
  auth->nobodies[slot].is_expired = is_expired;
  pthread_mutex_unlock(&auth->nobodies_lock);
}

static bool tokens_equal(const struct auth_token *a, const struct auth_token *b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (token_compare(&a[i], &b[i]) != 0 || a[i].id != b[i].id || a[i].roles != b[i].roles ||
        a[i].expires_ms != b[i].expires_ms || a[i].replaces != b[i].replaces ||
        strcmp(a[i].name, b[i].name) != 0)
      return false;
  return true;
}

bool auth_replace(struct auth *auth, const struct auth_token *tokens, size_t n, uint64_t since) {
  struct auth_token *sorted = xmemdup(tokens, n * sizeof *tokens);
  if (n)
    qsort(sorted, n, sizeof *sorted, token_compare);
  pthread_rwlock_wrlock(&auth->lock);
  bool is_newest = auth_answers(auth) == since,
       is_same = auth->n == n && tokens_equal(auth->tokens, sorted, n);
  if (is_newest && !is_same) {
    struct auth_token *old = auth->tokens;
    auth->tokens = sorted;
    sorted = old;
    auth->n = auth->capacity = n;
    generation_next(auth);
  }
  if (is_newest)
    atomic_fetch_add(&auth->answers, 1);
  pthread_rwlock_unlock(&auth->lock);
  free(sorted);
  return is_newest;
}

bool auth_is_live(struct auth *auth, int64_t id) {
  bool is_live = false;
  pthread_rwlock_rdlock(&auth->lock);
  for (size_t i = 0; i < auth->n && !is_live; i++)
    is_live = auth->tokens[i].id == id && !auth_has_expired(auth->tokens[i].expires_ms);
  pthread_rwlock_unlock(&auth->lock);
  return is_live;
}

void auth_note_use(struct auth *auth, int64_t id) {
  bool is_noted = false;
  pthread_mutex_lock(&auth->nobodies_lock);
  for (size_t i = 0; i < auth->n_used && !is_noted; i++)
    is_noted = auth->used[i] == id;
  if (!is_noted && auth->n_used < AUTH_USED_MAX)
    auth->used[auth->n_used++] = id;
  pthread_mutex_unlock(&auth->nobodies_lock);
}

size_t auth_take_used(struct auth *auth, int64_t ret_ids[AUTH_USED_MAX]) {
  pthread_mutex_lock(&auth->nobodies_lock);
  size_t n = auth->n_used;
  memcpy(ret_ids, auth->used, n * sizeof *ret_ids);
  auth->n_used = 0;
  pthread_mutex_unlock(&auth->nobodies_lock);
  return n;
}

uint64_t auth_answers(struct auth *auth) {
  return atomic_load_explicit(&auth->answers, memory_order_acquire);
}
uint64_t auth_generation(struct auth *auth) {
  return atomic_load_explicit(&auth->generation, memory_order_acquire);
}
