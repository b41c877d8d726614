/* Which jobs a request is about: by their ids, or by tag, run, kernel and owner. Shared by the list
 * of jobs, and by the routes that cancel, retry and count jobs.
 *
 * Memory: texts are borrowed. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_JOB_SELECT_H
#define WAVETUNE_SERVER_JOB_JOB_SELECT_H

#include "common/record/record.h"
#include "server/db/db.h"
#include "server/http/request.h"

extern const struct record job_selection_record;

/* Whether the request may end this job: one that others submitted needs `any` and a role. */
must_check bool job_may_change(struct worker *worker, struct request *request, int64_t job,
                               bool any, struct error *error);

/* Binds tag, run, kernel and kernel_name, and owner, each null where it is not stated. `kernel` may
 * be a hash or a name; false: it begins like a hash and is none. */
must_check bool bind_job_filters(struct db_parameters *parameters, const char *tag, const char *run,
                                 const char *kernel, const char *user, struct error *error);

#endif
