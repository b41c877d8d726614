/* Judging whether devices drift, and quarantining what drifting devices measured. */
#include "server/measurement/drift.h"

#include <math.h>

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/audit/audit.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/measurement/drift.sql.h"
#include "server/measurement/leases.h"

#define SIGMA_OF_MAD 1.4826

struct drift drift_judge(const struct drift_lease *leases, size_t n) {
  struct drift drift = {0};
  double values[DRIFT_HISTORY_MAX];
  if (n < DRIFT_LEASES + DRIFT_HISTORY_MIN)
    return drift;

  const struct drift_lease *newest = leases + n - DRIFT_LEASES;
  drift.n_history = n - DRIFT_LEASES < DRIFT_HISTORY_MAX ? n - DRIFT_LEASES : DRIFT_HISTORY_MAX;
  const struct drift_lease *history = newest - drift.n_history;
  for (size_t i = 0; i < drift.n_history; i++)
    values[i] = history[i].median_us;
  drift.history_us = median_of(values, drift.n_history);
  for (size_t i = 0; i < drift.n_history; i++)
    values[i] = fabs(history[i].median_us - drift.history_us);
  drift.spread_us = SIGMA_OF_MAD * median_of(values, drift.n_history);

  double most = fmax(DRIFT_SHARE * drift.history_us, DRIFT_SPREADS * drift.spread_us);
  for (size_t i = 0; i < drift.n_history; i++)
    if (fabs(history[i].median_us - drift.history_us) <= most)
      drift.good_at_us = history[i].at_us;

  size_t n_slower = 0, n_faster = 0;
  for (size_t i = 0; i < DRIFT_LEASES; i++) {
    drift.now_us += newest[i].median_us / DRIFT_LEASES;
    n_slower += newest[i].median_us - drift.history_us > most;
    n_faster += drift.history_us - newest[i].median_us > most;
  }

  drift.is_drifting = newest[-1].at_us - history->at_us >= DRIFT_HISTORY_SPAN_US &&
                      (n_slower == DRIFT_LEASES || n_faster == DRIFT_LEASES);
  return drift;
}

/* A lease that the device holds, or that has samples of the device which its job still needs; its
 * row is locked. */
struct locked_lease {
  int64_t id, job;
  enum lease_state state;
  bool is_held_here;
};
static const struct field locked_fields[] = {
    RECORD_FIELD(ID, struct locked_lease, id),
    RECORD_FIELD_AS("job_id", ID, struct locked_lease, job),
    RECORD_FIELD(ENUM, struct locked_lease, state, .names = lease_state_names),
    RECORD_FIELD(BOOL, struct locked_lease, is_held_here),
};
static const struct record locked_record = RECORD(NULL, struct locked_lease, locked_fields);

/* Samples of one lease that were quarantined. */
struct taken_samples {
  int64_t job, lease, samples;
  int64_t missing;              /* how many of them the job still needs */
  struct config_ranges configs; /* of the missing samples */
  bool fits;                    /* the lease still has those configs */
  bool is_final;
};
static const struct field taken_fields[] = {
    RECORD_FIELD_AS("job_id", ID, struct taken_samples, job),
    RECORD_FIELD_AS("lease_id", ID, struct taken_samples, lease),
    RECORD_FIELDS(INTEGER, struct taken_samples, samples, missing),
    RECORD_FIELD(RANGES, struct taken_samples, configs),
    RECORD_FIELDS(BOOL, struct taken_samples, fits, is_final),
};
static const struct record taken_record = RECORD(NULL, struct taken_samples, taken_fields);

/* A job that lost leases or samples. */
struct drained_job {
  int64_t id, samples, missing;
  int64_t opened; /* its leases that are open again */
  bool is_final;  /* samples of its final were quarantined */
  struct digest hardware_digest;
};
static const struct field job_fields[] = {
    RECORD_FIELD_AS("job", ID, struct drained_job, id),
    RECORD_FIELDS(INTEGER, struct drained_job, samples, missing),
};
static const struct record job_record = RECORD(NULL, struct drained_job, job_fields);

/* Which device is drained, why, and since when its samples are not trusted; and its leases and
 * samples that are concerned. */
struct drain {
  const char *agent, *device, *reason;
  int64_t since_us;

  bool is_new; /* the device was not known to drift before */
  int64_t winners;
  size_t n_locked, n_taken, n_jobs;
  struct locked_lease *locked; /* by rising id */
  struct taken_samples *taken; /* by rising lease */
  struct drained_job *jobs;
};

