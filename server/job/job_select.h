/* Which jobs a request is about: by their ids, or by tag, run, kernel and owner. Shared by the list
 * of jobs, and by the routes that cancel, retry and count jobs.
 *
 * Memory: a selection owns what it points to. Threads: a db's own; parsing is pure. */
#ifndef WAVETUNE_SERVER_JOB_JOB_SELECT_H
#define WAVETUNE_SERVER_JOB_JOB_SELECT_H

#include "common/record/record.h"
#include "server/db/db.h"
#include "server/http/request.h"

#define SELECTION_JOBS_MAX 10000 /* ids in one request */

struct job_selection {
  struct texts jobs; /* ids; none: all jobs that the other members describe */
  char *tag, *run;
  char *kernel;  /* its hash or its name */
  char *user;    /* the name of the token that submitted them */
  int64_t up_to; /* no newer job than this id; FIELD_NONE: any */
  int64_t after; /* only jobs with higher ids; FIELD_NONE: any */
  bool dry_run;  /* only count them */
  bool any;      /* also jobs that others submitted */
  size_t n_ids;
  int64_t *ids; /* the same as `jobs`, ascending and distinct */
};
extern const struct record job_selection_record;

void job_selection_release(struct job_selection *selection);
#define cleanup_selection __attribute__((cleanup(job_selection_release)))

/* Reads the body of a request that changes jobs. Refuses a selection that names no jobs and no
 * property, because it would be all jobs. */
must_check bool job_selection_parse(const json_t *json, struct job_selection *ret,
                                    struct error *error);

/* Whether the request may end this job: one that others submitted needs `any` and a role. */
must_check bool job_may_change(struct worker *worker, struct request *request, int64_t job,
                               bool any, struct error *error);

/* Binds tag, run, kernel and kernel_name, and owner, each null where it is not stated. `kernel` may
 * be a hash or a name; false: it begins like a hash and is none. */
must_check bool bind_job_filters(struct db_parameters *parameters, const char *tag, const char *run,
                                 const char *kernel, const char *user, struct error *error);

#endif
