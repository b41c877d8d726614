/* SQL of the tokens. */
#include "server/store/tokens.h"

#include "server/db/values.h"

bool token_name_is_good(const char *name) {
  size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return length >= 1 && length <= 64 && !name[length];
}

bool tokens_keep(struct db *db, const char *name, const char *role, const char *token, struct error *error) {
  static const struct statement insert = {
      "tokens_insert",
      "INSERT INTO tokens (name, role, digest) VALUES ($1, $2::token_role, $3::bytea) ON CONFLICT (digest) DO NOTHING"};
  struct digest digest = digest_of(token, strlen(token));
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_text(&parameters, role);
  db_bytes(&parameters, digest.bytes, sizeof digest.bytes);
  return db_run(db, &insert, &parameters, NULL, error);
}

bool tokens_make(struct db *db, const struct token_terms *terms, char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new,
                 struct error *error) {
  /* One that is past its time no longer has its name. */
  static const struct statement rename = {
      "tokens_end_expired",
      "UPDATE tokens SET revoked_at = expires_at WHERE name = $1 AND revoked_at IS NULL AND expires_at <= now()"};
  static const struct statement insert = {
      "tokens_make",
      "INSERT INTO tokens (name, role, digest, expires_at, uses_left, agent_name, environment, agent, replaces)"
      " VALUES ($1, $2::token_role, $3::bytea, now() + $4::bigint * interval '1 ms', $5::int, $6, $7::json, $8,"
      "  $9::bigint)"};
  /* A certificate's digest is always the same, and digests are unique: what has ended gives it up. */
  static const struct statement free_digest = {
      "tokens_free_digest", "UPDATE tokens t SET digest = sha256(digest || convert_to(id::text, 'UTF8'))"
                            " WHERE digest = $1::bytea AND NOT " SQL_TOKEN_IS_LIVE("t")};
  char token[TOKEN_TEXT_SIZE] = "wt_";
  random_hex(token + 3, 32);
  struct digest digest = terms->certificate ? *terms->certificate : digest_of(token, strlen(token));
  struct db_parameters parameters = {0}, named = {0}, freed = {0};
  db_bytes(&freed, digest.bytes, sizeof digest.bytes);
  db_text(&named, terms->name);
  db_text(&parameters, terms->name);
  db_text(&parameters, terms->role);
  db_bytes(&parameters, digest.bytes, sizeof digest.bytes);
  if (terms->expires_in_ms)
    db_integer(&parameters, terms->expires_in_ms);
  else
    db_text(&parameters, NULL);
  if (terms->uses)
    db_integer(&parameters, terms->uses);
  else
    db_text(&parameters, NULL);
  db_text(&parameters, terms->agent_name);
  db_text(&parameters, terms->environment);
  db_text(&parameters, terms->agent);
  if (terms->replaces)
    db_integer(&parameters, terms->replaces);
  else
    db_text(&parameters, NULL);
  if (!db_run(db, &rename, &named, NULL, error) ||
      (terms->certificate && !db_run(db, &free_digest, &freed, NULL, error)))
    return false;
  *ret_is_new = db_run(db, &insert, &parameters, NULL, error);
  if (!*ret_is_new)
    return error->kind == ERROR_CONFLICT;
  snprintf(ret_token, TOKEN_TEXT_SIZE, "%s", terms->certificate ? "" : token);
  return true;
}

/* The live admin tokens are locked in the order of their ids, so that of two revocations at the same time the second sees
 * what the first left; a row that it waited for is looked at again. */
bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin, enum token_revocation *ret,
                   struct error *error) {
  static const struct statement revoke = {
      "tokens_revoke",
      "WITH admins AS MATERIALIZED (SELECT id FROM tokens WHERE role = 'admin' AND revoked_at IS NULL ORDER BY id FOR "
      "UPDATE),"
      " named AS MATERIALIZED (SELECT t.id, role = 'admin' AND NOT EXISTS (SELECT FROM admins WHERE admins.id <> t.id)"
      "   AS is_last_admin FROM tokens t WHERE name = $1 AND revoked_at IS NULL),"
      " revoked AS (UPDATE tokens t SET revoked_at = now() FROM named WHERE t.id = named.id AND t.revoked_at IS NULL"
      "  AND ($2::bool OR NOT named.is_last_admin) RETURNING t.id)"
      " SELECT named.is_last_admin, revoked.id IS NOT NULL AS is_revoked FROM named LEFT JOIN revoked USING (id)"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_text(&parameters, may_be_last_admin ? "t" : "f");
  if (!db_run(db, &revoke, &parameters, &rows, error))
    return false;
  *ret = db_count(rows) == 0                     ? TOKEN_UNKNOWN
         : db_get_bool(rows, 0, "is_revoked")    ? TOKEN_REVOKED
         : db_get_bool(rows, 0, "is_last_admin") ? TOKEN_LAST_ADMIN
                                                 : TOKEN_UNKNOWN; /* another revocation was faster */
  return true;
}

bool tokens_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items, json_t **ret_next,
                 struct error *error) {
  static const struct statement list = {"tokens_list",
                                        "SELECT id, json_build_object('name', name, 'role', role, "
                                        "'created_at', " SQL_TIME("created_at") ", 'revoked_at', " SQL_TIME(
                                            "revoked_at") ", 'expires_at', " SQL_TIME("expires_at") ","
                                                                                                    " 'agent', agent, "
                                                                                                    "'uses_left', "
                                                                                                    "uses_left, "
                                                                                                    "'agent_name', "
                                                                                                    "agent_name, "
                                                                                                    "'environment', "
                                                                                                    "environment) AS "
                                                                                                    "item"
                                                                                                    " FROM tokens "
                                                                                                    "WHERE id > "
                                                                                                    "$1::bigint ORDER "
                                                                                                    "BY id LIMIT "
                                                                                                    "$2::bigint + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  if (!db_run(db, &list, &parameters, &rows, error))
    return false;
  bool is_more = db_count(rows) > limit;
  json_t *items = db_get_json_rows(rows, "item");
  if (is_more)
    json_array_remove(items, (size_t)limit);
  *ret_next = is_more ? json_string(db_get(rows, (int)limit - 1, "id")) : json_null();
  *ret_items = items;
  return true;
}

#define SQL_TOKEN "SELECT id, name, role, digest, agent, replaces"

bool tokens_live(struct db *db, struct db_rows **ret_rows, struct error *error) {
  static const struct statement live = {"tokens_live", SQL_TOKEN " FROM tokens t WHERE " SQL_TOKEN_IS_LIVE("t")};
  return db_run(db, &live, NULL, ret_rows, error);
}

bool tokens_find(struct db *db, const struct digest *digests, size_t n, struct db_rows **ret_rows,
                 struct error *error) {
  static const struct statement find = {"tokens_find",
                                        SQL_TOKEN ", COALESCE(expires_at <= now(), false) AS is_expired FROM tokens"
                                                  " WHERE revoked_at IS NULL AND digest = ANY ($1::bytea[])"};
  struct db_array array;
  struct db_parameters parameters = {0};
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &digests[i]);
  db_text(&parameters, db_array_finish(&array));
  bool is_good = db_run(db, &find, &parameters, ret_rows, error);
  db_array_release(&array);
  return is_good;
}

/* A long poll that was begun with the token that ends is answered before. */
#define SQL_REPLACED_LASTS "interval '40 s'"

bool tokens_settle_used(struct db *db, const int64_t *ids, size_t n, struct error *error) {
  static const struct statement settle = {
      "tokens_settle_used", "WITH used AS (SELECT id, replaces FROM tokens WHERE id = ANY ($1::bigint[]) AND replaces "
                            "IS NOT NULL FOR UPDATE),"
                            " ended AS (UPDATE tokens t SET expires_at = LEAST(COALESCE(t.expires_at, 'infinity'), "
                            "now() + " SQL_REPLACED_LASTS ") FROM used WHERE t.id = used.replaces)"
                            " UPDATE tokens t SET replaces = NULL FROM used WHERE t.id = used.id"};
  struct db_array array;
  struct db_parameters parameters = {0};
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, ids[i]);
  db_text(&parameters, db_array_finish(&array));
  bool ok = db_run(db, &settle, &parameters, NULL, error);
  db_array_release(&array);
  return ok;
}
