/* SQL of the tokens. */
#include "server/store/tokens.h"

#include "server/store/values.h"

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

bool tokens_make(struct db *db, const char *name, const char *role, char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new,
                 struct error *error) {
  char token[TOKEN_TEXT_SIZE] = "wt_";
  random_hex(token + 3, 32);
  *ret_is_new = tokens_keep(db, name, role, token, error);
  if (!*ret_is_new)
    return db_failure(db) == DB_FAILURE_UNIQUE;
  memcpy(ret_token, token, sizeof token);
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
                                        "SELECT id, name, role, " SQL_TIME("created_at") " AS created_at, " SQL_TIME(
                                            "revoked_at") " AS revoked_at FROM tokens WHERE id > "
                                                          "$1::bigint ORDER BY id LIMIT $2::bigint + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  if (!db_run(db, &list, &parameters, &rows, error))
    return false;
  json_t *items = json_array();
  int n = db_count(rows) > limit ? (int)limit : db_count(rows);
  for (int row = 0; row < n; row++) {
    json_t *item = json_pack("{s:s, s:s, s:s}", "name", db_get(rows, row, "name"), "role", db_get(rows, row, "role"),
                             "created_at", db_get(rows, row, "created_at"));
    json_object_set_new(item, "revoked_at",
                        db_is_null(rows, row, "revoked_at") ? json_null()
                                                            : json_string(db_get(rows, row, "revoked_at")));
    json_array_append_new(items, item);
  }
  *ret_next = db_count(rows) > limit ? json_string(db_get(rows, n - 1, "id")) : json_null();
  *ret_items = items;
  return true;
}

bool tokens_live(struct db *db, struct db_rows **ret_rows, struct error *error) {
  static const struct statement live = {"tokens_live",
                                        "SELECT name, role, digest FROM tokens WHERE revoked_at IS NULL"};
  return db_run(db, &live, NULL, ret_rows, error);
}

bool tokens_find(struct db *db, const struct digest *digests, size_t n, struct db_rows **ret_rows,
                 struct error *error) {
  static const struct statement find = {
      "tokens_find", "SELECT name, role, digest FROM tokens WHERE revoked_at IS NULL AND digest = ANY ($1::bytea[])"};
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
