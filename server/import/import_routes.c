/* Imported tables, and the identities of images. Database workers. */
#include "common/base/log.h"
#include "common/cache/identity.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/import/imports.h"
#include "server/job/job_store.h"

static const char *const no_arguments[] = {NULL};

/* What is stored was checked when it came in. NULL: it is not registered. */
static struct kernel *kernel_read(const char *manifest) {
  cleanup_json json_t *json = NULL;
  struct kernel *kernel;
  struct error error;
  if (!manifest)
    return NULL;
  if (json_parse(manifest, strlen(manifest), &json, &error) && kernel_parse(json, &kernel, &error))
    return kernel;
  log_error("import: a stored manifest is not valid any more: %s", error.message);
  return NULL;
}

/* Gives the kernels that are named by hash what is registered. Answers what is wrong. */
static bool kernels_find(struct worker *worker, struct request *request, struct import_post *import) {
  size_t n = import->n_kernels;
  cleanup_free struct digest *hashes = xcalloc(n, sizeof *hashes);
  cleanup_free char **manifests = xcalloc(n, sizeof *manifests);
  struct error error;
  bool are_known = true;
  for (size_t i = 0; i < n; i++)
    hashes[i] = import->kernels[i].hash;
  if (!job_kernels_load(worker->db, hashes, n, manifests, &error)) {
    answer_failure(request, &error);
    return false;
  }
  for (size_t i = 0; i < n; i++) {
    struct import_kernel *kernel = &import->kernels[i];
    if (!kernel->kernel)
      kernel->kernel = kernel_read(manifests[i]);
    free(manifests[i]);
    if (kernel->kernel || !are_known)
      continue;
    char at[JSON_POINTER_SIZE], text[DIGEST_TEXT_SIZE];
    are_known = false;
    snprintf(at, sizeof at, "/kernels/%zu/kernel", i);
    request_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, at,
                    "kernel %s is not registered; POST /v1/kernels first (wavetune kernel push)",
                    digest_format(&kernel->hash, text));
  }
  return are_known;
}

static json_t *import_answer(const struct import_post *import, const struct import_counts *counts) {
  json_t *kernels = json_array();
  for (size_t i = 0; i < import->n_kernels; i++) {
    const struct import_kernel *kernel = &import->kernels[i];
    ALWAYS(
        json_array_append_new(kernels, json_pack("{s:o, s:s, s:I}", "kernel", json_digest_text(&kernel->hash), "name",
                                                 kernel->kernel->name, "entries", (json_int_t)kernel->n_entries)) == 0);
  }
  json_t *answer =
      json_pack("{s:o, s:o, s:o, s:s, s:I, s:I, s:I}", "kernels", kernels, "environment",
                environment_to_json(&import->environment), "missing", environment_missing(&import->environment), "tag",
                import->tag, "added", (json_int_t)counts->added, "changed", (json_int_t)counts->changed, "known",
                (json_int_t)counts->known);
  ALWAYS(answer != NULL);
  return answer;
}

void route_import_post(struct worker *worker, struct request *request) {
  cleanup_import_post struct import_post import = {0};
  struct import_counts counts;
  struct error error;
  if (!request_query_only(request, no_arguments))
    return;
  if (!import_post_parse(request->json, &import, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return;
  }
  if (!kernels_find(worker, request, &import))
    return;
  if (!import_post_read(&import, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return;
  }
  if (!imports_store(worker->db, &import, request_author(request), &counts, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (counts.added || counts.changed)
    log_info("import: format=%s added=%lld changed=%lld known=%lld", import.format, (long long)counts.added,
             (long long)counts.changed, (long long)counts.known);
  request_answer_json(request, counts.added ? MHD_HTTP_CREATED : MHD_HTTP_OK, import_answer(&import, &counts));
}

void route_import_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", "kernel", "format", "tag", NULL};
  struct error error;
  struct digest kernel;
  struct imports_filter filter = {.format = request_query(request, "format"), .tag = request_query(request, "tag")};
  json_t *items;
  int64_t next;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &filter.limit, &filter.after))
    return;
  const char *hash = request_query(request, "kernel");
  if (hash && !digest_parse(hash, &kernel)) {
    request_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, "",
                    "\"kernel\" is not \"sha256:\" and 64 lower-case hexadecimal digits");
    return;
  }
  filter.kernel = hash ? &kernel : NULL;
  if (!imports_list(worker->db, &filter, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, MHD_HTTP_OK, page_to_json(items, next));
}

static bool digest_of_path(struct request *request, struct digest *ret_digest) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  request_problem(request, MHD_HTTP_NOT_FOUND, "", "there is no image \"%.80s\"", request->segments[0]);
  return false;
}

void route_image_put(struct worker *worker, struct request *request) {
  cleanup_identity struct identity *identity = NULL;
  struct digest digest;
  struct error error;
  char text[DIGEST_TEXT_SIZE];
  bool is_new;
  if (!request_query_only(request, no_arguments) || !digest_of_path(request, &digest))
    return;
  if (!identity_parse(request->json, &identity, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return;
  }
  cleanup_free char *canonical = json_canonical(request->json);
  struct digest actual = digest_of(canonical, strlen(canonical));
  if (!digest_equal(&actual, &digest)) {
    request_problem(request, MHD_HTTP_UNPROCESSABLE_CONTENT, "", "the identity's digest is %s, not the path's %s",
                    digest_format(&actual, text), request->segments[0]);
    return;
  }
  if (!image_store(worker->db, &digest, canonical, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  request_answer_json(request, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK,
                      json_pack("{s:o}", "image", json_digest_text(&digest)));
}

void route_image_get(struct worker *worker, struct request *request) {
  struct digest digest;
  struct error error;
  char *text;
  if (!request_query_only(request, no_arguments) || !digest_of_path(request, &digest))
    return;
  if (!image_load(worker->db, &digest, &text, &error))
    answer_failure(request, &error);
  else if (!text)
    request_problem(request, MHD_HTTP_NOT_FOUND, "", "there is no image %s", request->segments[0]);
  else
    request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", text, strlen(text), request->segments[0],
                              NULL);
}
