/* What the baseline took in each lease of a device, and what becomes of a device that drifts.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_AGENT_DRIFT_STORE_H
#define WAVETUNE_SERVER_AGENT_DRIFT_STORE_H

#include "common/base/digest.h"
#include "server/agent/drift.h"
#include "server/audit/audit.h"

/* A lease in which the baseline was timed. Owns its texts and leases. */
struct drift_note {
  int64_t lease;
  char *agent, *device;
  bool is_suspect; /* the device was found to drift before, and was not resumed */
  char *drain_reason;
  int64_t suspect_since_us;
  size_t n_leases; /* of the subject on the device, oldest first, this one last */
  struct drift_lease *leases;
};
struct drift_notes {
  size_t n;
  struct drift_note *all;
};
/* Stores the medians of leases that ended; those without a sample, and those that were noted before, are left out. */
must_check bool drift_note(struct db *db, const struct drift_end *ends, size_t n, struct drift_notes *ret,
                           struct error *error);
void drift_notes_release(struct drift_notes *notes);

/* `baseline 3 of matmul {"M":4096}`; the caller's. */
must_check bool drift_subject(struct db *db, int64_t lease, char **ret_subject, struct error *error);

/* A job with samples that were quarantined. */
struct drift_job {
  int64_t job, leases; /* leases of it that are open again */
  struct digest hardware_digest;
};
struct drift_quarantined {
  bool is_new; /* the device was not known to drift before */
  int64_t measurements, winners;
  size_t n;
  struct drift_job *jobs;
};
/* In the caller's transaction: drains a device, if it is not drained already, takes its leases away, quarantines the samples
 * that it gave after `since_us`, opens their leases again for those that their job still needs, marks the winners that were
 * decided from them, and says so in the jobs' events. Any number of times for one device. */
must_check bool drift_quarantine(struct db *db, const char *agent, const char *device, const char *reason,
                                 int64_t since_us, struct drift_quarantined *ret, struct error *error);
void drift_quarantined_release(struct drift_quarantined *quarantined);

/* Sets or, with a NULL reason, ends the draining of one device. One that drifted begins a new history then. */
must_check bool device_set_drain(struct db *db, const char *agent, const char *device, const char *reason,
                                 const struct author *author, bool *ret_known, struct error *error);

#endif