static void drain_clear(struct drain *drain) {
  db_records_free(&locked_record, drain->locked, drain->n_locked);
  db_records_free(&taken_record, drain->taken, drain->n_taken);
  free(drain->jobs);
  *drain = (struct drain){drain->agent, drain->device, drain->reason, drain->since_us};
}
#define cleanup_drain __attribute__((cleanup(drain_clear)))

/* Drains the device, unless it is drained already. */
static bool device_suspect(struct db *db, struct drain *drain, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_drift_suspect, error, BIND("agent", drain->agent), BIND("device", drain->device),
      BIND("reason", drain->reason), BIND("since_us", drain->since_us),
      BIND("author", author_server.name), parameter_id("author_id", author_server.token));
  if (!rows)
    return false;

  drain->is_new = db_affected(rows) > 0;
  return !drain->is_new ||
         audit_note(db, &author_server, AUDIT_DRAIN, drain->agent,
                    json_pack("{s:s, s:s}", "device", drain->device, "reason", drain->reason),
                    error);
}

/* Locks the leases and quarantines the samples. */
static bool samples_take(struct db *db, struct drain *drain, struct error *error) {
  drain->locked = db_list(db, &sql_drift_lock, &locked_record, &drain->n_locked, error,
                          BIND("agent", drain->agent), BIND("device", drain->device),
                          BIND("since_us", drain->since_us));
  if (!drain->locked)
    return false;

  cleanup_free int64_t *ids = xcalloc(drain->n_locked + 1, sizeof *ids);
  for (size_t i = 0; i < drain->n_locked; i++)
    ids[i] = drain->locked[i].id;
  drain->taken =
      db_list(db, &sql_drift_quarantine, &taken_record, &drain->n_taken, error,
              BIND("agent", drain->agent), BIND("device", drain->device),
              BIND("since_us", drain->since_us), BIND_ALL("locked", ids, drain->n_locked));
  return drain->taken != NULL;
}

/* The entry of the job, which is added if there is none; the array has room for it. */
static struct drained_job *job_of(struct drain *drain, int64_t id) {
  for (size_t i = 0; i < drain->n_jobs; i++)
    if (drain->jobs[i].id == id)
      return &drain->jobs[i];
  struct drained_job *job = &drain->jobs[drain->n_jobs++];
  *job = (struct drained_job){.id = id};
  return job;
}

/* Opens the leases that the device holds and those that now miss samples, except leases that were
 * cancelled with their job. Fills the jobs. */
static bool leases_open(struct db *db, struct drain *drain, struct error *error) {
  cleanup_free struct measure_change *changes = xcalloc(drain->n_locked, sizeof *changes);
  size_t n = 0, k = 0;
  drain->jobs = xcalloc(drain->n_locked + drain->n_taken, sizeof *drain->jobs);
  for (size_t i = 0; i < drain->n_taken; i++) {
    const struct taken_samples *taken = &drain->taken[i];
    struct drained_job *job = job_of(drain, taken->job);
    job->samples += taken->samples;
    job->missing += taken->missing;
    job->is_final |= taken->is_final;
  }

  for (size_t i = 0; i < drain->n_locked; i++) {
    const struct locked_lease *lease = &drain->locked[i];
    while (k < drain->n_taken && drain->taken[k].lease < lease->id)
      k++;
    const struct taken_samples *taken = &drain->taken[k];
    bool misses = k < drain->n_taken && taken->lease == lease->id && taken->missing && taken->fits;
    if (lease->state == LEASE_CANCELLED || (!misses && !lease->is_held_here))
      continue;

    bool opens = lease->state == LEASE_DONE || lease->is_held_here;
    struct measure_change *change = &changes[n++];
    *change = (struct measure_change){.lease = lease->id,
                                      .from = lease->state,
                                      .to = opens ? LEASE_OPEN : lease->state,
                                      .posts = 1};
    if (misses) {
      change->more = taken->configs;
      change->outcomes[OUTCOME_CORRECT] = -taken->missing;
    }
    job_of(drain, lease->job)->opened += opens;
  }

  return measure_change_state(db, changes, n, error);
}

/* Adds the jobs' events, and quarantines the winners of those jobs whose final lost samples. */
static bool jobs_note(struct db *db, struct drain *drain, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_values(&parameters, BIND("agent", drain->agent), BIND("device", drain->device),
              BIND("reason", drain->reason));
  bind_records(&parameters, &job_record, drain->jobs, drain->n_jobs);
  if (!db_run(db, &sql_drift_events, &parameters, &rows, error))
    return false;

  size_t n_finals = 0;
  cleanup_free int64_t *finals = xcalloc((size_t)db_count(rows) + 1, sizeof *finals);
  for (int row = 0; row < db_count(rows); row++) {
    struct drained_job *job = job_of(drain, db_get_integer(rows, row, "id"));
    job->hardware_digest = db_get_digest(rows, row, "hardware_digest");
    if (job->is_final)
      finals[n_finals++] = job->id;
  }

  cleanup_rows struct db_rows *marked =
      db_query(db, &sql_drift_winners, error, BIND("reason", drain->reason),
               BIND_ALL("jobs", finals, n_finals));
  if (!marked)
    return false;

  drain->winners = db_affected(marked);
  return true;
}

