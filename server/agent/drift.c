/* Draining devices that drift. Memory and threads: as the header says. */
#include "server/agent/drift.h"

#include <math.h>

#include "common/base/log.h"
#include "server/agent/drift_store.h"
#include "server/counters.h"
#include "server/job/jobs.h"

#define SIGMA_OF_MAD 1.4826
#define DRAIN_ATTEMPTS 3

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *values, size_t n) {
  qsort(values, n, sizeof *values, by_value);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

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

static char *drift_reason(const struct drift *drift, const char *subject) {
  double percent = 100 * fabs(drift->now_us / drift->history_us - 1);
  return xasprintf(
      "drift: %s took %.4g us in its last %d leases on this device, %.3g %% %s than the %.4g us (sigma %.2g) of the "
      "%zu before",
      subject, drift->now_us, DRIFT_LEASES, percent, drift->now_us > drift->history_us ? "more" : "less",
      drift->history_us, drift->spread_us, drift->n_history);
}

/* One transaction, repeated when another one was in its way. */
static bool suspect_quarantine(struct worker *worker, const struct drift_note *note, const char *reason,
                               int64_t since_us, struct drift_quarantined *ret, struct error *error) {
  for (int attempt = 1;; attempt++) {
    bool ok = db_begin(worker->db, error);
    if (ok && drift_quarantine(worker->db, note->agent, note->device, reason, since_us, ret, error))
      return db_commit(worker->db, error);
    if (ok)
      db_rollback(worker->db);
    if (attempt == DRAIN_ATTEMPTS || error->kind != ERROR_CONTENTION)
      return false;
  }
}

static bool device_drain(struct worker *worker, const struct drift_note *note, const char *reason, int64_t since_us,
                         struct error *error) {
  __attribute__((cleanup(drift_quarantined_release))) struct drift_quarantined quarantined = {0};
  if (!suspect_quarantine(worker, note, reason, since_us, &quarantined, error))
    return false;
  log_warning("device: drained agent=%s device=%s measurements=%lld jobs=%zu winners=%lld reason=%s", note->agent,
              note->device, (long long)quarantined.measurements, quarantined.n, (long long)quarantined.winners, reason);
  counter_add(COUNTER_devices_drained, quarantined.is_new);
  counter_add(COUNTER_measurements_quarantined, (uint64_t)quarantined.measurements);
  counter_add(COUNTER_winners_quarantined, (uint64_t)quarantined.winners);
  for (size_t i = 0; i < quarantined.n; i++) {
    if (quarantined.jobs[i].leases)
      leases_announce(worker, &quarantined.jobs[i].hardware_digest, (size_t)quarantined.jobs[i].leases);
    job_announce(worker, quarantined.jobs[i].job);
  }
  return true;
}

static bool note_judge(struct worker *worker, const struct drift_note *note, struct error *error) {
  if (note->is_suspect) /* it got this lease, or held it, while it was being drained */
    return device_drain(worker, note, note->drain_reason, note->suspect_since_us, error);
  struct drift drift = drift_judge(note->leases, note->n_leases);
  if (!drift.is_drifting)
    return true;
  cleanup_free char *subject = NULL;
  if (!drift_subject(worker->db, note->lease, &subject, error))
    return false;
  cleanup_free char *reason = drift_reason(&drift, subject);
  return device_drain(worker, note, reason, drift.good_at_us, error);
}

void drift_look(struct worker *worker, const struct drift_end *ends, size_t n) {
  struct error error;
  __attribute__((cleanup(drift_notes_release))) struct drift_notes notes = {0};
  bool ok = n == 0 || drift_note(worker->db, ends, n, &notes, &error);
  for (size_t i = 0; ok && i < notes.n; i++)
    ok = note_judge(worker, &notes.all[i], &error);
  if (!ok)
    log_warning("drift: %s", error.message);
}
