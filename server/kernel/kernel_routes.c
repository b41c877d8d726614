/* Kernels, their builds, and the signatures of both. A signature comes with its public key and is
 * verified, so that nothing is kept in the name of a key that did not sign; which keys count is for
 * agents to say.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "common/cache/channel_entry.h"
#include "server/blob/blobs.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/kernel/code_signatures.h"
#include "server/kernel/kernels.h"
#include "server/records.h"

static bool digest_of_path(struct request *request, int segment, const char *what,
                           struct digest *ret_digest) {
  if (digest_parse(request->segments[segment], ret_digest))
    return true;
  answer_refusal(request, ERROR_MISSING, "", "there is no %s \"%.80s\"", what,
                 request->segments[segment]);
  return false;
}

void route_kernel_post(struct worker *worker, struct request *request) {
  cleanup_kernel struct kernel *kernel = NULL;
  struct error error;
  size_t n_files;
  bool is_new;
  if (!kernel_parse(request->json, &kernel, &error)) {
    answer_failure(request, &error);
    return;
  }

  cleanup_free struct digest *files = kernel_files(kernel, &n_files);
  if (!answer_missing_files(worker, request, files, n_files))
    return;

  if (!kernel_store(worker->db, kernel, request_author(request), &is_new, &error))
    answer_failure(request, &error);
  else
    request_answer_json(
        request, is_new ? 201 : 200,
        json_pack("{s:o, s:s}", "kernel", json_digest_text(&kernel->hash), "name", kernel->name));
}

void route_kernel_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", "name", NULL};
  struct error error;
  int64_t limit, after, next;
  json_t *items;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &limit, &after))
    return;

  if (!kernels_list(worker->db, request_query(request, "name"), after, limit, &items, &next,
                    &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, page_to_json(items, next));
}

void route_kernel_get(struct worker *worker, struct request *request) {
  json_t *answer;
  struct digest hash;
  struct error error;
  if (!digest_of_path(request, 0, "kernel", &hash))
    return;

  if (!kernel_read(worker->db, &hash, &answer, &error))
    answer_failure(request, &error);
  else if (!answer)
    answer_refusal(request, ERROR_MISSING, "", "there is no kernel %s", request->segments[0]);
  else
    request_answer_json(request, 200, answer);
}

void route_build_put(struct worker *worker, struct request *request) {
  cleanup_json json_t *manifest = NULL;
  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_build struct build *build = NULL;
  struct digest hash, digest;
  struct error error;
  bool is_new;
  if (!digest_of_path(request, 0, "kernel", &hash) || !digest_of_path(request, 1, "build", &digest))
    return;

  if (!kernel_load(worker->db, &hash, &manifest, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!manifest) {
    answer_refusal(request, ERROR_MISSING, "", "there is no kernel %s", request->segments[0]);
    return;
  }

  if (!kernel_parse(manifest, &kernel, &error)) {
    error_become(&error, ERROR_DAMAGED);
    answer_failure(request, &error);
    return;
  }
  if (!build_parse(request->json, kernel, &build, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!digest_equal(&build->digest, &digest)) {
    char text[DIGEST_TEXT_SIZE];
    answer_refusal(request, ERROR_INVALID, "", "the build's digest is %s, not the path's %s",
                   digest_format(&build->digest, text), request->segments[1]);
    return;
  }
  if (!answer_missing_files(worker, request, build->objects, build->n_objects))
    return;

  if (!build_store(worker->db, build, request_author(request), &is_new, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, is_new ? 201 : 200,
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
    answer_refusal(request, ERROR_MISSING, "", "kernel %s has no build %s", request->segments[0],
                   request->segments[1]);
  else
    request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", text, strlen(text),
                              request->segments[1], NULL);
}

void route_build_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", NULL};
  struct digest hash;
  struct error error;
  int64_t limit, after, next;
  json_t *items;
  if (!digest_of_path(request, 0, "kernel", &hash) || !request_query_only(request, known) ||
      !page_by_id(request, 0, &limit, &after))
    return;

  if (!builds_list(worker->db, &hash, after, limit, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, page_to_json(items, next));
}

struct signature_request {
  char *public_key, *signature, *expires;
};
static const struct field signature_request_fields[] = {
    {"public_key", FIELD_TEXT, offsetof(struct signature_request, public_key), FIELD_REQUIRED,
     .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{43}=$\"}"},
    {"signature", FIELD_TEXT, offsetof(struct signature_request, signature), FIELD_REQUIRED,
     .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{86}==$\"}"},
    {"expires", FIELD_TEXT, offsetof(struct signature_request, expires), 0,
     .schema = "{\"type\": \"string\", \"pattern\": "
               "\"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$\"}"},
};
const struct record code_signature_request_record =
    RECORD("CodeSignatureRequest", struct signature_request, signature_request_fields);

static void signature_request_release(struct signature_request *body) {
  record_release(&code_signature_request_record, body);
}
#define cleanup_signature_request __attribute__((cleanup(signature_request_release)))

/* The body's signature, which holds. */
static bool signature_read(const json_t *json, const struct signed_code *code,
                           struct code_signature *ret, struct error *error) {
  cleanup_signature_request struct signature_request body = {0};
  cleanup_signing_key struct signing_key key = {0};
  struct code_signature signature = {0};
  if (!record_read(&code_signature_request_record, json, "", &body, error) ||
      !channel_expires_parse(json, &signature.expires_s, error))
    return false;
  if (!signing_key_of_public_text(body.public_key, &key, error))
    return error_pointer_prefix(error, "/public_key");

  size_t size;
  cleanup_free char *bytes = code_signed_bytes(code, signature.expires_s, &size);
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  if (!signing_key_verify(&key, bytes, size, body.signature))
    return error_at(
        error, "/signature",
        "this is not the signature of %s%s by key %s; sign the text that docs/signing.md "
        "describes",
        signed_code_format(code, what), signature.expires_s ? " with this expiry" : "",
        digest_format(&key.id, id));

  signature.key = key.id;
  memcpy(signature.text, body.signature, sizeof signature.text);
  *ret = signature;
  return true;
}

static void signature_post(struct worker *worker, struct request *request,
                           const struct signed_code *code) {
  struct code_signature signature;
  struct error error;
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  bool is_registered, has_room;
  json_t *answer;
  signed_code_format(code, what);
  if (!code_is_registered(worker->db, code, &is_registered, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!is_registered) {
    answer_refusal(request, ERROR_MISSING, "", "there is no %s; push it first", what);
    return;
  }
  if (!signature_read(request->json, code, &signature, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!code_signature_store(worker->db, code, &signature, request_author(request), &has_room,
                            &answer, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!has_room) {
    answer_refusal(request, ERROR_INVALID, "/signature",
                   "%s has %d signatures by other keys, and no more fit", what,
                   CODE_SIGNATURES_MAX);
    return;
  }
  log_info("kernel: signed %s key=%s token=%s", what, digest_format(&signature.key, id),
           request->token_name);
  request_answer_json(request, 200, answer);
}

void route_kernel_signature_post(struct worker *worker, struct request *request) {
  struct signed_code code = {.is_build = false};
  if (digest_of_path(request, 0, "kernel", &code.kernel))
    signature_post(worker, request, &code);
}

void route_build_signature_post(struct worker *worker, struct request *request) {
  struct signed_code code = {.is_build = true};
  if (digest_of_path(request, 0, "kernel", &code.kernel) &&
      digest_of_path(request, 1, "build", &code.build))
    signature_post(worker, request, &code);
}
