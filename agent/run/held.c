/* The table of held leases; `mutex` guards all of it. */
#include "agent/run/held.h"

#include <pthread.h>
#include <time.h>

#define MARGIN_MAX_MS 2000 /* long enough to kill a worker */
#define RETRY_MS 500       /* before a renewal that failed is tried again */
/* the least interval between renewals, even if the server requests a shorter one */
#define RENEW_LEAST_MS 20

struct held {
  char lease[sizeof((struct held_due *)0)->lease];
  int64_t epoch;
  int64_t expires_ms, margin_ms;
  int64_t renew_every_ms, renew_ms;
  bool is_lost;
  const _Atomic uint64_t *current; /* NULL: nothing is measured for it any more */
  bool is_limited;                 /* to `configs` */
  struct config_ranges configs;
};

struct held_table {
  pthread_mutex_t mutex;
  size_t n, capacity;
  struct held *held;
};

int64_t held_clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct held_table *held_table_new(void) {
  struct held_table *table = xcalloc(1, sizeof *table);
  pthread_mutex_init(&table->mutex, NULL);
  return table;
}

void held_table_free(struct held_table *table) {
  pthread_mutex_destroy(&table->mutex);
  for (size_t i = 0; i < table->n; i++)
    config_ranges_release(&table->held[i].configs);
  free(table->held);
  free(table);
}

/* Locks the table and finds a lease in it; NULL: there is no such lease. */
static struct held *held_lock(struct held_table *table, const char *lease, int64_t epoch) {
  pthread_mutex_lock(&table->mutex);
  for (size_t i = 0; i < table->n; i++)
    if (table->held[i].epoch == epoch && string_equal(table->held[i].lease, lease))
      return &table->held[i];
  return NULL;
}

static void held_unlock(struct held_table *table) { pthread_mutex_unlock(&table->mutex); }

static void held_remove(struct held_table *table, struct held *held) {
  config_ranges_release(&held->configs);
  *held = table->held[--table->n];
}

static void expiry_set(struct held *held, int64_t requested_ms, int64_t expires_in_ms) {
  held->expires_ms = requested_ms + expires_in_ms;
  held->margin_ms = expires_in_ms / 5 < MARGIN_MAX_MS ? expires_in_ms / 5 : MARGIN_MAX_MS;
  held->renew_ms = requested_ms + held->renew_every_ms;
}

void held_add(struct held_table *table, const struct held_grant *grant) {
  struct held *held = held_lock(table, grant->lease, grant->epoch);
  if (held)
    held_remove(table, held);
  GROW(table->held, table->n, table->capacity);
  held = &table->held[table->n++];
  *held = (struct held){
      .epoch = grant->epoch,
      .renew_every_ms =
          grant->renew_every_ms > RENEW_LEAST_MS ? grant->renew_every_ms : RENEW_LEAST_MS,
      .current = grant->current,
  };
  snprintf(held->lease, sizeof held->lease, "%s", grant->lease);
  expiry_set(held, grant->requested_ms, grant->expires_in_ms);
  held_unlock(table);
}

bool held_is_alive(struct held_table *table, const char *lease, int64_t epoch) {
  const struct held *held = held_lock(table, lease, epoch);
  bool is_alive = held && !held->is_lost && held_clock_ms() < held->expires_ms - held->margin_ms;
  held_unlock(table);
  return is_alive;
}

void held_lose(struct held_table *table, const char *lease, int64_t epoch) {
  struct held *held = held_lock(table, lease, epoch);
  if (held)
    held->is_lost = true;
  held_unlock(table);
}

void held_limit(struct held_table *table, const char *lease, int64_t epoch,
                struct config_ranges *taken) {
  struct held *held = held_lock(table, lease, epoch);
  if (held) {
    struct config_ranges before = held->configs;
    held->configs = *taken;
    held->is_limited = true;
    *taken = before;
  }

  held_unlock(table);
  config_ranges_release(taken);
}

bool held_has(struct held_table *table, const char *lease, int64_t epoch, uint64_t config) {
  const struct held *held = held_lock(table, lease, epoch);
  bool has = held && !held->is_limited;
  for (size_t i = 0; held && i < held->configs.n && !has; i++) {
    const struct config_range *range = &held->configs.ranges[i];
    has = config >= range->first && config - range->first < range->count;
  }
  held_unlock(table);
  return has;
}

void held_end(struct held_table *table, const char *lease, int64_t epoch) {
  struct held *held = held_lock(table, lease, epoch);
  if (held)
    held->current = NULL;
  held_unlock(table);
}

void held_drop(struct held_table *table, const char *lease, int64_t epoch) {
  struct held *held = held_lock(table, lease, epoch);
  if (held)
    held_remove(table, held);
  held_unlock(table);
}

void held_renewed(struct held_table *table, const char *lease, int64_t epoch, int64_t requested_ms,
                  int64_t expires_in_ms) {
  struct held *held = held_lock(table, lease, epoch);
  if (held)
    expiry_set(held, requested_ms, expires_in_ms);
  held_unlock(table);
}

bool held_next_due(struct held_table *table, struct held_due *ret_due, int64_t *ret_wait_ms) {
  pthread_mutex_lock(&table->mutex);
  int64_t now_ms = held_clock_ms();
  struct held *first = NULL;

  /* Leases that are lost or expired are not renewed; they are removed once measuring has ended. */
  for (size_t i = table->n; i-- > 0;) {
    struct held *held = &table->held[i];
    if (!held->current && (held->is_lost || now_ms >= held->expires_ms))
      held_remove(table, held);
  }

  for (size_t i = 0; i < table->n; i++) {
    struct held *held = &table->held[i];
    if (!held->is_lost && now_ms < held->expires_ms && (!first || held->renew_ms < first->renew_ms))
      first = held;
  }

  bool is_due = first && first->renew_ms <= now_ms;
  *ret_wait_ms = first ? first->renew_ms - now_ms : INT64_MAX;
  if (is_due) {
    *ret_due = (struct held_due){
        .epoch = first->epoch,
        .config = first->current ? atomic_load(first->current) : UINT64_MAX,
        .left_ms = first->expires_ms - now_ms,
    };
    memcpy(ret_due->lease, first->lease, sizeof first->lease);
    first->renew_ms =
        now_ms + (RETRY_MS < first->renew_every_ms ? RETRY_MS : first->renew_every_ms);
  }

  held_unlock(table);
  return is_due;
}
