/* Draining devices that drift. Memory and threads: as the header says. */
#include "server/measurement/drift.h"

#include <math.h>

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/audit/audit.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/lease/announce.h"
#include "server/lease/lease_state.h"
#include "server/measurement/drift.sql.h"

#define SIGMA_OF_MAD 1.4826
#define DRAIN_ATTEMPTS 3

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

static const struct field note_fields[] = {
    {"lease_id", FIELD_ID, offsetof(struct drift_note, lease)},
    {"agent", FIELD_TEXT, offsetof(struct drift_note, agent)},
    {"device", FIELD_TEXT, offsetof(struct drift_note, device)},
    {"drain_reason", FIELD_TEXT, offsetof(struct drift_note, drain_reason)},
    {"suspect_since_us", FIELD_INTEGER, offsetof(struct drift_note, suspect_since_us)},
    {"medians_us", FIELD_NUMBERS, offsetof(struct drift_note, medians_us)},
    {"ats_us", FIELD_NUMBERS, offsetof(struct drift_note, ats_us)},
};
static const struct record note_record = RECORD(NULL, struct drift_note, note_fields);

/* What is taken back: of which device, why, and since when. */
struct quarantine {
  const char *agent, *device, *reason;
  int64_t since_us;
};

/* A lease that the device holds, or has samples of that its job still needs; locked. */
struct locked_lease {
  int64_t id, job;
  enum lease_state state;
  bool is_held_here;
};
static const struct field locked_fields[] = {
    {"id", FIELD_ID, offsetof(struct locked_lease, id)},
    {"job_id", FIELD_ID, offsetof(struct locked_lease, job)},
    {"state", FIELD_ENUM, offsetof(struct locked_lease, state), .names = lease_state_names},
    {"is_held_here", FIELD_BOOL, offsetof(struct locked_lease, is_held_here)},
};
static const struct record locked_record = RECORD(NULL, struct locked_lease, locked_fields);

/* Samples of one lease that were taken back. */
struct taken_samples {
  int64_t job, lease, samples;
  int64_t missing;              /* of them, those that the job still needs */
  struct config_ranges configs; /* of the missing ones */
  bool fits;                    /* the lease has those configs */
  bool is_final;
};
static const struct field taken_fields[] = {
    {"job_id", FIELD_ID, offsetof(struct taken_samples, job)},
    {"lease_id", FIELD_ID, offsetof(struct taken_samples, lease)},
    {"samples", FIELD_INTEGER, offsetof(struct taken_samples, samples)},
    {"missing", FIELD_INTEGER, offsetof(struct taken_samples, missing)},
    {"configs", FIELD_RANGES, offsetof(struct taken_samples, configs)},
    {"fits", FIELD_BOOL, offsetof(struct taken_samples, fits)},
    {"is_final", FIELD_BOOL, offsetof(struct taken_samples, is_final)},
};
static const struct record taken_record = RECORD(NULL, struct taken_samples, taken_fields);

/* A job whose leases or samples were taken. */
struct drift_job {
  int64_t id, samples, missing;
  int64_t opened; /* leases of it that are open again */
  bool is_final;  /* samples of its final were taken */
  struct digest hardware_digest;
};
static const struct field job_fields[] = {
    {"job", FIELD_ID, offsetof(struct drift_job, id)},
    {"samples", FIELD_INTEGER, offsetof(struct drift_job, samples)},
    {"missing", FIELD_INTEGER, offsetof(struct drift_job, missing)},
};
static const struct record job_record = RECORD(NULL, struct drift_job, job_fields);

struct quarantined {
  bool is_new; /* the device was not known to drift before */
  int64_t winners;
  size_t n_locked, n_taken, n_jobs;
  struct locked_lease *locked; /* by rising id */
  struct taken_samples *taken; /* by rising lease */
  struct drift_job *jobs;      /* by rising id */
};

static void quarantined_release(struct quarantined *quarantined) {
  db_records_free(&locked_record, quarantined->locked, quarantined->n_locked);
  db_records_free(&taken_record, quarantined->taken, quarantined->n_taken);
  free(quarantined->jobs);
  *quarantined = (struct quarantined){0};
}
#define cleanup_quarantined __attribute__((cleanup(quarantined_release)))

static void device_bind(struct db_parameters *parameters, const struct quarantine *quarantine) {
  bind_text(parameters, "agent", quarantine->agent);
  bind_text(parameters, "device", quarantine->device);
}

/* Drains the device, if it is not drained already. */
static bool device_suspect(struct db *db, const struct quarantine *quarantine, bool *ret_is_new,
                           struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  device_bind(&parameters, quarantine);
  bind_text(&parameters, "reason", quarantine->reason);
  bind_integer(&parameters, "since_us", quarantine->since_us);
  bind_author(&parameters, &author_server);
  if (!db_run(db, &sql_drift_suspect, &parameters, &rows, error))
    return false;
  *ret_is_new = db_affected(rows) > 0;
  return !*ret_is_new || audit_note(db, &author_server, AUDIT_DRAIN, quarantine->agent,
                                    json_pack("{s:s, s:s}", "device", quarantine->device, "reason",
                                              quarantine->reason),
                                    error);
}

