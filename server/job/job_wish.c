/* Jobs that the server makes itself. Memory and threads: job_wish.h. */
#include "server/job/job_wish.h"

#include <math.h>

bool job_wish_submit(struct worker *worker, const struct job_wish *wish,
                     const struct author *author, struct job_known *ret, struct error *refused,
                     struct error *error) {
  cleanup_catalog struct catalog catalog = {0};
  __attribute__((cleanup(submission_release))) struct submission submission = {0};
  struct submission *job = &submission;
  cleanup_json json_t *extra = NULL;
  cleanup_json json_t *body = json_pack(
      "{s:o, s:O, s:O, s:O, s:s, s:s, s:s, s:I, s:o*}", "kernel", json_digest_text(&wish->kernel),
      "key", wish->key, "space", wish->space, "environment", wish->environment, "tag", wish->tag,
      "run", wish->run, "regime", regime_name(wish->regime), "priority", (json_int_t)wish->priority,
      "budget",
      isnan(wish->budget_s) ? NULL : json_pack("{s:f}", "device_seconds", wish->budget_s));
  ALWAYS(body != NULL);
  *ret = (struct job_known){0};
  if (!job_request_parse(body, &submission.request, refused))
    return true;

  if (!catalog_load(worker, &wish->kernel, 1, &catalog, error))
    return false;
  if (!submission_check(worker, &catalog, &submission, &extra, refused)) {
    if (refused->kind == ERROR_INVALID)
      return true;
    *error = *refused;
    return false;
  }

  if (!wish->may_wait && json_integer_value(json_object_get(submission.agents, "matching")) == 0) {
    error_of_at(refused, ERROR_UNAVAILABLE, "",
                "no live agent matches its environment, so a job would only wait");
    return true;
  }

  if (!jobs_find(worker->db, &job, 1, error))
    return false;
  if (!job->known.id) {
    if (!submission_plan(job, JOB_POINTS_MAX, refused))
      return true;
    if (!submissions_store(worker, &job, 1, author, error)) {
      if (error->kind != ERROR_RATE)
        return false;
      *refused = *error; /* the author has as many open jobs as it may */
      return true;
    }
  }

  *ret = job->known;
  return true;
}
