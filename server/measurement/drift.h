/* Whether a device drifts from its own history.
 *
 * The baseline of a job is measured in every lease, so every lease shows how long one config takes
 * on this device now. Two leases are comparable when device, kernel, key, space, baseline,
 * environment, build, stage, regime and timer are the same. What they share is called a subject.
 * Measuring in pairs cancels drift within a process. It does not cancel what throttling, sharing or
 * a defect does to the ratio between a config that is bound by memory and one that is bound by
 * arithmetic. So the device is drained, and its measurements since its last good lease are not
 * trusted.
 *
 * The rule. Of the medians of a subject's leases on a device, oldest first, the newest DRIFT_LEASES
 * are compared with those before them, the history, at most DRIFT_HISTORY_MAX:
 *   - the history has at least DRIFT_HISTORY_MIN leases and spans at least DRIFT_HISTORY_SPAN_US:
 *     leases of one minute share its clock and temperature, so that their spread is too small;
 *   - each of the newest deviates from the history's median m, to the same side, by more than
 *     max(DRIFT_SHARE * m, DRIFT_SPREADS * s), s the history's scaled median absolute deviation
 *     (1.4826 * MAD: a normal distribution's sigma).
 * Why these numbers: a sigma from five values is uncertain by a factor of two, and devices differ
 * from day to day by about 4 % (a median over GPUs in one cluster, tritonbench's issue 143), so
 * both 10 % and 5 sigma are far beyond what healthy devices show. One lease may be disturbed by
 * another process for a while; two in a row seldom are.
 *
 * What follows: the device is drained, its leases are taken away, and its samples since its last
 * good lease are quarantined, and so are the winners that were decided from them.
 *
 * Memory: plain values. Threads: drift_judge is pure; drift_check is a worker's. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_DRIFT_H
#define WAVETUNE_SERVER_MEASUREMENT_DRIFT_H

#include "common/record/record.h"
#include "server/db/db.h"
#include "server/server.h"

#define DRIFT_LEASES 2
#define DRIFT_HISTORY_MIN 5
#define DRIFT_HISTORY_MAX 32
#define DRIFT_HISTORY_SPAN_US (INT64_C(10) * 60 * 1000000)
#define DRIFT_SHARE 0.10
#define DRIFT_SPREADS 5

struct drift_lease {
  double median_us;
  int64_t at_us; /* when the lease ended */
};

struct drift {
  bool is_drifting;
  size_t n_history; /* the members below are set when it is at least DRIFT_HISTORY_MIN */
  double history_us, spread_us, now_us;
  int64_t good_at_us; /* when the newest lease of the history that did not itself deviate ended */
};

/* `leases`: oldest first. */
struct drift drift_judge(const struct drift_lease *leases, size_t n);

/* A lease in which the baseline was timed: its device, and the device's history, oldest first, with
 * this lease last. */
struct drift_note {
  int64_t lease; /* 0: the baseline was not timed in the lease, or the lease was noted before */
  char *agent, *device, *drain_reason;
  int64_t suspect_since_us; /* since when samples of a device that drifted are not trusted, until it
                               is resumed; else FIELD_NONE */
  struct numbers medians_us, ats_us;
};
void drift_note_release(struct drift_note *note);

/* Stores what the baseline took in a lease of the job that ended, in the transaction that ends
 * it. */
must_check bool drift_note(struct db *db, int64_t job, int64_t lease, int64_t epoch,
                           struct drift_note *ret, struct error *error);

/* Drains the device if it drifts, with all that follows. Call it after that transaction and before
 * the job is advanced. A failure is logged: the device's next lease is judged again. */
void drift_check(struct worker *worker, const struct drift_note *note);

#endif
