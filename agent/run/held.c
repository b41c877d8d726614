/* The table of held leases; `mutex` guards all of it. */
#include "agent/run/held.h"

#include <time.h>

#include "common/base/lock.h"

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
  size_t n;
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
  array_foreach (held, table->held, table->n)
    config_ranges_release(&held->configs);
  free(table->held);
  free(table);
}

/* A lease of the table, which is locked; NULL: there is no such lease. */
static struct held *held_find(const struct held_table *table, const char *lease, int64_t epoch) {
  array_foreach (at, table->held, table->n)
    if (at->epoch == epoch && string_equal(at->lease, lease))
      return at;
  return NULL;
}

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
  HOLD(&table->mutex);
  struct held *held = held_find(table, grant->lease, grant->epoch);
  if (held)
    held_remove(table, held);
  held = APPEND(table->held, table->n);
  *held = (struct held){
      .epoch = grant->epoch,
      .renew_every_ms =
          grant->renew_every_ms > RENEW_LEAST_MS ? grant->renew_every_ms : RENEW_LEAST_MS,
      .current = grant->current,
  };
  snprintf(held->lease, sizeof held->lease, "%s", grant->lease);
  expiry_set(held, grant->requested_ms, grant->expires_in_ms);
}

bool held_is_alive(struct held_table *table, const char *lease, int64_t epoch) {
  HOLD(&table->mutex);
  const struct held *held = held_find(table, lease, epoch);
  return held && !held->is_lost && held_clock_ms() < held->expires_ms - held->margin_ms;
}

void held_lose(struct held_table *table, const char *lease, int64_t epoch) {
  HOLD(&table->mutex);
  struct held *held = held_find(table, lease, epoch);
  if (held)
    held->is_lost = true;
}

void held_limit(struct held_table *table, const char *lease, int64_t epoch,
                struct config_ranges *taken) {
  HOLD(&table->mutex);
  struct held *held = held_find(table, lease, epoch);
  if (held) {
    struct config_ranges before = held->configs;
    held->configs = *taken;
    held->is_limited = true;
    *taken = before;
  }
  config_ranges_release(taken);
}

bool held_has(struct held_table *table, const char *lease, int64_t epoch, uint64_t config) {
  HOLD(&table->mutex);
  const struct held *held = held_find(table, lease, epoch);
  return held && (!held->is_limited || config_ranges_contain(&held->configs, config));
}

void held_end(struct held_table *table, const char *lease, int64_t epoch) {
  HOLD(&table->mutex);
  struct held *held = held_find(table, lease, epoch);
  if (held)
    held->current = NULL;
}

void held_drop(struct held_table *table, const char *lease, int64_t epoch) {
  HOLD(&table->mutex);
  struct held *held = held_find(table, lease, epoch);
  if (held)
    held_remove(table, held);
}

void held_renewed(struct held_table *table, const char *lease, int64_t epoch, int64_t requested_ms,
                  int64_t expires_in_ms) {
  HOLD(&table->mutex);
  struct held *held = held_find(table, lease, epoch);
  if (held)
    expiry_set(held, requested_ms, expires_in_ms);
}

bool held_next_due(struct held_table *table, struct held_due *ret_due, int64_t *ret_wait_ms) {
  HOLD(&table->mutex);
  int64_t now_ms = held_clock_ms();
  struct held *first = NULL;

  /* Leases that are lost or expired are not renewed; they are removed once measuring has ended. */
  for (size_t i = table->n; i-- > 0;) {
    struct held *held = &table->held[i];
    if (!held->current && (held->is_lost || now_ms >= held->expires_ms))
      held_remove(table, held);
  }

  array_foreach (held, table->held, table->n) {
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
  return is_due;
}
