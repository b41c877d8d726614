/* Locks, changes, inserts and cancels leases of configs. */
#include "server/measurement/leases.h"

#include "common/campaign/campaign.h"
#include "server/db/db_record.h"
#include "server/lease/lease_front.h"
#include "server/measurement/leases.sql.h"

static const struct field lease_fields[] = {
    RECORD_FIELD_AS("job_id", INTEGER, struct lease, job),
    RECORD_FIELDS(INTEGER, struct lease, id, owner_id, epoch, round, process, posts, fruitless,
                  epoch_opening_us, handed_back_times, baseline),
    RECORD_FIELDS(TEXT, struct lease, agent, device, handed_back),
    RECORD_FIELDS(RANGES, struct lease, configs, remaining),
    RECORD_FIELD(ENUM, struct lease, state, .names = lease_state_names),
    RECORD_FIELD(ENUM, struct lease, stage, .names = stage_names),
    RECORD_FIELD(ENUM, struct lease, regime, .names = regime_names),
    RECORD_FIELD(NUMBER, struct lease, best_ratio),
    RECORD_FIELD(BOOL, struct lease, has_budget),
    RECORD_FIELD(DIGEST, struct lease, hardware_digest),
};
static const struct record lease_record = RECORD(NULL, struct lease, lease_fields);

enum lease_state lease_state_after(const struct config_ranges *remaining,
                                   const struct config_ranges *less, enum lease_state otherwise) {
  for (size_t i = 0; i < remaining->n; i++)
    for (uint64_t k = 0; k < remaining->ranges[i].count; k++)
      if (!config_ranges_contain(less, remaining->ranges[i].first + k))
        return otherwise;
  return LEASE_DONE;
}

static const struct field change_fields[] = {
    RECORD_FIELDS(INTEGER, struct measure_change, lease, posts, fruitless_less, device_us,
                  opening_us),
    RECORD_FIELD_AS("from_state", ENUM, struct measure_change, from, .names = lease_state_names),
    RECORD_FIELD_AS("to_state", ENUM, struct measure_change, to, .names = lease_state_names),
    RECORD_FIELDS(RANGES, struct measure_change, less, more),
    RECORD_FIELD(BOOL, struct measure_change, is_split),
    RECORD_FIELD_AS("correct", INTEGER, struct measure_change, outcomes[OUTCOME_CORRECT]),
    RECORD_FIELD_AS("compile", INTEGER, struct measure_change, outcomes[OUTCOME_COMPILE]),
    RECORD_FIELD_AS("runtime", INTEGER, struct measure_change, outcomes[OUTCOME_RUNTIME]),
    RECORD_FIELD_AS("correctness", INTEGER, struct measure_change, outcomes[OUTCOME_CORRECTNESS]),
    RECORD_FIELD_AS("timeout", INTEGER, struct measure_change, outcomes[OUTCOME_TIMEOUT]),
    RECORD_FIELD_AS("constraints", INTEGER, struct measure_change, outcomes[OUTCOME_CONSTRAINTS]),
};
static const struct record change_record = RECORD(NULL, struct measure_change, change_fields);

bool measure_change_state(struct db *db, const struct measure_change *changes, size_t n,
                          struct error *error) {
  return lease_change_state(db, &sql_lease_change_state, &change_record, changes, n, error);
}

void lease_release(struct lease *lease) { record_release(&lease_record, lease); }

bool lease_lock(struct db *db, int64_t id, struct lease *ret, bool *ret_known,
                struct error *error) {
  return db_find(db, &sql_lease_lock, &lease_record, ret, ret_known, error, BIND("lease", id));
}

bool lease_lock_for_results(struct db *db, int64_t id, struct lease *ret, bool *ret_known,
                            struct error *error) {
  return db_find(db, &sql_results_lock, &lease_record, ret, ret_known, error, BIND("lease", id));
}

bool lease_give_up(struct db *db, const struct given_up *given, struct error *error) {
  cleanup_lease struct lease lease = {0};
  bool is_known;
  if (!lease_lock(db, given->lease, &lease, &is_known, error))
    return false;

  bool may_give =
      is_known && (lease.state == LEASE_OPEN || (lease.state == LEASE_HELD && given->poison));
  if (!may_give ||
      (given->config >= 0 && !config_ranges_contain(&lease.remaining, (uint64_t)given->config)))
    return true;

  cleanup_config_ranges struct config_ranges one = {0};
  if (given->config >= 0)
    config_ranges_add(&one, (uint64_t)given->config);
  const struct config_ranges *configs = given->config < 0 ? &lease.remaining : &one;

  if (!db_execute(db, &sql_lease_give_up, error, BIND("lease", given->lease),
                  BIND("given", configs), BIND("detail", given->detail),
                  BIND("was_run", given->was_run),
                  BIND("config", given->config >= 0 ? given->config : FIELD_NONE),
                  parameter_id("poison", given->poison)))
    return false;

  struct measure_change change = {.lease = given->lease,
                                  .from = lease.state,
                                  .to = lease_state_after(&lease.remaining, configs, lease.state),
                                  .less = *configs,
                                  .is_split = lease.state == LEASE_HELD};
  if (given->was_run)
    change.outcomes[OUTCOME_RUNTIME] = (int64_t)config_ranges_count(configs);
  return measure_change_state(db, &change, 1, error);
}

