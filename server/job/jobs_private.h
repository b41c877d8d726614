/* What the parts of jobs.h share. Memory and threads: jobs.h. */
#ifndef WAVETUNE_SERVER_JOB_JOBS_PRIVATE_H
#define WAVETUNE_SERVER_JOB_JOBS_PRIVATE_H

#include "server/job/jobs.h"
#include "server/poison/poison.h"

/* Flags the winners of earlier jobs that this job found slower than the default, with the event, in
 * the transaction in which it becomes done; *ret_flagged: how many. Winners that have a flag
 * already keep it. Also fails when samples that the decision used were quarantined meanwhile: then
 * the job must be decided again. */
must_check bool winners_flag(struct worker *worker, const struct job_brief *job,
                             const struct space *space, int64_t *ret_flagged, struct error *error);

/* A stored job with its space, and what the ledger of poison has of it. */
struct poisoned_job {
  int64_t id;
  uint64_t baseline, default_config; /* the latter FIELD_NONE: none */
  struct digest kernel, build, device_class;
  json_t *space_json, *key_json;
  struct space *space;
  struct key key;
  struct poison_hits hits;
};
/* Of a row with its columns. False with ERROR_INVALID: this version cannot read the job's space.
 * Release the job in either case. */
must_check bool poisoned_job_read(struct db *db, const struct db_rows *rows, int row,
                                  struct poisoned_job *ret, struct error *error);
void poisoned_job_release(struct poisoned_job *job);
#define cleanup_poisoned_job __attribute__((cleanup(poisoned_job_release)))

#endif
