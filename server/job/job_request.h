/* A job as somebody submits it: the body of POST /v1/jobs, read and checked as far as that goes without the database.
 *
 * Memory: a request owns its environment and texts; key and space are borrowed from the body. Threads: any. */
#ifndef WAVETUNE_SERVER_JOB_JOB_REQUEST_H
#define WAVETUNE_SERVER_JOB_JOB_REQUEST_H

#include "common/node/environment.h"
#include "common/search/search.h"
#include "server/cache/match.h"

#define JOBS_PER_REQUEST_MAX 1000
#define JOB_TEXT_MAX 200

/* How a space that is not measured whole is searched. */
struct job_search {
  bool wanted;
  enum search_strategy strategy;
  int64_t trials;
};

struct job_request {
  struct digest kernel;
  const json_t *key, *space;
  struct environment environment; /* may be partial */
  const char *tag, *run;          /* borrowed */
  enum regime regime;
  bool is_revalidation; /* of a few configs of an earlier job: its space is not the kernel's */
  int64_t priority;
  int64_t budget_ms; /* 0: none */
  struct job_search search;
  int64_t final_devices; /* that the final is spread over; 1 to FINAL_DEVICES_MAX */
};
void job_request_release(struct job_request *request);

/* One job. Errors have pointers relative to it. */
must_check bool job_request_parse(const json_t *json, struct job_request *ret, struct error *error);

#endif