static bool samples_take(struct db *db, const struct quarantine *quarantine,
                         struct quarantined *quarantined, struct error *error) {
  cleanup_rows struct db_rows *locked = NULL;
  cleanup_rows struct db_rows *taken = NULL;
  cleanup_parameters struct db_parameters wanted = {0}, parameters = {0};
  device_bind(&wanted, quarantine);
  bind_integer(&wanted, "since_us", quarantine->since_us);
  if (!db_run(db, &sql_drift_lock, &wanted, &locked, error))
    return false;
  quarantined->locked = db_read_all(locked, &locked_record, &quarantined->n_locked);

  struct db_array ids;
  db_array_init(&ids);
  for (size_t i = 0; i < quarantined->n_locked; i++)
    db_array_integer(&ids, quarantined->locked[i].id);
  device_bind(&parameters, quarantine);
  bind_integer(&parameters, "since_us", quarantine->since_us);
  bind_array(&parameters, "locked", &ids);
  if (!db_run(db, &sql_drift_quarantine, &parameters, &taken, error))
    return false;
  quarantined->taken = db_read_all(taken, &taken_record, &quarantined->n_taken);
  return true;
}

static int by_id(const void *a, const void *b) {
  int64_t x = ((const struct drift_job *)a)->id, y = ((const struct drift_job *)b)->id;
  return (x > y) - (x < y);
}

/* The job in the array, which has room for it. */
static struct drift_job *job_of(struct quarantined *quarantined, int64_t id) {
  for (size_t i = 0; i < quarantined->n_jobs; i++)
    if (quarantined->jobs[i].id == id)
      return &quarantined->jobs[i];
  struct drift_job *job = &quarantined->jobs[quarantined->n_jobs++];
  *job = (struct drift_job){.id = id};
  return job;
}

/* Takes its leases from the device and opens those again that miss samples now, but for those that
 * ended with their job. Fills the jobs. */
static bool leases_open(struct db *db, struct quarantined *quarantined, struct error *error) {
  cleanup_free struct lease_change *changes = xcalloc(quarantined->n_locked, sizeof *changes);
  size_t n = 0, k = 0;
  quarantined->jobs =
      xcalloc(quarantined->n_locked + quarantined->n_taken, sizeof *quarantined->jobs);
  for (size_t i = 0; i < quarantined->n_taken; i++) {
    const struct taken_samples *taken = &quarantined->taken[i];
    struct drift_job *job = job_of(quarantined, taken->job);
    job->samples += taken->samples;
    job->missing += taken->missing;
    job->is_final |= taken->is_final;
  }

  for (size_t i = 0; i < quarantined->n_locked; i++) {
    const struct locked_lease *lease = &quarantined->locked[i];
    while (k < quarantined->n_taken && quarantined->taken[k].lease < lease->id)
      k++;
    const struct taken_samples *taken = k < quarantined->n_taken ? &quarantined->taken[k] : NULL;
    bool misses = taken && taken->lease == lease->id && taken->missing && taken->fits;
    if (lease->state == LEASE_CANCELLED || (!misses && !lease->is_held_here))
      continue;

    bool opens = lease->state == LEASE_DONE || lease->is_held_here;
    struct lease_change *change = &changes[n++];
    *change = (struct lease_change){.lease = lease->id,
                                    .from = lease->state,
                                    .to = opens ? LEASE_OPEN : lease->state,
                                    .posts = 1};
    if (misses) {
      change->more = taken->configs;
      change->outcomes[OUTCOME_CORRECT] = -taken->missing;
    }
    job_of(quarantined, lease->job)->opened += opens;
  }
  qsort(quarantined->jobs, quarantined->n_jobs, sizeof *quarantined->jobs, by_id);
  return lease_change_state(db, changes, n, error);
}

/* In the jobs' events and winners. */
static bool jobs_note(struct db *db, const struct quarantine *quarantine,
                      struct quarantined *quarantined, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  device_bind(&parameters, quarantine);
  bind_text(&parameters, "reason", quarantine->reason);
  bind_records(&parameters, &job_record, quarantined->jobs, quarantined->n_jobs);
  if (!db_run(db, &sql_drift_events, &parameters, &rows, error))
    return false;

  struct db_array finals;
  db_array_init(&finals);
  ALWAYS((size_t)db_count(rows) == quarantined->n_jobs);
  for (size_t i = 0; i < quarantined->n_jobs; i++) {
    quarantined->jobs[i].hardware_digest = db_get_digest(rows, (int)i, "hardware_digest");
    if (quarantined->jobs[i].is_final)
      db_array_integer(&finals, quarantined->jobs[i].id);
  }

  cleanup_rows struct db_rows *marked = NULL;
  cleanup_parameters struct db_parameters winners = {0};
  bind_text(&winners, "reason", quarantine->reason);
  bind_array(&winners, "jobs", &finals);
  if (!db_run(db, &sql_drift_winners, &winners, &marked, error))
    return false;
  quarantined->winners = db_affected(marked);
  return true;
}

