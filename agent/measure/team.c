/* Short-lived threads over numbered items. Memory and threads: see team.h. */
#include "agent/measure/team.h"

#include <pthread.h>
#include <stdatomic.h>

#define PIECE ((size_t)1 << 20)

struct team {
  atomic_size_t next;
  size_t n;
  void (*work)(void *context, size_t item);
  void *context;
};

unsigned team_size(void) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned quarter = cpus > 4 ? (unsigned)(cpus / 4) : 1;
  return quarter < 4 ? quarter : 4;
}

static void *member_run(void *context) {
  struct team *team = context;
  for (size_t item; (item = atomic_fetch_add(&team->next, 1)) < team->n;)
    team->work(team->context, item);
  return NULL;
}

/* Where a thread cannot be had, the others do its part. */
void team_run(unsigned threads, size_t n, void (*work)(void *context, size_t item), void *context) {
  struct team team = {.n = n, .work = work, .context = context};
  pthread_t members[TEAM_MAX];
  unsigned n_members = 0;
  while (n_members + 1 < threads && n_members + 1 < n && n_members + 1 < TEAM_MAX &&
         pthread_create(&members[n_members], NULL, member_run, &team) == 0)
    n_members++;
  member_run(&team);
  for (unsigned i = 0; i < n_members; i++)
    pthread_join(members[i], NULL);
}

struct comparison {
  const char *a, *b;
  size_t size;
  atomic_bool differs;
};

static void piece_compare(void *context, size_t piece) {
  struct comparison *comparison = context;
  size_t at = piece * PIECE, size = comparison->size - at < PIECE ? comparison->size - at : PIECE;
  if (!atomic_load_explicit(&comparison->differs, memory_order_relaxed) &&
      memcmp(comparison->a + at, comparison->b + at, size) != 0)
    atomic_store(&comparison->differs, true);
}

bool bytes_equal(const void *a, const void *b, size_t size) {
  struct comparison comparison = {a, b, size, false};
  size_t pieces = (size + PIECE - 1) / PIECE;
  /* Threads cost as much as comparing a piece or two. */
  team_run(pieces < 4 ? 1 : team_size(), pieces, piece_compare, &comparison);
  return !atomic_load(&comparison.differs);
}

struct pieces {
  const char *bytes;
  size_t size;
  atomic_ullong sum, product;
};

static void piece_fingerprint(void *context, size_t piece) {
  struct pieces *pieces = context;
  size_t at = piece * PIECE, size = pieces->size - at < PIECE ? pieces->size - at : PIECE;
  struct fingerprint part = fingerprint_part(pieces->bytes + at, size, at / sizeof(uint64_t));
  atomic_fetch_add(&pieces->sum, part.sum);
  atomic_fetch_add(&pieces->product, part.product);
}

struct fingerprint bytes_fingerprint(const void *bytes, size_t size) {
  struct pieces pieces = {bytes, size, 0, 0};
  size_t n = (size + PIECE - 1) / PIECE;
  team_run(n < 4 ? 1 : team_size(), n, piece_fingerprint, &pieces);
  return (struct fingerprint){atomic_load(&pieces.sum), atomic_load(&pieces.product)};
}
