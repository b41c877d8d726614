/* Kernels, their builds, and the signatures of both: storing, reading and listing them.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/kernel/kernels.h"

#include "common/base/log.h"
#include "common/base/time.h"
#include "common/cache/signatures.h"
#include "server/audit/audit.h"
#include "server/blob/blobs.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/kernel/kernel.sql.h"
#include "server/records.h"

#define CODE_SIGNATURES_MAX 64 /* of one kernel or build, each by a different key */

#define SCHEMA_SIGNATURES                                                                          \
  "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/CodeSignature\"}}"
#define SCHEMA_MANIFEST SCHEMA("Manifest")

/* A kernel or a build; each answer below contains some of the members. */
struct stored_code {
  struct digest digest; /* the kernel's hash, or the build's digest */
  char *name, *language, *arch, *created_at, *made_by;
  int64_t variants, made_by_id;
  json_t *manifest, *toolchain, *signatures;
};

#define FIELD(type, member, ...)                                                                   \
  RECORD_FIELD(type, struct stored_code, member, FIELD_ANSWER, __VA_ARGS__)
#define DIGEST_FIELD(name, column)                                                                 \
  RECORD_FIELD_AS(name, DIGEST, struct stored_code, digest, FIELD_ANSWER, column)
#define MADE_FIELDS                                                                                \
  FIELD(TIME, created_at), FIELD(TEXT, made_by), FIELD(ID, made_by_id, .schema = SCHEMA_BY_ID),    \
      FIELD(JSON, signatures, .schema = SCHEMA_SIGNATURES)
static const struct field kernel_fields[] = {
    DIGEST_FIELD("kernel", "hash"),
    FIELD(JSON, manifest, .schema = SCHEMA_MANIFEST),
    MADE_FIELDS,
};
const struct record kernel_record = RECORD("Kernel", struct stored_code, kernel_fields);

static const struct field kernel_item_fields[] = {
    DIGEST_FIELD("kernel", "hash"),
    FIELD(TEXT, name),
    FIELD(TEXT, language),
    MADE_FIELDS,
};
const struct record kernel_item_record =
    RECORD("KernelItem", struct stored_code, kernel_item_fields);

static const struct field build_item_fields[] = {
    DIGEST_FIELD("build", "digest"),
    FIELD(JSON, toolchain, .schema = "{\"type\": \"object\"}"),
    FIELD(TEXT, arch),
    FIELD(INTEGER, variants),
    MADE_FIELDS,
};
#undef FIELD
const struct record build_item_record = RECORD("BuildItem", struct stored_code, build_item_fields);

bool kernels_load(struct db *db, const struct digest *hashes, size_t n, json_t **ret_manifests,
                  struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_kernels_manifests, error, BIND_ALL("hashes", hashes, n));
  if (!rows)
    return false;

  for (size_t i = 0; i < n; i++)
    ret_manifests[i] =
        db_is_null(rows, (int)i, "manifest") ? NULL : db_get_json(rows, (int)i, "manifest");
  return true;
}

bool kernel_load(struct db *db, const struct digest *hash, json_t **ret_manifest,
                 struct error *error) {
  return kernels_load(db, hash, 1, ret_manifest, error);
}

bool build_load(struct db *db, const struct digest *kernel, const struct digest *digest,
                char **ret_text, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_build_select, error, BIND("kernel", kernel), BIND("digest", digest));
  if (!rows)
    return false;

  *ret_text = NULL;
  if (db_count(rows) == 0)
    return true;

  const char *text = db_get(rows, 0, "build");
  struct digest actual = digest_of(text, strlen(text));
  if (digest_equal(&actual, digest)) {
    *ret_text = xstrdup(text);
  } else { /* Stored by an older server, not as the canonical text that the digest covers. */
    cleanup_json json_t *build = db_get_json(rows, 0, "build");
    *ret_text = json_canonical(build);
  }

  return true;
}

