/* PUT and GET /v1/blobs/{digest}. Database workers. */
#include "server/http/answers.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/server_private.h"

/* The digest in the path; answers 404 when it is none: nothing is stored under that name. */
static bool digest_of_path(struct request *request, struct digest *ret_digest) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  request_problem(request, MHD_HTTP_NOT_FOUND, "",
                  "\"%.80s\" is no digest: \"sha256:\" and 64 lower-case hexadecimal digits", request->segments[0]);
  return false;
}

void route_blob_put(struct worker *worker, struct request *request) {
  struct digest wanted;
  struct error error;
  bool is_new;
  if (!digest_of_path(request, &wanted))
    return;
  struct digest actual = digest_of(request->body ? request->body : "", request->body_size);
  if (!digest_equal(&actual, &wanted)) {
    char text[DIGEST_TEXT_SIZE];
    request_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, "", "the body's digest is %s, not the path's %s",
                    digest_format(&actual, text), request->segments[0]);
    return;
  }
  if (!blob_store(worker->db, &wanted, request->body, request->body_size, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  request_answer_json(
      request, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK,
      json_pack("{s:o, s:I}", "blob", json_digest_text(&wanted), "size", (json_int_t)request->body_size));
}

void route_blob_get(struct worker *worker, struct request *request) {
  struct digest digest;
  struct blob *blob;
  struct error error;
  if (!digest_of_path(request, &digest))
    return;
  if (!blob_load(worker->db, request->server->blobs, &digest, &blob, &error))
    request_unavailable(request, &error);
  else if (!blob)
    request_problem(request, MHD_HTTP_NOT_FOUND, "", "no file %s is stored", request->segments[0]);
  else
    request_answer_blob(request, blob);
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