static bool drain_store(struct db *db, void *context, struct error *error) {
  struct drain *drain = context;
  drain_clear(drain);
  return device_suspect(db, drain, error) && samples_take(db, drain, error) &&
         leases_open(db, drain, error) && jobs_note(db, drain, error);
}

/* Drains a device, takes its leases away, quarantines its samples and the winners that were decided
 * from them, opens leases again for samples that their jobs still need, and adds events to the
 * jobs: in one transaction, which is repeated after a conflict with another one. May run any number
 * of times for one device. */
static bool device_drain(struct worker *worker, const char *agent, const char *device,
                         const char *reason, int64_t since_us, struct error *error) {
  cleanup_drain struct drain drain = {agent, device, reason, since_us};
  if (!db_transaction(worker->db, DB_ATTEMPTS, drain_store, &drain, error))
    return false;

  int64_t measurements = 0;
  for (size_t i = 0; i < drain.n_jobs; i++) {
    const struct drained_job *job = &drain.jobs[i];
    measurements += job->samples;
    if (job->opened)
      leases_announce(worker, &job->hardware_digest, (size_t)job->opened);
    job_announce(worker, job->id);
  }

  log_warning(
      "device: drained agent=%s device=%s measurements=%lld jobs=%zu winners=%lld reason=%s", agent,
      device, (long long)measurements, drain.n_jobs, (long long)drain.winners, reason);
  counter_add(COUNTER_devices_drained, drain.is_new);
  counter_add(COUNTER_measurements_quarantined, (uint64_t)measurements);
  counter_add(COUNTER_winners_quarantined, (uint64_t)drain.winners);
  return true;
}

static const struct field note_fields[] = {
    RECORD_FIELD_AS("lease_id", ID, struct drift_note, lease),
    RECORD_FIELDS(TEXT, struct drift_note, agent, device, drain_reason),
    RECORD_FIELD(INTEGER, struct drift_note, suspect_since_us),
    RECORD_FIELDS(NUMBERS, struct drift_note, medians_us, ats_us),
};
static const struct record note_record = RECORD(NULL, struct drift_note, note_fields);

void drift_note_release(struct drift_note *note) {
  if (note->lease)
    record_release(&note_record, note);
  note->lease = 0;
}

bool drift_note(struct db *db, int64_t job, int64_t lease, int64_t epoch, struct drift_note *ret,
                struct error *error) {
  bool is_noted;
  ret->lease = 0;
  return db_find(db, &sql_drift_note, &note_record, ret, &is_noted, error, BIND("job", job),
                 BIND("lease", lease), BIND("epoch", epoch),
                 BIND("history", DRIFT_HISTORY_MAX + DRIFT_LEASES - 1));
}

static bool note_judge(struct worker *worker, const struct drift_note *note, struct error *error) {
  /* The device held this lease, or was granted it, while it was being drained. */
  if (note->suspect_since_us != FIELD_NONE)
    return device_drain(worker, note->agent, note->device, note->drain_reason,
                        note->suspect_since_us, error);

  size_t n = note->medians_us.n;
  cleanup_free struct drift_lease *leases = xcalloc(n, sizeof *leases);
  for (size_t i = 0; i < n; i++)
    leases[i] = (struct drift_lease){note->medians_us.all[i], (int64_t)note->ats_us.all[i]};
  struct drift drift = drift_judge(leases, n);
  if (!drift.is_drifting)
    return true;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_drift_subject, error, BIND("lease", note->lease));
  if (!rows)
    return false;

  cleanup_free char *reason =
      xasprintf("drift: %s took %.4g us in its last %d leases on this device, %.3g %% %s than the "
                "%.4g us (sigma %.2g) of the %zu before",
                db_get(rows, 0, "subject"), drift.now_us, DRIFT_LEASES,
                100 * fabs(drift.now_us / drift.history_us - 1),
                drift.now_us > drift.history_us ? "more" : "less", drift.history_us,
                drift.spread_us, drift.n_history);
  return device_drain(worker, note->agent, note->device, reason, drift.good_at_us, error);
}

void drift_check(struct worker *worker, const struct drift_note *note) {
  struct error error;
  if (note->lease && !note_judge(worker, note, &error))
    log_warning("drift: %s", error.message);
}