bool agents_refusing(struct db *db, const struct code_of_job *code, int64_t live_ms, int64_t *ret_n,
                     bool *ret_able, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_agents_refusing, error, BIND("hardware", code->hardware),
               BIND("kernel", code->kernel), BIND("build", code->build),
               parameter_bool("is_plain", code->is_plain),
               BIND("regime", regime_name(code->regime)), BIND("live_ms", live_ms));
  if (!rows)
    return false;

  *ret_n = db_get_integer(rows, 0, "n");
  *ret_able = *ret_n == 0 || db_get_bool(rows, 0, "is_able");
  return true;
}

static bool digest_of_path(struct request *request, int segment, const char *what,
                           struct digest *ret_digest, struct error *error) {
  if (digest_parse(request->segments[segment], ret_digest))
    return true;

  return error_of(error, ERROR_MISSING, "there is no %s \"%.80s\"", what,
                  request->segments[segment]);
}

/* Stores a kernel or a build with its files, unless it is stored already, and notes it in the audit
 * log: one transaction. */
static bool code_store(struct db *db, const struct statement *insert, const struct db_bound *given,
                       const struct audit_row *note, bool *ret_is_new, struct error *error) {
  if (!db_begin(db, error))
    return false;

  cleanup_rows struct db_rows *rows = db_query_of(db, insert, error, given);
  bool ok = rows;
  *ret_is_new = ok && db_get_integer(rows, 0, "made") == 1;
  if (*ret_is_new)
    ok = audit_add(db, note, 1, error);
  return db_end(db, ok, error);
}

/* Stores the reference of a captured kernel that is registered, if it is another one. Builders
 * register many kernels and change none. */
static bool reference_store(struct worker *worker, struct request *request,
                            const struct kernel *kernel, const struct digest *files, size_t n,
                            struct error *error) {
  char hash[DIGEST_TEXT_SIZE];
  bool is_new;
  if (!(request->roles & (TOKEN_SUBMITTER | TOKEN_ADMIN)))
    return error_of_at(error, ERROR_FORBIDDEN, "/reference",
                       "the kernel is registered; a token with the role submitter or admin sets "
                       "the reference of a captured kernel");

  cleanup_json json_t *detail = json_pack("{s:s, s:o}", "name", kernel->name, "reference",
                                          json_digest_text(&kernel->reference.source.digest));
  const struct audit_row note = {request_author(request), AUDIT_REGISTER,
                                 digest_format(&kernel->hash, hash), detail};
  return code_store(worker->db, &sql_kernel_set_reference,
                    BOUND(BIND("hash", &kernel->hash), BIND("manifest", kernel->json),
                          BIND_ALL("files", files, n)),
                    &note, &is_new, error);
}

bool route_kernel_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_kernel struct kernel *kernel = NULL;
  bool is_new;
  if (!kernel_parse(request->json, &kernel, error))
    return false;

  /* Its sources and the source of its reference, without duplicates; all of these files must be
   * stored. */
  cleanup_free struct digest *files = xcalloc(kernel->n_sources + 1, sizeof *files);
  size_t n = 0;
  for (size_t i = 0; i <= kernel->n_sources; i++) {
    const struct source *source =
        i < kernel->n_sources ? &kernel->sources[i] : &kernel->reference.source;
    bool is_known = !source->path;
    for (size_t j = 0; j < n; j++)
      is_known |= digest_equal(&files[j], &source->digest);
    if (!is_known)
      files[n++] = source->digest;
  }

  if (!files_check(worker, request, files, n, error))
    return false;

  cleanup_free char *manifest = json_dumps(kernel->json, JSON_COMPACT | JSON_ENSURE_ASCII);
  ALWAYS(manifest != NULL);
  const struct author *author = request_author(request);
  char hash[DIGEST_TEXT_SIZE];
  cleanup_json json_t *detail = json_pack("{s:s}", "name", kernel->name);
  const struct audit_row note = {author, AUDIT_REGISTER, digest_format(&kernel->hash, hash),
                                 detail};
  bool ok = code_store(worker->db, &sql_kernel_insert,
                       BOUND(BIND("hash", &kernel->hash), BIND("name", kernel->name),
                             BIND("language", language_name(kernel->language)),
                             BIND("manifest", manifest), BIND_ALL("files", files, n),
                             BIND_AUTHOR(author)),
                       &note, &is_new, error);
  if (ok && !is_new && kernel->is_captured && kernel->reference.source.path)
    ok = reference_store(worker, request, kernel, files, n, error);
  if (!ok)
    return false;
  return request_answer_json(request, is_new ? 201 : 200,
                             json_pack("{s:s, s:s}", "kernel", hash, "name", kernel->name));
}

