/* SQL of identities. Memory and threads: as the header says. */
#include "server/agent/identities.h"

#include "server/db/values.h"

void enrolment_terms_release(struct enrolment_terms *terms) {
  free(terms->name);
  free(terms->agent_name);
  json_decref(terms->environment);
}

/* Columns is_live, uses_left, token_name, agent_name, environment. */
static void terms_read(const struct db_rows *rows, int row, struct enrolment_terms *ret) {
  *ret = (struct enrolment_terms){
      .is_live = db_get_bool(rows, row, "is_live"),
      .uses_left = db_get_integer(rows, row, "uses_left"),
      .name = xstrdup(db_get(rows, row, "token_name")),
      .agent_name = db_is_null(rows, row, "agent_name") ? NULL : xstrdup(db_get(rows, row, "agent_name")),
      .environment = db_is_null(rows, row, "environment") ? NULL : db_get_json(rows, row, "environment"),
  };
}

bool enrolment_terms_lock(struct db *db, int64_t token, struct enrolment_terms *ret, struct error *error) {
  static const struct statement lock = {
      "enrolment_terms_lock",
      "SELECT " SQL_TOKEN_IS_LIVE("t") " AS is_live, uses_left, name AS token_name,"
                                       " agent_name, environment FROM tokens t WHERE id = $1::bigint FOR UPDATE"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, token);
  if (!db_run(db, &lock, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1); /* tokens are never removed */
  terms_read(rows, 0, ret);
  return true;
}

bool enrolment_use(struct db *db, int64_t token, struct error *error) {
  static const struct statement use = {"enrolment_use",
                                       "UPDATE tokens SET uses_left = uses_left - 1 WHERE id = $1::bigint"};
  struct db_parameters parameters = {0};
  db_integer(&parameters, token);
  return db_run(db, &use, &parameters, NULL, error);
}

bool enrolment_known(struct db *db, int64_t token, const char *boot, char **ret_agent, struct error *error) {
  static const struct statement known = {"enrolment_known",
                                         "SELECT id FROM agents WHERE token_id = $1::bigint AND boot = $2 LIMIT 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, token);
  db_text(&parameters, boot);
  if (!db_run(db, &known, &parameters, &rows, error))
    return false;
  *ret_agent = db_count(rows) ? xstrdup(db_get(rows, 0, "id")) : NULL;
  return true;
}

void agent_before_release(struct agent_before *before) {
  free(before->name);
  free(before->machine);
  free(before->last_seen);
  enrolment_terms_release(&before->terms);
}

bool agent_before_lock(struct db *db, const char *agent, int64_t live_ms, struct agent_before *ret,
                       struct error *error) {
  static const struct statement before = {
      "agent_before_lock",
      "SELECT a.name, a.machine, " SQL_TIME(
          "a.last_seen") " AS last_seen,"
                         "  a.last_seen > now() - $2::bigint * interval '1 ms' AS agent_is_live, a.token_id, t.role = "
                         "'enrol' AS is_enrol, t.certificate IS NOT NULL AS is_of_certificate,"
                         "  " SQL_TOKEN_IS_LIVE(
                             "t") " AS is_live, t.uses_left, t.name AS token_name, t.agent_name, t.environment"
                                  " FROM agents a LEFT JOIN tokens t ON t.id = a.token_id WHERE a.id = $1 FOR UPDATE "
                                  "OF a"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_text(&parameters, agent);
  db_integer(&parameters, live_ms);
  if (!db_run(db, &before, &parameters, &rows, error))
    return false;
  *ret = (struct agent_before){.is_known = db_count(rows) > 0};
  if (!ret->is_known)
    return true;
  ret->is_live = db_get_bool(rows, 0, "agent_is_live");
  ret->name = xstrdup(db_get(rows, 0, "name"));
  ret->machine = xstrdup(db_get(rows, 0, "machine"));
  ret->last_seen = xstrdup(db_get(rows, 0, "last_seen"));
  ret->owner = db_get_integer(rows, 0, "token_id");
  ret->has_owner = !db_is_null(rows, 0, "token_id");
  ret->owner_is_live = db_get_bool(rows, 0, "is_live");
  ret->is_of_certificate = db_get_bool(rows, 0, "is_of_certificate");
  snprintf(ret->owner_name, sizeof ret->owner_name, "%s", db_get(rows, 0, "token_name"));
  if (db_get_bool(rows, 0, "is_enrol"))
    terms_read(rows, 0, &ret->terms);
  return true;
}

bool agent_note_refused(struct db *db, const char *agent, const char *machine, const char *name, struct error *error) {
  static const struct statement note = {
      "agent_note_refused",
      "UPDATE agents SET refused_at = now(), refused_machine = $2, refused_name = $3 WHERE id = $1"};
  struct db_parameters parameters = {0};
  db_text(&parameters, agent);
  db_text(&parameters, machine);
  db_text(&parameters, name);
  return db_run(db, &note, &parameters, NULL, error);
}

bool agent_token_make(struct db *db, const char *agent, int64_t replaces, int64_t life_ms, const struct author *author,
                      char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  static const struct statement end = {"agent_tokens_end",
                                       "UPDATE tokens SET revoked_at = now(), revoked_by = $3,"
                                       "  revoked_by_id = $4::bigint WHERE agent = $1 AND revoked_at IS NULL"
                                       " AND ($2::bigint = 0 OR (id <> $2::bigint AND replaces IS NOT NULL))"};
  struct db_parameters parameters = {0};
  char random[9];
  bool is_new = false;
  db_text(&parameters, agent);
  db_integer(&parameters, replaces);
  db_author(&parameters, author);
  random_hex(random, 4);
  cleanup_free char *name = xasprintf("agent-%s-%s", agent, random);
  const struct token_terms terms = {
      .name = name, .role = "agent", .expires_in_ms = life_ms, .agent = agent, .replaces = replaces};
  if (!db_run(db, &end, &parameters, NULL, error) || !tokens_insert(db, &terms, author, ret_token, &is_new, error))
    return false;
  return is_new || error_of(error, ERROR_INTERNAL, "there is a token \"%s\" already", name);
}

bool agent_token_rotate_in(struct db *db, int64_t token, int64_t *ret_ms, struct error *error) {
  static const struct statement rotate_in = {
      "agent_token_rotate_in",
      "SELECT COALESCE((GREATEST(0, extract(epoch FROM expires_at - now())"
      "  - extract(epoch FROM expires_at - created_at) / 3) * 1000)::bigint, -1) AS ms FROM tokens"
      " WHERE id = $1::bigint"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, token);
  if (!db_run(db, &rotate_in, &parameters, &rows, error))
    return false;
  *ret_ms = db_count(rows) ? db_get_integer(rows, 0, "ms") : -1;
  return true;
}
