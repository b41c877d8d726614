/* Common answers. Memory and threads: as the header says. */
#include "server/http/answers.h"

#include <errno.h>

#include "common/base/log.h"
#include "common/program/error_codes.h"
#include "server/blob/blobs.h"

static void failure_log(const struct request *request, const struct error *error) {
  char before[LOG_REQUEST_SIZE]; /* this may be one of a batch */
  log_get_request(before);
  log_set_request(request->id);
  log_error("request: %s", error->message);
  log_set_request(before);
}

void answer_failure(struct request *request, const struct error *error) { answer_failure_extra(request, error, NULL); }

void answer_failure_extra(struct request *request, const struct error *error, json_t *extra) {
  struct error said = *error;
  int status = error_http_status(error->kind);
  if (status == 500) {
    failure_log(request, error);
    said.pointer[0] = '\0';
    if (error->kind != ERROR_DAMAGED)
      error_of(&said, ERROR_INTERNAL, "the server could not do this; its log says why");
  }
  request_problem_extra(request, status, &said, extra);
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
  error_of(&error, ERROR_CONFLICT,
           "%zu of the files that this refers to %s not stored: PUT them to /v1/blobs/{digest} and try again",
           n_missing, n_missing == 1 ? "is" : "are");
  answer_failure_extra(request, &error, json_pack("{s:o}", "missing", list));
  return false;
}
