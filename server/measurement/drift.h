/* Whether a device drifts from its own history.
 *
 * The baseline of a job is measured in every lease, so that a lease tells what one config takes on
 * this device now. Two leases are comparable when device, kernel, key, space, baseline,
 * environment, build, stage, regime and timer are the same: a subject. Pairs cancel a drift within
 * a process; they do not cancel what a device that is throttled, shared or broken does to the ratio
 * of a config that needs memory to one that needs arithmetic. So it is drained, and what it
 * measured since it was itself is not believed.
 *
 * The rule. Of the medians of a subject's leases on a device, oldest first, the newest DRIFT_LEASES
 * are held against those before them, the history, at most DRIFT_HISTORY_MAX:
 *   - the history has at least DRIFT_HISTORY_MIN leases, which lie at least DRIFT_HISTORY_SPAN_US
 *     apart: leases of one minute share its clock and temperature, and their spread is not the
 *     device's;
 *   - every one of the newest lies off the history's median m, on the same side, by more than
 *     max(DRIFT_SHARE * m, DRIFT_SPREADS * s), s the history's scaled median absolute deviation
 *     (1.4826 * MAD: a normal distribution's sigma).
 * Why these numbers: a sigma from five values is uncertain by a factor of two, and devices differ
 * from day to day by about 4 % (a median over GPUs in one cluster, tritonbench's issue 143), so 10
 * % and 5 sigma are far outside of what a healthy one does; one lease may meet a neighbour that
 * leaves again, two in a row seldom do.
 *
 * What follows: the device is drained, its leases are taken away, and the samples that it gave
 * since then are quarantined with the winners that were decided from them.
 *
 * Memory: plain values. Threads: drift_judge is pure; drift_look is a worker's. */
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
  int64_t at_us; /* when it ended */
};

struct drift {
  bool is_drifting;
  size_t n_history; /* the rest holds while it is at least DRIFT_HISTORY_MIN */
  double history_us, spread_us, now_us;
  int64_t good_at_us; /* when the newest lease of the history ended that was not off itself */
};

/* `leases`: oldest first. */
struct drift drift_judge(const struct drift_lease *leases, size_t n);

/* A lease in which the baseline was timed: its device, and the history of that, oldest first, with
 * this lease last. */
struct drift_note {
  int64_t lease; /* 0: the baseline was not timed in it, or it was noted before */
  char *agent, *device, *drain_reason;
  int64_t suspect_since_us; /* FIELD_NONE, or the device was found to drift before, and was not
                               resumed */
  struct numbers medians_us, ats_us;
};
void drift_note_release(struct drift_note *note);
#define cleanup_drift_note __attribute__((cleanup(drift_note_release)))

/* Stores what the baseline took in a lease that ended, in the transaction that ends it. */
must_check bool drift_note(struct db *db, int64_t lease, int64_t epoch, struct drift_note *ret,
                           struct error *error);

/* Drains the device if it drifts, with what follows from it. To be called after that transaction
 * and before the job moves on. What fails is logged: the device's next lease tells again. */
void drift_look(struct worker *worker, const struct drift_note *note);

#endif
