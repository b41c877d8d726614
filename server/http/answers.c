/* Common answers. Memory and threads: as the header says. */
#include "server/http/answers.h"

#include <errno.h>

#include "common/base/log.h"
#include "server/blob/blobs.h"

void answer_failure(struct request *request, const struct error *error) {
  if (error->kind == ERROR_UNAVAILABLE || error->kind == ERROR_DEADLINE || error->kind == ERROR_CONTENTION) {
    request_unavailable(request, error);
    return;
  }
  char before[LOG_REQUEST_SIZE]; /* this may be one of a batch */
  log_get_request(before);
  log_set_request(request->id);
  log_error("request: %s", error->message);
  log_set_request(before);
  if (error->kind == ERROR_INVALID) /* what is stored cannot be read; PostgreSQL's own sentences are for the log only */
    request_problem(request, 500, "", "%s", error->message);
  else
    request_problem(request, 500, "", "the server could not do this; its log says why");
}

static bool decimal_parse(const char *text, int64_t *ret) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno)
    return false;
  *ret = number;
  return true;
}

bool answer_id(struct request *request, const char *what, int64_t *ret_id) {
  if (decimal_parse(request->segments[0], ret_id))
    return true;
  request_problem(request, 404, "", "there is no %s \"%.40s\"; ids are decimal numbers", what, request->segments[0]);
  return false;
}

bool answer_missing_files(struct worker *worker, struct request *request, const struct digest *digests, size_t n) {
  cleanup_free bool *missing = xcalloc(n, sizeof *missing);
  size_t n_missing = 0;
  struct error error;
  if (!blobs_missing(worker->db, digests, n, missing, &n_missing, &error)) {
    answer_failure(request, &error);
    return false;
  }
  if (!n_missing)
    return true;
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    if (missing[i])
      json_array_append_new(list, json_digest_text(&digests[i]));
  error_set(&error, "%zu of the files that this refers to %s not stored: PUT them to /v1/blobs/{digest} and try again",
            n_missing, n_missing == 1 ? "is" : "are");
  request_problem_extra(request, 409, &error, json_pack("{s:o}", "missing", list));
  return false;
}
