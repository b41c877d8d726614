/* SQL of the tokens. */
#include "server/token/token_store.h"

#include <fnmatch.h>

#include "server/db/values.h"

#define SQL_ROLES "array_to_string(array_prepend(role, also), ',')"
bool token_name_is_good(const char *name) {
  size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return length >= 1 && length <= 64 && !name[length];
}

static void db_integer_or_null(struct db_parameters *parameters, int64_t integer) {
  if (integer)
    db_integer(parameters, integer);
  else
    db_text(parameters, NULL);
}

bool tokens_insert(struct db *db, const struct token_terms *terms, const struct author *author,
                   char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new, struct error *error) {
  /* One that is past its time no longer has its name. */
  static const struct statement rename = {"tokens_end_expired",
                                          "UPDATE tokens SET revoked_at = expires_at"
                                          " WHERE name = $1 AND revoked_at IS NULL AND expires_at <= now()"};
  static const struct statement insert = {
      "tokens_make", "INSERT INTO tokens (name, role, also, digest, expires_at, uses_left, agent_name, environment,"
                     "  agent, replaces, channels, made_by, made_by_id, certificate)"
                     " VALUES ($1, split_part($2, ',', 1)::token_role,"
                     "  (string_to_array($2, ','))[2:]::token_role[], $3::bytea,"
                     "  now() + $4::bigint * interval '1 ms', $5::int, $6, $7::json, $8, $9::bigint, $10::text[],"
                     "  $11, $12::bigint, $13) ON CONFLICT DO NOTHING"};
  /* A certificate's digest is always the same, and digests are unique: what has ended gives it up. */
  static const struct statement free_digest = {
      "tokens_free_digest", "UPDATE tokens t SET digest = sha256(digest || convert_to(id::text, 'UTF8'))"
                            " WHERE digest = $1::bytea AND NOT " SQL_TOKEN_IS_LIVE("t")};
  char token[TOKEN_TEXT_SIZE] = "wt_";
  random_hex(token + 3, 32);
  struct digest digest = terms->certificate ? *terms->certificate_digest : digest_of(token, strlen(token));
  struct db_array channels;
  db_array_init(&channels);
  for (size_t i = 0; i < json_array_size(terms->channels); i++)
    db_array_text(&channels, json_string_value(json_array_get(terms->channels, i)));
  const char *channels_text = db_array_finish(&channels);

  struct db_parameters parameters = {0}, named = {0}, freed = {0};
  db_bytes(&freed, digest.bytes, sizeof digest.bytes);
  cleanup_rows struct db_rows *rows = NULL;
  db_text(&named, terms->name);
  db_text(&parameters, terms->name);
  db_text(&parameters, terms->role);
  db_bytes(&parameters, digest.bytes, sizeof digest.bytes);
  db_integer_or_null(&parameters, terms->expires_in_ms);
  db_integer_or_null(&parameters, terms->uses);
  db_text(&parameters, terms->agent_name);
  db_text(&parameters, terms->environment);
  db_text(&parameters, terms->agent);
  db_integer_or_null(&parameters, terms->replaces);
  db_text(&parameters, terms->channels ? channels_text : NULL);
  db_author(&parameters, author);
  db_text(&parameters, terms->certificate);
  bool ok = db_run(db, &rename, &named, NULL, error) &&
            (!terms->certificate || db_run(db, &free_digest, &freed, NULL, error)) &&
            db_run(db, &insert, &parameters, &rows, error);
  db_array_release(&channels);
  if (!ok)
    return false;
  *ret_is_new = db_affected(rows) == 1;
  snprintf(ret_token, TOKEN_TEXT_SIZE, "%s", terms->certificate ? "" : token);
  return true;
}

bool tokens_make(struct db *db, const struct token_terms *terms, const struct author *author,
                 char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new, struct error *error) {
  if (!db_begin(db, error))
    return false;
  json_t *detail = json_pack("{s:s, s:O*, s:s*, s:s*}", "role", terms->role, "channels", terms->channels, "certificate",
                             terms->certificate, "agent_name", terms->agent_name);
  ALWAYS(detail != NULL);
  if (terms->expires_in_ms)
    json_object_set_new(detail, "expires_in_ms", json_integer(terms->expires_in_ms));
  if (terms->uses)
    json_object_set_new(detail, "uses", json_integer(terms->uses));
  bool ok = tokens_insert(db, terms, author, ret_token, ret_is_new, error);
  ok = ok && (!*ret_is_new || audit_note(db, author, AUDIT_MAKE_TOKEN, terms->name, json_incref(detail), error));
  json_decref(detail);
  return db_end(db, ok, error);
}

