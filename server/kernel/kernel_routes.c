/* Kernels and their builds. Database workers. */
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/kernel/code_signatures.h"
#include "server/kernel/kernels.h"
#include "server/server_private.h"

static bool digest_of_path(struct request *request, int segment, const char *what, struct digest *ret_digest) {
  if (digest_parse(request->segments[segment], ret_digest))
    return true;
  request_problem(request, MHD_HTTP_NOT_FOUND, "", "there is no %s \"%.80s\"", what, request->segments[segment]);
  return false;
}

static void answer_list(struct request *request, json_t *items, json_t *next) {
  request_answer_json(request, MHD_HTTP_OK, json_pack("{s:o, s:o}", "items", items, "next", next));
}

void route_kernel_post(struct worker *worker, struct request *request) {
  cleanup_kernel struct kernel *kernel = NULL;
  struct error error;
  size_t n_files;
  bool is_new;
  if (!kernel_parse(request->json, &kernel, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return;
  }
  cleanup_free struct digest *files = kernel_files(kernel, &n_files);
  if (!answer_missing_files(worker, request, files, n_files))
    return;
  if (!kernel_store(worker->db, kernel, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  request_answer_json(request, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK,
                      json_pack("{s:o, s:s}", "kernel", json_digest_text(&kernel->hash), "name", kernel->name));
}

void route_kernel_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", "name", NULL};
  struct error error;
  int64_t limit, after;
  json_t *items, *next;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &limit, &after))
    return;
  if (!kernels_list(worker->db, request_query(request, "name"), after, limit, &items, &next, &error))
    answer_failure(request, &error);
  else
    answer_list(request, items, next);
}

/* The manifest (a new reference); answers and returns NULL when there is none. */
static json_t *manifest_load(struct worker *worker, struct request *request, const struct digest *hash,
                             json_t **ret_origin) {
  struct error error;
  json_t *manifest = NULL;
  if (!kernel_load(worker->db, hash, &manifest, ret_origin, &error))
    answer_failure(request, &error);
  else if (!manifest)
    request_problem(request, MHD_HTTP_NOT_FOUND, "", "there is no kernel %s", request->segments[0]);
  return manifest;
}

void route_kernel_get(struct worker *worker, struct request *request) {
  cleanup_json json_t *origin = NULL;
  json_t *signatures;
  struct digest hash;
  struct error error;
  if (!digest_of_path(request, 0, "kernel", &hash))
    return;
  cleanup_json json_t *manifest = manifest_load(worker, request, &hash, &origin);
  if (!manifest)
    return;
  if (!code_signatures_load(worker->db, &hash, &signatures, &error)) {
    answer_failure(request, &error);
    return;
  }
  json_t *answer =
      json_pack("{s:o, s:O, s:o}", "kernel", json_digest_text(&hash), "manifest", manifest, "signatures", signatures);
  ALWAYS(answer != NULL && json_object_update(answer, origin) == 0);
  request_answer_json(request, MHD_HTTP_OK, answer);
}

/* Reads the body as a build of this kernel whose digest is the path's. Answers what is wrong. */
static bool build_read(struct request *request, const json_t *manifest, const struct digest *digest,
                       struct build **ret_build) {
  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_build struct build *build = NULL;
  struct error error;
  if (!kernel_parse(manifest, &kernel, &error) || !build_parse(request->json, kernel, &build, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return false;
  }
  if (!digest_equal(&build->digest, digest)) {
    char text[DIGEST_TEXT_SIZE];
    request_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, "", "the build's digest is %s, not the path's %s",
                    digest_format(&build->digest, text), request->segments[1]);
    return false;
  }
  *ret_build = TAKE(build);
  return true;
}

void route_build_put(struct worker *worker, struct request *request) {
  cleanup_build struct build *build = NULL;
  struct digest hash, digest;
  struct error error;
  bool is_new;
  if (!digest_of_path(request, 0, "kernel", &hash) || !digest_of_path(request, 1, "build", &digest))
    return;
  cleanup_json json_t *manifest = manifest_load(worker, request, &hash, NULL);
  if (!manifest || !build_read(request, manifest, &digest, &build) ||
      !answer_missing_files(worker, request, build->objects, build->n_objects))
    return;
  if (!build_store(worker->db, build, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  request_answer_json(request, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK,
                      json_pack("{s:o}", "build", json_digest_text(&digest)));
}

void route_build_get(struct worker *worker, struct request *request) {
  static const char *const known[] = {NULL};
  struct digest hash, digest;
  struct error error;
  char *text;
  if (!request_query_only(request, known) || !digest_of_path(request, 0, "kernel", &hash) ||
      !digest_of_path(request, 1, "build", &digest))
    return;
  if (!build_load(worker->db, &hash, &digest, &text, &error))
    answer_failure(request, &error);
  else if (!text)
    request_problem(request, MHD_HTTP_NOT_FOUND, "", "kernel %s has no build %s", request->segments[0],
                    request->segments[1]);
  else
    request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", text, strlen(text), request->segments[1],
                              NULL);
}

void route_build_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", NULL};
  struct digest hash;
  struct error error;
  int64_t limit, after;
  json_t *items, *next;
  if (!digest_of_path(request, 0, "kernel", &hash) || !request_query_only(request, known) ||
      !page_by_id(request, 0, &limit, &after))
    return;
  if (!builds_list(worker->db, &hash, after, limit, &items, &next, &error))
    answer_failure(request, &error);
  else
    answer_list(request, items, next);
}
