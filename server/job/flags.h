/* Never worse: a winner that a later job measures slower than the default is flagged, and no
 * release takes it any more.
 *
 * A later job of the same kernel, key, environment and tag has the newest such winner as its
 * baseline, those that are still near the best among its finalists, and the default always: all
 * measured in several fresh processes, in pairs. One is flagged when the interval of the default's
 * time over its own, simultaneous over all finalists as that of the job's winner is, lies below 1.
 *
 * Memory: plain values. Threads: flags_judge is pure; flags_after_job is a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_FLAGS_H
#define WAVETUNE_SERVER_JOB_FLAGS_H

#include "common/campaign/campaign.h"
#include "server/server.h"

#define FLAGS_MAX (FINALISTS_MAX + 1)

struct flag {
  uint64_t config;
  double ratio, lower, upper; /* of its time over the default's, with the interval: above 1 */
};
/* The baseline and the finalists of a final that are slower than its default, by rising ordinal of
 * the finalists, the baseline first. None where the default was not measured correctly in
 * VERDICT_PROCESSES_MIN processes, or failed in one. */
size_t flags_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline,
                   uint64_t default_config, uint64_t seed, struct flag ret_flags[FLAGS_MAX]);

/* When a job becomes done, in that transaction and after its winner is stored: flags the winners of
 * earlier jobs that it found slower than the default.
 * Fails also when samples that it was decided from were quarantined meanwhile: then it must be
 * decided again. */
must_check bool flags_after_job(struct worker *worker, int64_t job, struct error *error);

#endif