bool token_moves_channel(struct db *db, int64_t token, const char *channel, bool *ret_may, char **ret_patterns,
                         struct error *error) {
  static const struct statement channels = {"token_channels", "SELECT pattern FROM tokens, unnest(channels) AS pattern"
                                                              " WHERE id = $1::bigint"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, token);
  if (!db_run(db, &channels, &parameters, &rows, error))
    return false;
  char *patterns = xstrdup("");
  *ret_may = false;
  for (int row = 0; row < db_count(rows); row++) {
    const char *pattern = db_get(rows, row, "pattern");
    *ret_may |= fnmatch(pattern, channel, 0) == 0;
    char *longer = xasprintf("%s%s%s", patterns, row ? "," : "", pattern);
    free(patterns);
    patterns = longer;
  }
  *ret_patterns = patterns;
  return true;
}

/* The live admin tokens are locked in the order of their ids, so that of two revocations at the same time the second sees
 * what the first left; a row that it waited for is looked at again. */
static bool revoke_named(struct db *db, const char *name, bool may_be_last_admin, const struct author *author,
                         enum token_revocation *ret, struct error *error) {
  static const struct statement statement = {
      "tokens_revoke", "WITH admins AS MATERIALIZED (SELECT id FROM tokens"
                       "  WHERE role = 'admin' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
                       "  ORDER BY id FOR UPDATE),"
                       " named AS MATERIALIZED (SELECT t.id, role = 'admin' AND NOT EXISTS (SELECT FROM admins"
                       "   WHERE admins.id <> t.id) AS is_last_admin FROM tokens t"
                       "  WHERE name = $1 AND revoked_at IS NULL),"
                       " revoked AS (UPDATE tokens t SET revoked_at = now(), revoked_by = $3,"
                       "   revoked_by_id = $4::bigint FROM named"
                       "  WHERE t.id = named.id AND t.revoked_at IS NULL AND ($2::bool OR NOT named.is_last_admin)"
                       "  RETURNING t.id)"
                       " SELECT named.is_last_admin, revoked.id IS NOT NULL AS is_revoked"
                       " FROM named LEFT JOIN revoked USING (id)"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_text(&parameters, may_be_last_admin ? "t" : "f");
  db_author(&parameters, author);
  if (!db_run(db, &statement, &parameters, &rows, error))
    return false;
  *ret = db_count(rows) == 0                     ? TOKEN_UNKNOWN
         : db_get_bool(rows, 0, "is_revoked")    ? TOKEN_REVOKED
         : db_get_bool(rows, 0, "is_last_admin") ? TOKEN_LAST_ADMIN
                                                 : TOKEN_UNKNOWN; /* another was faster */
  return true;
}

bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin, const struct author *author,
                   enum token_revocation *ret, struct error *error) {
  if (!db_begin(db, error))
    return false;
  bool ok = revoke_named(db, name, may_be_last_admin, author, ret, error);
  ok = ok && (*ret != TOKEN_REVOKED || audit_note(db, author, AUDIT_REVOKE_TOKEN, name, NULL, error));
  return db_end(db, ok, error);
}

bool tokens_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items, json_t **ret_next,
                 struct error *error) {
  /* clang-format off */
  static const struct statement list = {
      "tokens_list",
      "SELECT id, json_build_object('id', id::text, 'name', name, 'role', " SQL_ROLES ","
      " 'created_at', " SQL_TIME("created_at") ", 'revoked_at', " SQL_TIME("revoked_at") ","
      " 'expires_at', " SQL_TIME("expires_at") ", 'agent', agent, 'uses_left', uses_left,"
      " 'agent_name', agent_name, 'environment', environment, 'channels', channels,"
      " 'certificate', certificate,"
      " " SQL_BY("t", "made_by") ", " SQL_BY("t", "revoked_by") ") AS item"
      " FROM tokens t WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint + 1"};
  /* clang-format on */
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
