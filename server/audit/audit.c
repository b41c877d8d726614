/* SQL of the audit table. Memory and threads: as the header says. */
#include "server/audit/audit.h"

#include "common/verdict/outcome.h"
#include "server/db/values.h"

const struct author author_server = {.name = "(server)", .roles = ""};
const struct author author_command_line = {.name = "(command line)", .roles = ""};

void db_author(struct db_parameters *parameters, const struct author *author) {
  db_text(parameters, author->name);
  db_author_id(parameters, author);
}

void db_author_id(struct db_parameters *parameters, const struct author *author) {
  if (author->token)
    db_integer(parameters, author->token);
  else
    db_text(parameters, NULL);
}

#define X(id, name) [AUDIT_##id] = name,
static const char *const action_names[AUDIT_ACTION_COUNT] = {AUDIT_ACTIONS(X)};
#undef X

const char *audit_action_name(enum audit_action action) { return action_names[action]; }

bool audit_action_parse(const char *name, enum audit_action *ret_action) {
  size_t action;
  if (!name_find(action_names, AUDIT_ACTION_COUNT, name, &action))
    return false;
  *ret_action = (enum audit_action)action;
  return true;
}

enum { TOKEN, TOKEN_ID, ROLE, PEER, ACTION, OBJECT, DETAIL, COLUMNS };

bool audit_add(struct db *db, const struct audit_row *rows, size_t n, struct error *error) {
  static const struct statement add = {
      "audit_add", "INSERT INTO audit (token, token_id, role, peer, action, object, detail)"
                   " SELECT token, token_id, role, peer, action, object, detail::json"
                   " FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],"
                   "  $7::text[]) WITH ORDINALITY AS r(token, token_id, role, peer, action, object, detail, n)"
                   " ORDER BY n"};
  struct db_array columns[COLUMNS];
  struct db_parameters parameters = {0};
  if (n == 0)
    return true;

  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    const struct author *author = rows[i].author;
    cleanup_free char *detail = rows[i].detail ? json_canonical(rows[i].detail) : xstrdup("{}");
    db_array_text(&columns[TOKEN], author->name);
    if (author->token)
      db_array_integer(&columns[TOKEN_ID], author->token);
    else
      db_array_text(&columns[TOKEN_ID], NULL);
    db_array_text(&columns[ROLE], author->roles);
    db_array_text(&columns[PEER], author->peer);
    db_array_text(&columns[ACTION], audit_action_name(rows[i].action));
    db_array_text(&columns[OBJECT], rows[i].object);
    db_array_text(&columns[DETAIL], detail);
  }

  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  bool ok = db_run(db, &add, &parameters, NULL, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  return ok;
}

bool audit_note(struct db *db, const struct author *author, enum audit_action action, const char *object,
                json_t *detail, struct error *error) {
  const struct audit_row row = {author, action, object, detail};
  bool ok = audit_add(db, &row, 1, error);
  json_decref(detail);
  return ok;
}

bool audit_note_digest(struct db *db, const struct author *author, enum audit_action action,
                       const struct digest *object, json_t *detail, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  return audit_note(db, author, action, digest_format(object, text), detail, error);
}

bool audit_list(struct db *db, const struct audit_filter *filter, json_t **ret_items, int64_t *ret_next,
                struct error *error) {
  static const struct statement list = {
      "audit_list", "SELECT id, json_build_object('id', id::text, 'at', " SQL_TIME(
                        "at") ", 'token', token, 'token_id', token_id::text, 'role', role, 'peer', peer,"
                              " 'action', action, 'object', object, 'detail', detail) AS item FROM audit"
                              " WHERE id < $1::bigint AND ($3::text IS NULL OR token = $3)"
                              "  AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR object = $5)"
                              "  AND at >= to_timestamp($6::bigint / 1000000.0)"
                              "  AND ($7::bigint = 0 OR at >= now() - $7::bigint * interval '1 ms')"
                              " ORDER BY id DESC LIMIT $2::bigint + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, filter->before);
  db_integer(&parameters, filter->limit);
  db_text(&parameters, filter->token);
  db_text(&parameters, filter->action);
  db_text(&parameters, filter->object);
  db_integer(&parameters, filter->since_us);
  db_integer(&parameters, filter->last_ms);
  if (!db_run(db, &list, &parameters, &rows, error))
    return false;

  *ret_items = db_get_json_rows(rows, "item");
  *ret_next = 0;
  if (db_count(rows) > filter->limit) {
    ALWAYS(json_array_remove(*ret_items, (size_t)filter->limit) == 0);
    *ret_next = db_get_integer(rows, (int)filter->limit - 1, "id");
  }
  return true;
}