/* Whether the build was not removed. Otherwise answers. */
static bool build_may_be_stored(struct worker *worker, const struct digest *digest,
                                struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_build_removed, error, BIND("digest", digest));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  char text[DIGEST_TEXT_SIZE];
  return error_of(
      error, ERROR_CONFLICT,
      "the build %s was removed by %s at %s and is not stored again; build from another "
      "source or with another compiler",
      digest_format(digest, text), db_get(rows, 0, "removed_by"), db_get(rows, 0, "removed_at"));
}

bool route_build_put(struct worker *worker, struct request *request, struct error *error) {
  cleanup_json json_t *manifest = NULL;
  cleanup_kernel struct kernel *kernel = NULL;
  cleanup_build struct build *build = NULL;
  struct digest hash, digest;
  bool is_new;
  if (!digest_of_path(request, 0, "kernel", &hash, error) ||
      !digest_of_path(request, 1, "build", &digest, error) ||
      !kernel_load(worker->db, &hash, &manifest, error))
    return false;

  if (!manifest)
    return error_of(error, ERROR_MISSING, "there is no kernel %s", request->segments[0]);

  if (!(kernel_parse(manifest, &kernel, error) || error_become(error, ERROR_DAMAGED)) ||
      !build_parse(request->json, kernel, &build, error))
    return false;

  if (!digest_equal(&build->digest, &digest)) {
    char text[DIGEST_TEXT_SIZE];
    return error_set(error, "the build's digest is %s, not the path's %s",
                     digest_format(&build->digest, text), request->segments[1]);
  }

  if (!build_may_be_stored(worker, &build->digest, error) ||
      !files_check(worker, request, build->objects, build->n_objects, error))
    return false;

  const struct author *author = request_author(request);
  cleanup_json json_t *head = build_head(build);
  cleanup_json json_t *detail =
      json_pack("{s:o, s:s}", "kernel", json_digest_text(&build->kernel), "arch", build->arch);
  const struct audit_row note = {author, AUDIT_PUT_BUILD, request->segments[1], detail};
  if (!code_store(worker->db, &sql_build_insert,
                  BOUND(BIND("digest", &build->digest), BIND("kernel", &build->kernel),
                        BIND("arch", build->arch), BIND("triton", build->triton),
                        BIND("torch", build->torch), BIND("rocm", build->rocm),
                        BIND("variants", (int64_t)build->n_variants),
                        parameter_taken("build", json_canonical(build->json)),
                        parameter_taken("head", json_canonical(head)),
                        BIND_ALL("files", build->objects, build->n_objects), BIND_AUTHOR(author)),
                  &note, &is_new, error))
    return false;
  return request_answer_json(request, is_new ? 201 : 200,
                             json_pack("{s:s}", "build", request->segments[1]));
}

bool route_kernel_get(struct worker *worker, struct request *request, struct error *error) {
  struct digest hash;
  if (!digest_of_path(request, 0, "kernel", &hash, error))
    return false;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_kernel_select, error, BIND("hash", &hash));
  if (!rows)
    return false;
  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "there is no kernel %s", request->segments[0]);
  return request_answer_json(request, 200, db_row_to_json(rows, &kernel_record, NULL));
}

