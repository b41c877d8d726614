/* The table of tokens. Memory and threads: as the header says. */
#include "server/token/tokens.h"

#include <fnmatch.h>

#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/tls.h"
#include "server/records.h"
#include "server/token/tokens.sql.h"

bool token_name_is_good(const char *name) {
  size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return length >= 1 && length <= 64 && !name[length];
}

bool tokens_insert(struct db *db, const struct token_request *request, const struct author *author,
                   char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  char token[TOKEN_TEXT_SIZE] = "wt_";
  random_hex(token + 3, 32);
  struct digest digest = request->certificate ? tls_name_digest(request->certificate)
                                              : digest_of(token, strlen(token));

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters named = {0}, freed = {0}, parameters = {0};
  bind_text(&named, "name", request->name);
  bind_digest(&freed, "digest", &digest);
  bind_record(&parameters, &token_request_record, request);
  bind_digest(&parameters, "digest", &digest);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_tokens_end_expired, &named, NULL, error) ||
      (request->certificate && !db_run(db, &sql_tokens_free_digest, &freed, NULL, error)) ||
      !db_run(db, &sql_tokens_make, &parameters, &rows, error))
    return false;

  if (db_affected(rows) == 0 && request->certificate)
    return error_of_at(error, ERROR_CONFLICT, "/name",
                       "there is a token \"%s\" already, or another one that stands for \"%s\"; "
                       "revoke that one first",
                       request->name, request->certificate);
  if (db_affected(rows) == 0)
    return error_of_at(error, ERROR_CONFLICT, "/name",
                       "there is a token \"%s\" already; revoke it or take another name",
                       request->name);
  snprintf(ret_token, TOKEN_TEXT_SIZE, "%s", request->certificate ? "" : token);
  return true;
}

/* What the audit has of it. */
static json_t *detail_of(const struct token_request *request) {
  json_t *channels = request->channels.n ? json_array() : NULL;
  for (size_t i = 0; i < request->channels.n; i++)
    json_array_append_new(channels, json_string(request->channels.all[i]));
  json_t *detail =
      json_pack("{s:s, s:o*, s:s*, s:s*}", "role", request->role, "channels", channels,
                "certificate", request->certificate, "agent_name", request->agent_name);
  ALWAYS(detail != NULL);
  if (request->expires_in_ms != FIELD_NONE)
    json_object_set_new(detail, "expires_in_ms", json_integer((json_int_t)request->expires_in_ms));
  if (request->uses != FIELD_NONE)
    json_object_set_new(detail, "uses", json_integer((json_int_t)request->uses));
  return detail;
}

bool tokens_make(struct db *db, const struct token_request *request, const struct author *author,
                 char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  if (!db_begin(db, error))
    return false;
  bool ok = tokens_insert(db, request, author, ret_token, error) &&
            audit_note(db, author, AUDIT_MAKE_TOKEN, request->name, detail_of(request), error);
  return db_end(db, ok, error);
}

bool token_moves_channel(struct db *db, int64_t token, const char *channel, bool *ret_may,
                         char **ret_patterns, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", token);
  if (!db_run(db, &sql_token_channels, &parameters, &rows, error))
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

static bool revoke_named(struct db *db, const char *name, bool may_be_last_admin,
                         const struct author *author, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", name);
  bind_bool(&parameters, "may_be_last_admin", may_be_last_admin);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_tokens_revoke, &parameters, &rows, error))
    return false;

  if (db_count(rows) && db_get_bool(rows, 0, "is_revoked"))
    return true;
  if (db_count(rows) && db_get_bool(rows, 0, "is_last_admin"))
    return error_of(error, ERROR_CONFLICT,
                    "\"%.64s\" is the last admin token: without one no token can be made over "
                    "HTTP; make another first, "
                    "or use \"wavetune-server token revoke\"",
                    name);
  return error_of(error, ERROR_MISSING, "there is no live token \"%.64s\"",
                  name); /* or another was faster */
}

bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin,
                   const struct author *author, struct error *error) {
  if (!db_begin(db, error))
    return false;
  bool ok = revoke_named(db, name, may_be_last_admin, author, error) &&
            audit_note(db, author, AUDIT_REVOKE_TOKEN, name, NULL, error);
  return db_end(db, ok, error);
}

struct token {
  int64_t id, uses_left, made_by_id, revoked_by_id;
  char *name, *role, *created_at, *revoked_at, *expires_at, *agent, *agent_name, *certificate,
      *made_by, *revoked_by;
  json_t *environment;
  struct texts channels;
};
static const struct field token_fields[] = {
    {"id", FIELD_ID, offsetof(struct token, id), FIELD_ANSWER | FIELD_NOT_NULL},
    {"name", FIELD_TEXT, offsetof(struct token, name), FIELD_ANSWER | FIELD_NOT_NULL},
    {"role", FIELD_TEXT, offsetof(struct token, role), FIELD_ANSWER | FIELD_NOT_NULL,
     .schema = SCHEMA_ROLE},
    {"created_at", FIELD_TIME, offsetof(struct token, created_at), FIELD_ANSWER | FIELD_NOT_NULL},
    {"revoked_at", FIELD_TIME, offsetof(struct token, revoked_at), FIELD_ANSWER},
    {"expires_at", FIELD_TIME, offsetof(struct token, expires_at), FIELD_ANSWER},
    {"agent", FIELD_TEXT, offsetof(struct token, agent), FIELD_ANSWER},
    {"uses_left", FIELD_INTEGER, offsetof(struct token, uses_left), FIELD_ANSWER},
    {"agent_name", FIELD_TEXT, offsetof(struct token, agent_name), FIELD_ANSWER},
    {"environment", FIELD_JSON, offsetof(struct token, environment), FIELD_ANSWER,
     .schema = SCHEMA_ENVIRONMENT},
    {"channels", FIELD_TEXTS, offsetof(struct token, channels), FIELD_ANSWER},
    {"certificate", FIELD_TEXT, offsetof(struct token, certificate), FIELD_ANSWER},
    {"made_by", FIELD_TEXT, offsetof(struct token, made_by), FIELD_ANSWER, .schema = SCHEMA_BY},
    {"made_by_id", FIELD_ID, offsetof(struct token, made_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"revoked_by", FIELD_TEXT, offsetof(struct token, revoked_by), FIELD_ANSWER,
     .schema = SCHEMA_BY},
    {"revoked_by_id", FIELD_ID, offsetof(struct token, revoked_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
};
const struct record token_record = RECORD("Token", struct token, token_fields);

bool tokens_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items, int64_t *ret_next,
                 struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_tokens_list, &parameters, &rows, error))
    return false;
  db_page_to_json(rows, &token_record, limit, ret_items, ret_next);
  return true;
}