/* One transaction, repeated when another one was in its way: drains a device, takes its leases
 * away, quarantines the samples that it gave, opens their leases again for those that their job
 * still needs, marks the winners that were decided from them, and says so in the jobs' events. Any
 * number of times for one device. */
static bool device_quarantine(struct db *db, const struct quarantine *quarantine,
                              struct quarantined *ret, struct error *error) {
  for (int attempt = 1;; attempt++) {
    quarantined_release(ret);
    bool ok = db_begin(db, error) &&
              db_end(db,
                     device_suspect(db, quarantine, &ret->is_new, error) &&
                         samples_take(db, quarantine, ret, error) && leases_open(db, ret, error) &&
                         jobs_note(db, quarantine, ret, error),
                     error);
    if (ok || attempt == DRAIN_ATTEMPTS || error->kind != ERROR_CONTENTION)
      return ok;
  }
}

static bool device_drain(struct worker *worker, const struct quarantine *quarantine,
                         struct error *error) {
  cleanup_quarantined struct quarantined quarantined = {0};
  int64_t measurements = 0;
  if (!device_quarantine(worker->db, quarantine, &quarantined, error))
    return false;

  for (size_t i = 0; i < quarantined.n_jobs; i++)
    measurements += quarantined.jobs[i].samples;
  log_warning(
      "device: drained agent=%s device=%s measurements=%lld jobs=%zu winners=%lld reason=%s",
      quarantine->agent, quarantine->device, (long long)measurements, quarantined.n_jobs,
      (long long)quarantined.winners, quarantine->reason);
  counter_add(COUNTER_devices_drained, quarantined.is_new);
  counter_add(COUNTER_measurements_quarantined, (uint64_t)measurements);
  counter_add(COUNTER_winners_quarantined, (uint64_t)quarantined.winners);
  for (size_t i = 0; i < quarantined.n_jobs; i++) {
    const struct drift_job *job = &quarantined.jobs[i];
    if (job->opened)
      leases_announce(worker, &job->hardware_digest, (size_t)job->opened);
    job_announce(worker, job->id);
  }
  return true;
}

/* `baseline 3 of matmul {"M":4096}`; the caller's. */
static bool drift_subject(struct db *db, int64_t lease, char **ret_subject, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", lease);
  if (!db_run(db, &sql_drift_subject, &parameters, &rows, error))
    return false;
  *ret_subject = xstrdup(db_get(rows, 0, "subject"));
  return true;
}

static char *drift_reason(const struct drift *drift, const char *subject) {
  double percent = 100 * fabs(drift->now_us / drift->history_us - 1);
  return xasprintf("drift: %s took %.4g us in its last %d leases on this device, %.3g %% %s than "
                   "the %.4g us (sigma %.2g) of the "
                   "%zu before",
                   subject, drift->now_us, DRIFT_LEASES, percent,
                   drift->now_us > drift->history_us ? "more" : "less", drift->history_us,
                   drift->spread_us, drift->n_history);
}

static bool note_judge(struct worker *worker, const struct drift_note *note, struct error *error) {
  struct quarantine quarantine = {note->agent, note->device, note->drain_reason,
                                  note->suspect_since_us};
  if (note->suspect_since_us !=
      FIELD_NONE) /* it got this lease, or held it, while it was being drained */
    return device_drain(worker, &quarantine, error);

  size_t n = note->medians_us.n;
  cleanup_free struct drift_lease *leases = xcalloc(n, sizeof *leases);
  for (size_t i = 0; i < n; i++)
    leases[i] = (struct drift_lease){note->medians_us.all[i], (int64_t)note->ats_us.all[i]};
  struct drift drift = drift_judge(leases, n);
  if (!drift.is_drifting)
    return true;

  cleanup_free char *subject = NULL;
  if (!drift_subject(worker->db, note->lease, &subject, error))
    return false;
  cleanup_free char *reason = drift_reason(&drift, subject);
  quarantine.reason = reason;
  quarantine.since_us = drift.good_at_us;
  return device_drain(worker, &quarantine, error);
}

void drift_note_release(struct drift_note *note) {
  if (note->lease)
    record_release(&note_record, note);
  note->lease = 0;
}

bool drift_note(struct db *db, int64_t lease, int64_t epoch, struct drift_note *ret,
                struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", lease);
  bind_integer(&parameters, "epoch", epoch);
  bind_integer(&parameters, "history", DRIFT_HISTORY_MAX + DRIFT_LEASES - 1);
  if (!db_run(db, &sql_drift_note, &parameters, &rows, error))
    return false;

  ret->lease = 0;
  if (db_count(rows) > 0)
    db_read(rows, 0, &note_record, ret);
  return true;
}

void drift_look(struct worker *worker, const struct drift_note *note) {
  struct error error;
  if (note->lease && !note_judge(worker, note, &error))
    log_warning("drift: %s", error.message);
}
