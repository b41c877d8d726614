/* Imported tables, and the identities of images.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "common/cache/identity.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/import/imports.h"
#include "server/kernel/kernels.h"
#include "server/records.h"

static const char *const no_arguments[] = {NULL};

/* Gives the kernels that are named by hash what is registered. Answers what is wrong, and returns
 * false. */
static bool kernels_find(struct worker *worker, struct request *request,
                         struct import_post *import) {
  size_t n = import->kernels.n;
  cleanup_free struct digest *hashes = xcalloc(n, sizeof *hashes);
  cleanup_free json_t **manifests = xcalloc(n, sizeof(json_t *));
  struct error error;
  for (size_t i = 0; i < n; i++)
    hashes[i] = import_kernel_at(import, i)->hash;
  if (!kernels_load(worker->db, hashes, n, manifests, &error)) {
    answer_failure(request, &error);
    return false;
  }

  bool are_known = true;
  for (size_t i = 0; i < n; i++) {
    struct import_kernel *kernel = import_kernel_at(import, i);
    cleanup_json json_t *manifest = manifests[i];
    if (!are_known || kernel->kernel)
      continue;

    /* What is stored was checked when it came in. */
    are_known = manifest && kernel_parse(manifest, &kernel->kernel, &error);
    if (manifest && !are_known)
      log_error("import: a stored manifest is not valid any more: %s", error.message);
    if (!are_known) {
      char at[JSON_POINTER_SIZE], text[DIGEST_TEXT_SIZE];
      snprintf(at, sizeof at, "/kernels/%zu/kernel", i);
      answer_refusal(request, ERROR_INVALID, at,
                     "kernel %s is not registered; POST /v1/kernels first (wavetune kernel push)",
                     digest_format(&kernel->hash, text));
    }
  }
  return are_known;
}

struct answer_kernel {
  struct digest hash;
  const char *name;
  int64_t entries;
};
static const struct field answer_kernel_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct answer_kernel, hash), FIELD_ANSWER},
    {"name", FIELD_TEXT, offsetof(struct answer_kernel, name), FIELD_ANSWER},
    {"entries", FIELD_INTEGER, offsetof(struct answer_kernel, entries), FIELD_ANSWER},
};
static const struct record answer_kernel_record =
    RECORD(NULL, struct answer_kernel, answer_kernel_fields);

struct import_answer {
  struct records kernels;
  json_t *environment, *missing;
  const char *tag;
  struct import_counts counts;
};
static const struct field answer_fields[] = {
    {"kernels", FIELD_RECORDS, offsetof(struct import_answer, kernels), FIELD_ANSWER,
     .of = &answer_kernel_record},
    {"environment", FIELD_JSON, offsetof(struct import_answer, environment), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"},
    {"missing", FIELD_JSON, offsetof(struct import_answer, missing), FIELD_ANSWER,
     .schema = "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}",
     .about = "members of a full environment that this one lacks"},
    {"tag", FIELD_TEXT, offsetof(struct import_answer, tag), FIELD_ANSWER},
    {"added", FIELD_INTEGER, offsetof(struct import_answer, counts.added), FIELD_ANSWER},
    {"changed", FIELD_INTEGER, offsetof(struct import_answer, counts.changed), FIELD_ANSWER},
    {"known", FIELD_INTEGER, offsetof(struct import_answer, counts.known), FIELD_ANSWER},
};
const struct record import_answer_record =
    RECORD("ImportAnswer", struct import_answer, answer_fields);

static json_t *answer_make(const struct import_post *import, const struct import_counts *counts) {
  size_t n = import->kernels.n;
  cleanup_free struct answer_kernel *kernels = xcalloc(n, sizeof *kernels);
  for (size_t i = 0; i < n; i++) {
    const struct import_kernel *kernel = import_kernel_at(import, i);
    kernels[i] =
        (struct answer_kernel){kernel->hash, kernel->kernel->name, (int64_t)kernel->entries.n};
  }

  cleanup_json json_t *environment = environment_to_json(&import->environment),
                      *missing = environment_missing(&import->environment);
  const struct import_answer answer = {{n, kernels}, environment, missing, import->tag, *counts};
  return record_write(&import_answer_record, &answer);
}

void route_import_post(struct worker *worker, struct request *request) {
  cleanup_import_post struct import_post import = {0};
  struct import_counts counts;
  struct error error;
  if (!request_query_only(request, no_arguments))
    return;
  if (!import_post_parse(request->json, &import, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!kernels_find(worker, request, &import))
    return;
  if (!import_post_read(&import, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!imports_store(worker->db, &import, request_author(request), &counts, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (counts.added || counts.changed)
    log_info("import: format=%s added=%lld changed=%lld known=%lld", import.format,
             (long long)counts.added, (long long)counts.changed, (long long)counts.known);
  request_answer_json(request, counts.added ? 201 : 200, answer_make(&import, &counts));
}

void route_import_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", "kernel", "format", "tag", NULL};
  const char *hash = request_query(request, "kernel");
  struct imports_filter filter = {.format = request_query(request, "format"),
                                  .tag = request_query(request, "tag")};
  struct error error;
  struct digest kernel;
  json_t *items;
  int64_t next;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &filter.limit, &filter.after))
    return;
  if (hash && !digest_parse(hash, &kernel)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "\"kernel\" is not \"sha256:\" and 64 lower-case hexadecimal digits");
    return;
  }
  filter.kernel = hash ? &kernel : NULL;

  if (!imports_list(worker->db, &filter, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, page_to_json(items, next));
}

static bool digest_of_path(struct request *request, struct digest *ret_digest) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  answer_refusal(request, ERROR_MISSING, "", "there is no image \"%.80s\"", request->segments[0]);
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
    answer_failure(request, &error);
    return;
  }

  cleanup_free char *canonical = json_canonical(request->json);
  struct digest actual = digest_of(canonical, strlen(canonical));
  if (!digest_equal(&actual, &digest)) {
    answer_refusal(request, ERROR_INVALID, "", "the identity's digest is %s, not the path's %s",
                   digest_format(&actual, text), request->segments[0]);
    return;
  }

  if (!image_store(worker->db, &digest, canonical, request_author(request), &is_new, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, is_new ? 201 : 200,
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
    answer_refusal(request, ERROR_MISSING, "", "there is no image %s", request->segments[0]);
  else
    request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", text, strlen(text),
                              request->segments[0], NULL);
}
