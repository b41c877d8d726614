/* POST of a signature to a kernel or a build. It comes with the public key and is verified, so that nothing is kept in the
 * name of a key that did not sign. Which keys count is for agents to say.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "common/cache/channel_entry.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/kernel/code_signatures.h"
#include "server/kernel/kernels.h"
#include "server/server_private.h"

static bool is_registered(struct worker *worker, const struct signed_code *code, bool *ret_is_there,
                          struct error *error) {
  cleanup_json json_t *manifest = NULL;
  cleanup_free char *build = NULL;
  if (code->is_build) {
    if (!build_load(worker->db, &code->kernel, &code->build, &build, error))
      return false;
    *ret_is_there = build != NULL;
    return true;
  }
  if (!kernel_load(worker->db, &code->kernel, &manifest, NULL, error))
    return false;
  *ret_is_there = manifest != NULL;
  return true;
}

/* The body's signature, which holds. */
static bool signature_read(const json_t *json, const struct signed_code *code, struct code_signature *ret,
                           struct error *error) {
  static const char *const members[] = {"public_key", "signature", "expires", NULL};
  cleanup_signing_key struct signing_key key = {0};
  struct code_signature signature = {0};
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  const char *public_key, *text;
  size_t size;
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "public_key", JSON_REQUIRED, &public_key, error) ||
      !json_get_string(json, "", "signature", JSON_REQUIRED, &text, error) ||
      !channel_expires_parse(json, &signature.expires_s, error))
    return false;
  if (!signing_key_of_public_text(public_key, &key, error))
    return error_pointer_prefix(error, "/public_key");

  cleanup_free char *bytes = code_signed_bytes(code, signature.expires_s, &size);
  if (!signing_key_verify(&key, bytes, size, text))
    return error_at(error, "/signature",
                    "this is not the signature of %s%s by key %s; sign the text that docs/signing.md "
                    "describes",
                    signed_code_format(code, what), signature.expires_s ? " with this expiry" : "",
                    digest_format(&key.id, id));
  signature.key = key.id;
  memcpy(signature.text, text, sizeof signature.text);
  *ret = signature;
  return true;
}

static void signature_post(struct worker *worker, struct request *request, const struct signed_code *code) {
  const struct digest *digest = code->is_build ? &code->build : &code->kernel;
  struct code_signature signature;
  struct error error;
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  bool is_there, has_room;
  json_t *signatures;
  signed_code_format(code, what);
  if (!is_registered(worker, code, &is_there, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!is_there) {
    request_problem(request, 404, "", "there is no %s; push it first", what);
    return;
  }
  if (!signature_read(request->json, code, &signature, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!code_signature_store(worker->db, digest, &signature, request_author(request), &has_room, &error) ||
      !code_signatures_load(worker->db, digest, &signatures, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!has_room) {
    json_decref(signatures);
    request_problem(request, 422, "/signature", "%s has %d signatures by other keys, and no more fit", what,
                    CODE_SIGNATURES_MAX);
    return;
  }
  log_info("kernel: signed %s key=%s token=%s", what, digest_format(&signature.key, id), request->token_name);
  request_answer_json(request, 200,
                      json_pack("{s:o, s:o*, s:o}", "kernel", json_digest_text(&code->kernel), "build",
                                code->is_build ? json_digest_text(&code->build) : NULL, "signatures", signatures));
}

static bool digest_of_segment(struct request *request, int segment, const char *what, struct digest *ret) {
  if (digest_parse(request->segments[segment], ret))
    return true;
  request_problem(request, 404, "", "there is no %s \"%.80s\"", what, request->segments[segment]);
  return false;
}

void route_kernel_signature_post(struct worker *worker, struct request *request) {
  struct signed_code code = {.is_build = false};
  if (digest_of_segment(request, 0, "kernel", &code.kernel))
    signature_post(worker, request, &code);
}

void route_build_signature_post(struct worker *worker, struct request *request) {
  struct signed_code code = {.is_build = true};
  if (digest_of_segment(request, 0, "kernel", &code.kernel) && digest_of_segment(request, 1, "build", &code.build))
    signature_post(worker, request, &code);
}
