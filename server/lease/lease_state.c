/* The transition table of leases, and changing their state. */
#include "server/lease/lease_state.h"

#include "server/counters.h"
#include "server/db/db_record.h"

#define X(id, name) name,
const char *const lease_state_names[LEASE_STATE_COUNT + 1] = {LEASE_STATES(X)};
#undef X

const char *lease_state_name(enum lease_state state) { return lease_state_names[state]; }

/* Whether a lease may go from the row's state to the column's. */
static const bool transitions[LEASE_STATE_COUNT][LEASE_STATE_COUNT] = {
    [LEASE_OPEN] =
        {[LEASE_OPEN] = true, [LEASE_HELD] = true, [LEASE_DONE] = true, [LEASE_CANCELLED] = true},
    [LEASE_HELD] =
        {[LEASE_OPEN] = true, [LEASE_HELD] = true, [LEASE_DONE] = true, [LEASE_CANCELLED] = true},
    [LEASE_DONE] = {[LEASE_OPEN] = true, [LEASE_DONE] = true},
    [LEASE_CANCELLED] = {[LEASE_CANCELLED] = true},
};

bool lease_may_change(enum lease_state from, enum lease_state to) { return transitions[from][to]; }

static void count(struct db *db, int counter, uint64_t n) {
  (void)db;
  counter_add((enum counter)counter, n);
}

static struct lease_change change_at(const struct record *record, const void *changes, size_t i) {
  struct lease_change change;
  memcpy(&change, (const char *)changes + i * record->size, sizeof change);
  return change;
}

bool lease_change_state(struct db *db, const struct statement *statement,
                        const struct record *record, const void *changes, size_t n,
                        struct error *error) {
  static const enum counter counters[LEASE_STATE_COUNT] = {[LEASE_OPEN] = COUNTER_leases_reopened,
                                                           [LEASE_DONE] = COUNTER_leases_done,
                                                           [LEASE_CANCELLED] =
                                                               COUNTER_leases_cancelled};
  if (n == 0)
    return true;
  bool opens = false;
  for (size_t i = 0; i < n; i++) {
    struct lease_change change = change_at(record, changes, i);
    ALWAYS(lease_may_change(change.from, change.to));
    ALWAYS(change.from == LEASE_HELD || change.to != LEASE_HELD);
    opens = opens || change.to == LEASE_OPEN;
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, record, changes, n);
  if (!opens) {
    if (!db_send(db, statement, &parameters, (int64_t)n, error))
      return false;
  } else {
    if (!db_run(db, statement, &parameters, &rows, error))
      return false;
    ALWAYS(db_affected(rows) == (int64_t)n);
    lease_fronts_move_back(db, rows); /* also for those that were not opened: it does no harm */
  }

  for (size_t i = 0; i < n; i++) {
    struct lease_change change = change_at(record, changes, i);
    if (change.from != change.to)
      db_at_commit(db, count, (int)counters[change.to], 1);
  }
  return true;
}
