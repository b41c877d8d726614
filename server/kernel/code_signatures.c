/* Signatures of kernels and builds in the database. Memory and threads: as the header says. */
#include "server/kernel/code_signatures.h"

#include "common/base/time.h"
#include "common/cache/channel_entry.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/kernel/kernel.sql.h"
#include "server/records.h"

struct code_signatures {
  struct digest kernel, build;
  json_t *signatures;
};
static const struct field signatures_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct code_signatures, kernel), FIELD_ANSWER},
    {"build", FIELD_DIGEST, offsetof(struct code_signatures, build), FIELD_ANSWER | FIELD_OMITTED},
    {"signatures", FIELD_JSON, offsetof(struct code_signatures, signatures), FIELD_ANSWER,
     .schema =
         "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/CodeSignature\"}}"},
};
const struct record code_signatures_record =
    RECORD("CodeSignatures", struct code_signatures, signatures_fields);

static const struct digest *code_digest(const struct signed_code *code) {
  return code->is_build ? &code->build : &code->kernel;
}

bool code_is_registered(struct db *db, const struct signed_code *code, bool *ret_is_registered,
                        struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "kernel", &code->kernel);
  bind_digest(&parameters, "build", code->is_build ? &code->build : NULL);
  if (!db_run(db, &sql_code_is_registered, &parameters, &rows, error))
    return false;
  *ret_is_registered = db_get_bool(rows, 0, "is_registered");
  return true;
}

static bool signature_store(struct db *db, const struct digest *digest,
                            const struct code_signature *signature, const struct author *author,
                            bool *ret_has_room, struct error *error) {
  char expires[TIME_TEXT_SIZE];
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  bind_digest(&parameters, "key", &signature->key);
  bind_text(&parameters, "signature", signature->text);
  bind_text(&parameters, "expires_at",
            signature->expires_s ? time_text_format(signature->expires_s, expires) : NULL);
  bind_integer(&parameters, "most", CODE_SIGNATURES_MAX);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_code_signature_store, &parameters, &rows, error))
    return false;

  *ret_has_room = db_get_bool(rows, 0, "has_room");
  return !db_get_bool(rows, 0, "is_new") ||
         audit_note_digest(db, author, AUDIT_SIGN_CODE, digest,
                           json_pack("{s:o}", "key", json_digest_text(&signature->key)), error);
}

static bool signatures_load(struct db *db, const struct signed_code *code, json_t **ret_answer,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", code_digest(code));
  if (!db_run(db, &sql_code_signatures_load, &parameters, &rows, error))
    return false;

  cleanup_json json_t *signatures = db_get_json(rows, 0, "signatures");
  struct code_signatures answer = {.kernel = code->kernel, .signatures = signatures};
  if (code->is_build)
    answer.build = code->build;
  *ret_answer = record_write(&code_signatures_record, &answer);
  return true;
}

bool code_signature_store(struct db *db, const struct signed_code *code,
                          const struct code_signature *signature, const struct author *author,
                          bool *ret_has_room, json_t **ret_answer, struct error *error) {
  cleanup_json json_t *answer = NULL;
  bool has_room = false;
  if (!db_begin(db, error))
    return false;
  bool ok = signature_store(db, code_digest(code), signature, author, &has_room, error) &&
            (!has_room || signatures_load(db, code, &answer, error));
  if (!db_end(db, ok, error))
    return false;

  *ret_has_room = has_room;
  *ret_answer = TAKE(answer);
  return true;
}

bool agents_refusing(struct db *db, const struct digest *hardware, const struct digest *kernel,
                     const struct digest *build, bool is_plain, int64_t live_ms, int64_t *ret_n,
                     struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "hardware", hardware);
  bind_digest(&parameters, "kernel", kernel);
  bind_digest(&parameters, "build", build);
  bind_bool(&parameters, "is_plain", is_plain);
  bind_integer(&parameters, "live_ms", live_ms);
  if (!db_run(db, &sql_agents_refusing, &parameters, &rows, error))
    return false;
  *ret_n = db_get_integer(rows, 0, "n");
  return true;
}
