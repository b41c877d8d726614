/* POST /v1/releases/{digest}/signatures: publishers sign the choices of a release.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/cache/signatures.h"
#include "server/audit/audit.h"
#include "server/channel/channels.h"
#include "server/choice/choices.h"
#include "server/choice/documents.h"
#include "server/choice/signing.sql.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"
#include "server/token/tokens.h"

struct choices_signing {
  struct digest choices;
  struct channel_signature signature;
};
#define RECORD_OF struct choices_signing
static const struct field signing_fields[] = {
    MEMBER(DIGEST, choices, FIELD_REQUIRED, .about = "of the bytes of the format choices"),
    MEMBER_AS("signature", RECORD, signature, FIELD_REQUIRED, .of = &channel_signature_record),
};
#undef RECORD_OF
const struct record choices_signing_record =
    RECORD("ChoicesSigning", struct choices_signing, signing_fields);

bool choices_signatures_load(struct db *db, const struct digest *release,
                             const struct digest *choices, json_t **ret, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_choices_signatures, error,
                                               BIND("release", release), BIND("choices", choices));
  if (!rows)
    return false;

  json_t *signatures = json_array();
  for (int row = 0; row < db_count(rows); row++) {
    struct digest key = db_get_digest(rows, row, "key");
    json_push(signatures, json_pack("{s:o, s:s}", "key", json_digest_text(&key), "signature",
                                    db_get(rows, row, "signature")));
  }
  *ret = json_pack("{s:o, s:o}", "digest", json_digest_text(choices), "signatures", signatures);
  return true;
}

/* Whether the request's token may sign: an admin's may, a publisher's if it may move a channel that
 * points at the release. Otherwise a publisher of one channel could replace the signatures of
 * another. */
static bool signer_check(struct db *db, const struct request *request, const struct digest *release,
                         struct error *error) {
  if (request->roles & TOKEN_ADMIN)
    return true;
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_choices_channels, error, BIND("release", release));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    cleanup_free char *patterns = NULL;
    bool may;
    if (!token_moves_channel(db, request->token_id, db_get(rows, row, "name"), &may, &patterns,
                             error))
      return false;
    if (may)
      return true;
  }

  metrics_note_refusal(REFUSED_CHANNEL);
  return error_of(error, ERROR_FORBIDDEN,
                  "no channel that the token \"%s\" may move points at this release",
                  request->token_name);
}

/* Whether the operator's keys (--publisher-key) allow the signature; without any all are allowed.
 */
static bool signature_check(const struct server *server, const struct digest *release,
                            const struct choices_signing *signing, struct error *error) {
  const struct trusted_keys *keys = server_publisher_keys(server);
  const struct signing_key *key = trusted_keys_find(keys, &signing->signature.key);
  size_t size;
  cleanup_free char *bytes = choices_signed_bytes(release, &signing->choices, &size);
  return !keys->n || (key && signing_key_verify(key, bytes, size, signing->signature.text)) ||
         error_of_at(error, ERROR_FORBIDDEN, "/signature",
                     "this server accepts only signatures of its publishers over the choices, and "
                     "this is %s",
                     key ? "not what the key signed" : "by another key");
}

/* Stores a signature. ERROR_CONFLICT: the release has the most signatures by other keys. */
static bool signature_store(struct db *db, struct request *request, const struct digest *release,
                            const struct choices_signing *signing, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error) &&
            (rows = db_query(
                 db, &sql_choices_sign, error, BIND("release", release),
                 BIND("key", &signing->signature.key), BIND("choices", &signing->choices),
                 BIND("signature", signing->signature.text), BIND("most", CHANNEL_SIGNATURES_MAX)));
  if (ok && !db_count(rows))
    ok =
        error_of(error, ERROR_CONFLICT,
                 "the choices of this release have %d signatures by other keys, which is the limit",
                 CHANNEL_SIGNATURES_MAX);
  if (ok)
    ok = audit_note(db, request_author(request), AUDIT_SIGN, request->segments[0],
                    json_pack("{s:o, s:o}", "choices", json_digest_text(&signing->choices), "key",
                              json_digest_text(&signing->signature.key)),
                    error);
  return db_end(db, ok, error);
}

bool route_choices_sign(struct worker *worker, struct request *request, struct error *error) {
  struct documents *documents = server_documents(worker->server);
  struct choices_signing signing = {0};
  struct document *document = NULL;
  struct digest release;
  char text[DIGEST_TEXT_SIZE];
  json_t *answer;
  if ((!digest_parse(request->segments[0], &release) &&
       !error_of(error, ERROR_MISSING, "there is no release %.100s", request->segments[0])) ||
      !record_read(&choices_signing_record, request->json, "", &signing, error) ||
      !document_get(worker, &release, &document, error))
    return false;

  /* A signature over other bytes is of no use, and may show that one side is wrong. */
  bool ok = (digest_equal(&document->digest, &signing.choices) ||
             error_of_at(error, ERROR_CONFLICT, "/choices",
                         "the choices of this release have the digest %s here: the server and the "
                         "publisher's programs have different versions, or one of them is wrong",
                         digest_format(&document->digest, text))) &&
            signer_check(worker->db, request, &release, error) &&
            signature_check(worker->server, &release, &signing, error) &&
            signature_store(worker->db, request, &release, &signing, error) &&
            choices_signatures_load(worker->db, &release, &signing.choices, &answer, error);
  if (ok) {
    response_cache_forget_channels(worker->server);
    request_answer_json(request, 200, answer);
  }
  document_put(documents, document);
  return ok;
}
