/* SQL of signatures of kernels and builds. Memory and threads: as the header says. */
#include "server/kernel/code_signatures.h"

#include "common/base/time.h"
#include "common/cache/channel_entry.h"
#include "server/db/values.h"

#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)

static bool signature_store(struct db *db, const struct digest *digest, const struct code_signature *signature,
                            const struct author *author, bool *ret_is_new, bool *ret_has_room, struct error *error) {
  static const struct statement store = {
      "code_signature_store",
      "WITH stored AS (INSERT INTO code_signatures AS c (digest, key, signature, expires_at, added_by, added_by_id)"
      " SELECT $1::bytea, $2::bytea, $3, $4::timestamptz, $5, $6::bigint WHERE (SELECT count(*) FROM code_signatures"
      "  WHERE digest = $1::bytea AND key <> $2::bytea AND (expires_at IS NULL OR expires_at > now())) < " TEXT(
          CODE_SIGNATURES_MAX) " ON CONFLICT (digest, key) DO UPDATE SET signature = excluded.signature,"
                               "  expires_at = excluded.expires_at, signed_at = now(), added_by = excluded.added_by,"
                               "  added_by_id = excluded.added_by_id"
                               " WHERE c.expires_at < COALESCE(excluded.expires_at, 'infinity') RETURNING c.key)"
                               " SELECT EXISTS (SELECT FROM stored) AS is_new, EXISTS (SELECT FROM stored) OR EXISTS "
                               "(SELECT FROM code_signatures"
                               "  WHERE digest = $1::bytea AND key = $2::bytea) AS has_room"};
  char expires[TIME_TEXT_SIZE];
  struct db_parameters parameters = {0};
  db_digest(&parameters, digest);
  db_digest(&parameters, &signature->key);
  db_text(&parameters, signature->text);
  db_text(&parameters, signature->expires_s ? time_text_format(signature->expires_s, expires) : NULL);
  db_author(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &store, &parameters, &rows, error))
    return false;
  *ret_is_new = db_get_bool(rows, 0, "is_new");
  *ret_has_room = db_get_bool(rows, 0, "has_room");
  return true;
}

bool code_signature_store(struct db *db, const struct digest *digest, const struct code_signature *signature,
                          const struct author *author, bool *ret_has_room, struct error *error) {
  bool is_new = false;
  if (!db_begin(db, error))
    return false;
  bool ok = signature_store(db, digest, signature, author, &is_new, ret_has_room, error);
  if (ok && is_new)
    ok = audit_note_digest(db, author, AUDIT_SIGN_CODE, digest,
                           json_pack("{s:o}", "key", json_digest_text(&signature->key)), error);
  return db_end(db, ok, error);
}

bool code_signatures_load(struct db *db, const struct digest *digest, json_t **ret_signatures, struct error *error) {
  static const struct statement load = {"code_signatures_load", "SELECT " SQL_SIGNATURES("$1::bytea") " AS signatures"};
  struct db_parameters parameters = {0};
  db_digest(&parameters, digest);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &load, &parameters, &rows, error))
    return false;
  *ret_signatures = db_get_json(rows, 0, "signatures");
  return true;
}

bool agents_refusing(struct db *db, const struct digest *hardware, const struct digest *kernel,
                     const struct digest *build, bool is_plain, int64_t live_ms, int64_t *ret_n, struct error *error) {
  static const struct statement count = {
      "agents_refusing",
      "SELECT count(DISTINCT a.id) AS n"
      " FROM (SELECT $2::bytea AS kernel, $3::bytea AS build, $4::bool AS is_plain) j"
      " CROSS JOIN environments e JOIN devices d ON d.environment_id = e.id JOIN agents a ON a.id = d.agent"
      " WHERE e.hardware_digest = $1::bytea AND COALESCE(a.drain_reason, d.drain_reason) IS NULL"
      "  AND a.last_seen > now() - $5::bigint * interval '1 ms' AND NOT " SQL_MAY_RUN("a.trusted_keys")};
  char text[BYTEA_TEXT_SIZE];
  struct db_parameters parameters = {0};
  db_digest(&parameters, hardware);
  db_digest(&parameters, kernel);
  db_text(&parameters, build ? digest_bytea(build, text) : NULL);
  db_text(&parameters, is_plain ? "t" : "f");
  db_integer(&parameters, live_ms);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &count, &parameters, &rows, error))
    return false;
  *ret_n = db_get_integer(rows, 0, "n");
  return true;
}
