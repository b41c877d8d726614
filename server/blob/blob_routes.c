/* PUT and GET /v1/blobs/{digest}, and POST /v1/gc.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "server/blob/blobs.h"
#include "server/blob/collect.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/records.h"
#include "server/server_private.h"

/* The digest in the path; answers 404 when it is none: nothing is stored under that name. */
static bool digest_of_path(struct request *request, struct digest *ret_digest) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  answer_refusal(request, ERROR_MISSING, "",
                 "\"%.80s\" is no digest: \"sha256:\" and 64 lower-case hexadecimal digits",
                 request->segments[0]);
  return false;
}

struct blob_answer {
  struct digest blob;
  int64_t size;
};
static const struct field blob_answer_fields[] = {
    {"blob", FIELD_DIGEST, offsetof(struct blob_answer, blob), FIELD_ANSWER},
    {"size", FIELD_INTEGER, offsetof(struct blob_answer, size), FIELD_ANSWER},
};
const struct record blob_answer_record =
    RECORD("BlobAnswer", struct blob_answer, blob_answer_fields);

void route_blob_put(struct worker *worker, struct request *request) {
  struct blob_answer answer = {.size = (int64_t)request->body_size};
  struct error error;
  bool is_new;
  if (!digest_of_path(request, &answer.blob))
    return;

  struct digest actual = digest_of(request->body ? request->body : "", request->body_size);
  if (!digest_equal(&actual, &answer.blob)) {
    char text[DIGEST_TEXT_SIZE];
    answer_refusal(request, ERROR_INVALID, "", "the body's digest is %s, not the path's %s",
                   digest_format(&actual, text), request->segments[0]);
    return;
  }

  if (!blob_store(worker->db, &answer.blob, request->body, request->body_size,
                  request_author(request), &is_new, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, is_new ? 201 : 200, record_write(&blob_answer_record, &answer));
}

static void blob_release(void *blob) { blob_unreference(blob); }

void route_blob_get(struct worker *worker, struct request *request) {
  struct digest digest;
  struct blob *blob;
  struct error error;
  if (!digest_of_path(request, &digest))
    return;

  if (!blob_load(worker->db, request->server->blobs, &digest, &blob, &error)) {
    if (error.kind == ERROR_DAMAGED) /* once restored, it is there again: agents wait for that */
      error_become(&error, ERROR_UNAVAILABLE);
    answer_failure(request, &error);
  } else if (!blob) {
    answer_refusal(request, ERROR_MISSING, "", "no file %s is stored", request->segments[0]);
  } else {
    request_answer_file(request, request->segments[0], blob->bytes, blob->size, blob_release, blob);
  }
}

bool answer_missing_files(struct worker *worker, struct request *request,
                          const struct digest *digests, size_t n) {
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
           "%zu of the files that this refers to %s not stored: PUT them to /v1/blobs/{digest} and "
           "try again",
           n_missing, n_missing == 1 ? "is" : "are");
  answer_failure_extra(request, &error, json_pack("{s:o}", "missing", list));
  return false;
}

void route_gc_post(struct worker *worker, struct request *request) {
  static const char *const no_arguments[] = {NULL};
  struct collect_request asked = {.keep_days = COLLECT_KEEP_DAYS};
  cleanup_collection struct collection collection = {0};
  struct error error;
  if (!request_query_only(request, no_arguments))
    return;
  if (!record_read(&gc_request_record, request->json, "", &asked, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!collect(worker->db, &asked, request_author(request), &collection, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!asked.is_dry)
    log_info("gc: %s removed %zu releases and %lld files", request->token_name,
             collection.releases.n, (long long)collection.files.n);
  request_answer_json(request, 200, record_write(&gc_answer_record, &collection));
}
