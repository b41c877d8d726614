/* The transition table of leases, and the statements that change their state. */
#include "server/lease/lease_state.h"

#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/lease/lease.sql.h"

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

enum lease_state lease_state_after(const struct config_ranges *remaining,
                                   const struct config_ranges *less, enum lease_state otherwise) {
  for (size_t i = 0; i < remaining->n; i++)
    for (uint64_t k = 0; k < remaining->ranges[i].count; k++)
      if (!config_ranges_contain(less, remaining->ranges[i].first + k))
        return otherwise;
  return LEASE_DONE;
}

static const struct field change_fields[] = {
    RECORD_FIELD(INTEGER, struct lease_change, lease),
    RECORD_FIELD_AS("from_state", ENUM, struct lease_change, from, .names = lease_state_names),
    RECORD_FIELD_AS("to_state", ENUM, struct lease_change, to, .names = lease_state_names),
    RECORD_FIELD(RANGES, struct lease_change, less),
    RECORD_FIELD(RANGES, struct lease_change, more),
    RECORD_FIELD(BOOL, struct lease_change, is_split),
    RECORD_FIELD(INTEGER, struct lease_change, posts),
    RECORD_FIELD(INTEGER, struct lease_change, fruitless_less),
    RECORD_FIELD(INTEGER, struct lease_change, device_us),
    RECORD_FIELD(INTEGER, struct lease_change, opening_us),
    RECORD_FIELD_AS("correct", INTEGER, struct lease_change, outcomes[OUTCOME_CORRECT]),
    RECORD_FIELD_AS("compile", INTEGER, struct lease_change, outcomes[OUTCOME_COMPILE]),
    RECORD_FIELD_AS("runtime", INTEGER, struct lease_change, outcomes[OUTCOME_RUNTIME]),
    RECORD_FIELD_AS("correctness", INTEGER, struct lease_change, outcomes[OUTCOME_CORRECTNESS]),
    RECORD_FIELD_AS("timeout", INTEGER, struct lease_change, outcomes[OUTCOME_TIMEOUT]),
    RECORD_FIELD_AS("constraints", INTEGER, struct lease_change, outcomes[OUTCOME_CONSTRAINTS]),
};
static const struct record change_record = RECORD(NULL, struct lease_change, change_fields);

static void count(int counter, uint64_t n) { counter_add((enum counter)counter, n); }

bool lease_take(struct db *db, const struct lease_holder *holder, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", holder->agent);
  bind_text(&parameters, "device", holder->device);
  bind_text(&parameters, "nonce", holder->nonce);
  bind_integer(&parameters, "token", holder->token);
  bind_integer(&parameters, "lease_ms", holder->lease_ms);
  bind_lease_candidates(&parameters, holder->candidates);
  return db_send(db, &sql_lease_take, &parameters, DB_ANY_ROWS, error);
}

bool lease_change_state(struct db *db, const struct lease_change *changes, size_t n,
                        struct error *error) {
  static const enum counter counters[LEASE_STATE_COUNT] = {[LEASE_OPEN] = COUNTER_leases_reopened,
                                                           [LEASE_DONE] = COUNTER_leases_done,
                                                           [LEASE_CANCELLED] =
                                                               COUNTER_leases_cancelled};
  if (n == 0)
    return true;
  bool opens = false;
  for (size_t i = 0; i < n; i++) {
    ALWAYS(lease_may_change(changes[i].from, changes[i].to));
    ALWAYS(changes[i].from == LEASE_HELD || changes[i].to != LEASE_HELD);
    opens = opens || changes[i].to == LEASE_OPEN;
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &change_record, changes, n);
  if (!opens) {
    if (!db_send(db, &sql_lease_change_state, &parameters, (int64_t)n, error))
      return false;
  } else {
    if (!db_run(db, &sql_lease_change_state, &parameters, &rows, error))
      return false;
    ALWAYS(db_affected(rows) == (int64_t)n);
    lease_fronts_move_back(db, rows); /* also for those that were not opened: it does no harm */
  }

  for (size_t i = 0; i < n; i++)
    if (changes[i].from != changes[i].to)
      db_at_commit(db, count, (int)counters[changes[i].to], 1);
  return true;
}
