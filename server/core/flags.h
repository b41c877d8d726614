/* Never worse: a winner that a later job measures slower than the default is flagged, and no release takes it any more.
 *
 * The later job of the same kernel, key, environment and tag has that winner as its baseline, and the default among its
 * finalists: both are measured in several fresh processes, in pairs. It is flagged when the default's interval against the
 * baseline, simultaneous over all finalists as that of the winner is, lies below 1.
 *
 * Memory: plain values. Threads: flag_judge is pure; flags_after_job is a worker's own. */
#ifndef WAVETUNE_SERVER_CORE_FLAGS_H
#define WAVETUNE_SERVER_CORE_FLAGS_H

#include "server/core/job_plan.h"
#include "server/server.h"

struct flag {
  double ratio, lower, upper; /* of the baseline's time to the default's, with its interval: above 1 */
};
/* Whether the baseline of a final is slower than its default. False too where the default was not measured correctly in
 * VERDICT_PROCESSES_MIN processes, or failed in one. */
must_check bool flag_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline,
                           uint64_t default_config, uint64_t seed, struct flag *ret_flag);

/* When a job becomes done, in that transaction and after its winner is stored: flags those whose winner was its baseline.
 * Fails also when samples that it was decided from were quarantined meanwhile: then it must be decided again. */
must_check bool flags_after_job(struct worker *worker, int64_t job, struct error *error);

#endif