static const struct field new_fields[] = {
    RECORD_FIELDS(INTEGER, struct new_lease, job, process),
    RECORD_FIELD(RANGES, struct new_lease, configs),
    RECORD_FIELDS(BOOL, struct new_lease, is_large, is_reserved),
};
static const struct record new_record = RECORD(NULL, struct new_lease, new_fields);

bool leases_insert(struct db *db, enum stage stage, int64_t round, const struct new_lease *leases,
                   size_t n, struct error *error) {
  if (n == 0)
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("stage", stage_name(stage)), BIND("round", round));
  bind_records(&parameters, &new_record, leases, n);
  if (!db_run(db, &sql_leases_insert, &parameters, &rows, error))
    return false;
  lease_fronts_move_back(db, rows);
  return true;
}

static const struct field locked_fields[] = {
    RECORD_FIELD_AS("id", INTEGER, struct lease_change, lease),
    RECORD_FIELD_AS("state", ENUM, struct lease_change, from, .names = lease_state_names)};
static const struct record locked_record = RECORD(NULL, struct lease_change, locked_fields);

bool leases_change_locked(struct db *db, const struct db_rows *rows,
                          const struct measure_change *change, struct error *error) {
  size_t n = (size_t)db_count(rows);
  cleanup_free struct measure_change *changes = xcalloc(n + 1, sizeof *changes);
  for (size_t i = 0; i < n; i++) {
    struct lease_change locked;
    db_read(rows, (int)i, &locked_record, &locked);
    changes[i] = *change;
    changes[i].lease = locked.lease;
    changes[i].from = locked.from;
  }
  return measure_change_state(db, changes, n, error);
}

static bool locked_cancel(struct db *db, const struct db_rows *rows, struct error *error) {
  return leases_change_locked(db, rows, &(struct measure_change){.to = LEASE_CANCELLED}, error);
}

bool lease_note_cancelled(struct db *db, int64_t job, int64_t n, struct error *error) {
  return db_execute(db, &sql_lease_note_cancelled, error, BIND("job", job), BIND("leases", n));
}

/* In the caller's transaction. *ret_any: whether there were any. */
static bool open_cancel(struct db *db, int64_t job, bool *ret_any, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_leases_cancel_over_budget, error, BIND("job", job));
  *ret_any = rows && db_count(rows) > 0;
  return rows && (!*ret_any || (locked_cancel(db, rows, error) &&
                                lease_note_cancelled(db, job, db_count(rows), error)));
}

bool lease_settle_budget(struct worker *worker, int64_t job, bool *ret_is_spent,
                         struct error *error) {
  *ret_is_spent = false;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_budget, error, BIND("job", job));
  if (!rows || !db_count(rows))
    return rows != NULL;

  struct budget budget = db_get_budget(rows, 0);
  if (budget_screen_left_us(&budget, final_processes(db_get_integer(rows, 0, "final_devices"))))
    return true;

  bool any;
  if (!db_begin(worker->db, error) ||
      !db_end(worker->db, open_cancel(worker->db, job, &any, error), error))
    return false;
  *ret_is_spent = any;
  if (any)
    job_announce(worker, job);
  return true;
}

bool leases_cancel_ended(struct db *db, const int64_t *jobs, size_t n, struct error *error) {
  if (!db_begin(db, error))
    return false;
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_leases_cancel_ended, error, BIND_ALL("jobs", jobs, n));
  return db_end(db, rows && locked_cancel(db, rows, error), error);
}

bool leases_cancel_all_ended(struct worker *worker, struct error *error) {
  struct db *db = worker->db;
  if (!db_begin(db, error))
    return false;
  cleanup_rows struct db_rows *rows = db_query(db, &sql_leases_cancel_all_ended, error);
  return db_end(db, rows && locked_cancel(db, rows, error), error);
}

bool jobs_raise_leases(struct db *db, const int64_t *jobs, size_t n, struct error *error) {
  if (n == 0)
    return true;

  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_jobs_raise_leases, error, BIND_ALL("jobs", jobs, n));
  if (!rows)
    return false;
  lease_fronts_move_back(db, rows);
  return true;
}

char *job_park_key(int64_t job, char text[PARK_KEY_SIZE]) {
  snprintf(text, PARK_KEY_SIZE, "job:%lld", (long long)job);
  return text;
}

void job_announce(struct worker *worker, int64_t job) {
  char key[PARK_KEY_SIZE];
  park_wake(worker->server, job_park_key(job, key), SIZE_MAX);
}