bool route_build_get(struct worker *worker, struct request *request, struct error *error) {
  struct digest hash, digest;
  char *text;
  if (!digest_of_path(request, 0, "kernel", &hash, error) ||
      !digest_of_path(request, 1, "build", &digest, error) ||
      !build_load(worker->db, &hash, &digest, &text, error))
    return false;
  if (!text)
    return error_of(error, ERROR_MISSING, "kernel %s has no build %s", request->segments[0],
                    request->segments[1]);
  /* Not immutable: it may be removed. */
  return request_answer_cached(request, RESPONSE_OF_CHANNELS, "application/json", text,
                               strlen(text), request->segments[1], NULL);
}

/* In the caller's transaction: removes a build that no channel's release and no open job needs. */
static bool build_remove(struct db *db, const struct author *author, const struct digest *kernel,
                         const struct digest *digest, struct error *error) {
  char text[DIGEST_TEXT_SIZE], of[DIGEST_TEXT_SIZE];
  digest_format(digest, text);
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_build_needed, error, BIND("digest", digest), BIND("kernel", kernel));
  if (!rows)
    return false;
  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "kernel %s has no build %s", digest_format(kernel, of),
                    text);

  if (!db_is_null(rows, 0, "channels"))
    return error_of(error, ERROR_CONFLICT,
                    "the channels %s serve a release with winners of the build %s: publish without "
                    "them (ban their configs) or roll back first",
                    db_get(rows, 0, "channels"), text);
  if (!db_is_null(rows, 0, "jobs"))
    return error_of(error, ERROR_CONFLICT, "the jobs %s run the build %s: cancel them first",
                    db_get(rows, 0, "jobs"), text);

  return db_execute(db, &sql_build_remove, error, BIND("digest", digest), BIND("kernel", kernel),
                    BIND("author", author->name)) &&
         audit_note_digest(db, author, AUDIT_REMOVE_BUILD, digest,
                           json_pack("{s:o}", "kernel", json_digest_text(kernel)), error);
}

bool route_build_delete(struct worker *worker, struct request *request, struct error *error) {
  struct digest kernel, digest;
  if (!digest_of_path(request, 0, "kernel", &kernel, error) ||
      !digest_of_path(request, 1, "build", &digest, error) || !db_begin(worker->db, error) ||
      !db_end(worker->db,
              build_remove(worker->db, request_author(request), &kernel, &digest, error), error))
    return false;

  response_cache_forget_channels(worker->server);
  return request_answer_empty(request, 204);
}

bool route_kernel_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_kernels_list, .record = &kernel_item_record};
  return answer_page_by(worker, request, &list, error,
                        BIND("name", request_query(request, "name")));
}

bool route_build_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_builds_list, .record = &build_item_record};
  struct digest hash;
  return digest_of_path(request, 0, "kernel", &hash, error) &&
         answer_page_by(worker, request, &list, error, BIND("kernel", &hash));
}

/* Signatures. A request has the signature and its public key, and the signature is verified, so
 * that none is stored for a key that did not make it. Agents decide which keys they trust. */

struct signature_request {
  char *public_key, *signature, *expires;
};
#define RECORD_OF struct signature_request
static const struct field signature_request_fields[] = {
    MEMBER(TEXT, public_key, FIELD_REQUIRED,
           .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{43}=$\"}"),
    MEMBER(TEXT, signature, FIELD_REQUIRED,
           .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9+/]{86}==$\"}"),
    MEMBER(TEXT, expires,
           .schema = "{\"type\": \"string\", \"pattern\": "
                     "\"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$\"}"),
};
#undef RECORD_OF
const struct record code_signature_request_record =
    RECORD("CodeSignatureRequest", struct signature_request, signature_request_fields);

static void signature_request_release(struct signature_request *body) {
  record_release(&code_signature_request_record, body);
}
#define cleanup_signature_request __attribute__((cleanup(signature_request_release)))

/* Reads and verifies the body's signature. */
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

