/* A job as it is submitted: the body of POST /v1/jobs, read and checked as far as that is possible
 * without the database.
 *
 * Memory: a request owns what it points to. Threads: any. */
#ifndef WAVETUNE_SERVER_JOB_JOB_REQUEST_H
#define WAVETUNE_SERVER_JOB_JOB_REQUEST_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"
#include "common/search/search.h"

#define JOBS_PER_REQUEST_MAX 1000
#define JOB_TEXT_MAX 200

/* How a space that is too large to be measured completely is searched. */
struct job_search {
  enum search_strategy strategy; /* (enum search_strategy)-1: no search */
  int64_t trials;                /* FIELD_NONE: no search */
  bool wanted; /* whether there is a search; no field, set after the record is read */
};
extern const struct record job_search_record;

/* PURPOSE_REVALIDATE: a few configs of an earlier job are measured again; the job's space is then
 * not the kernel's. */
enum job_purpose { PURPOSE_TUNE, PURPOSE_REVALIDATE };
extern const char *const job_purpose_names[]; /* by value, ended by NULL */

/* How the final is measured. */
struct job_finals {
  int64_t devices; /* the number of devices that it is spread over, 1 to FINAL_DEVICES_MAX */
};
extern const struct record job_finals_record;

struct job_budget {
  double device_seconds; /* NaN: no budget */
};
extern const struct record job_budget_record;

struct job_request {
  struct digest kernel;
  json_t *key, *space;
  struct environment environment; /* may be partial */
  char *tag, *run;
  char *runner; /* NULL: build */
  enum regime regime;
  enum job_purpose purpose;
  int64_t priority;
  struct job_budget budget;
  int64_t budget_ms; /* from `budget`; 0: none */
  struct job_search search;
  struct job_finals finals;
};
extern const struct record job_request_record;
void job_request_release(struct job_request *request);

/* One job. Errors have pointers relative to it. */
must_check bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error);

#endif