struct code_signatures {
  struct digest kernel, build;
  json_t *signatures;
};
#define RECORD_OF struct code_signatures
static const struct field signatures_fields[] = {
    MEMBER(DIGEST, kernel),
    MEMBER(DIGEST, build, FIELD_OMITTED),
    MEMBER(JSON, signatures, .schema = SCHEMA_SIGNATURES),
};
const struct record code_signatures_record = ANSWER("CodeSignatures", signatures_fields);
#undef RECORD_OF

/* Stores a verified signature and notes it in the audit log. Of two by one key the one that expires
 * later is kept, because any client that has read the other could send it again. *ret_answer: all
 * signatures that the code has now, in the order in which they were made; NULL, and nothing is
 * stored, when the code has signatures by CODE_SIGNATURES_MAX other keys. */
static bool signature_store(struct db *db, const struct signed_code *code,
                            const struct code_signature *signature, const struct author *author,
                            json_t **ret_answer, struct error *error) {
  const struct digest *digest = code->is_build ? &code->build : &code->kernel;
  char expires[TIME_TEXT_SIZE];
  cleanup_rows struct db_rows *stored = NULL, *all = NULL;

  bool ok =
      db_begin(db, error) &&
      (stored = db_query(db, &sql_code_signature_store, error, BIND("digest", digest),
                         BIND("key", &signature->key), BIND("signature", signature->text),
                         BIND("expires_at", signature->expires_s
                                                ? time_text_format(signature->expires_s, expires)
                                                : NULL),
                         BIND("most", CODE_SIGNATURES_MAX), BIND_AUTHOR(author)));
  if (ok && db_get_bool(stored, 0, "is_new"))
    ok = audit_note_digest(db, author, AUDIT_SIGN_CODE, digest,
                           json_pack("{s:o}", "key", json_digest_text(&signature->key)), error);
  if (ok && db_get_bool(stored, 0, "has_room"))
    ok = (all = db_query(db, &sql_code_signatures_load, error, BIND("digest", digest)));
  if (!db_end(db, ok, error))
    return false;

  *ret_answer = NULL;
  if (all) {
    cleanup_json json_t *signatures = db_get_json(all, 0, "signatures");
    struct code_signatures answer = {.kernel = code->kernel, .signatures = signatures};
    if (code->is_build)
      answer.build = code->build;
    *ret_answer = record_write(&code_signatures_record, &answer);
  }

  return true;
}

static bool signature_post(struct worker *worker, struct request *request,
                           const struct signed_code *code, struct error *error) {
  struct code_signature signature;
  char what[SIGNED_CODE_TEXT_SIZE], id[DIGEST_TEXT_SIZE];
  json_t *answer;
  signed_code_format(code, what);
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_code_is_registered, error, BIND("kernel", &code->kernel),
               BIND("build", code->is_build ? &code->build : NULL));
  if (!rows)
    return false;

  if (!db_get_bool(rows, 0, "is_registered"))
    return error_of(error, ERROR_MISSING, "there is no %s; push it first", what);

  if (!signature_read(request->json, code, &signature, error) ||
      !signature_store(worker->db, code, &signature, request_author(request), &answer, error))
    return false;

  if (!answer)
    return error_at(error, "/signature", "%s has %d signatures by other keys, which is the limit",
                    what, CODE_SIGNATURES_MAX);

  log_info("kernel: signed %s key=%s token=%s", what, digest_format(&signature.key, id),
           request->token_name);
  return request_answer_json(request, 200, answer);
}

bool route_kernel_signature_post(struct worker *worker, struct request *request,
                                 struct error *error) {
  struct signed_code code = {.is_build = false};
  return digest_of_path(request, 0, "kernel", &code.kernel, error) &&
         signature_post(worker, request, &code, error);
}

bool route_build_signature_post(struct worker *worker, struct request *request,
                                struct error *error) {
  struct signed_code code = {.is_build = true};
  return digest_of_path(request, 0, "kernel", &code.kernel, error) &&
         digest_of_path(request, 1, "build", &code.build, error) &&
         signature_post(worker, request, &code, error);
}
