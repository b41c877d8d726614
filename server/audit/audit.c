/* SQL of the audit table. Memory and threads: as the header says. */
#include "server/audit/audit.h"

#include "common/verdict/outcome.h"
#include "server/audit/audit.sql.h"
#include "server/db/db_record.h"
#include "server/records.h"

#define X(id, name) [AUDIT_##id] = name,
static const char *const action_names[AUDIT_ACTION_COUNT + 1] = {AUDIT_ACTIONS(X)};
#undef X

const char *audit_action_name(enum audit_action action) { return action_names[action]; }

bool audit_action_parse(const char *name, enum audit_action *ret_action) {
  size_t action;
  if (!name_find(action_names, AUDIT_ACTION_COUNT, name, &action))
    return false;
  *ret_action = (enum audit_action)action;
  return true;
}

struct audit_entry {
  int64_t id, token_id;
  const char *at, *token, *role, *peer, *object;
  const char *action; /* of newer servers it may be one that this one does not know */
  json_t *detail;
};
static const struct field entry_fields[] = {
    {"id", FIELD_ID, offsetof(struct audit_entry, id), FIELD_ANSWER},
    {"at", FIELD_TIME, offsetof(struct audit_entry, at), FIELD_ANSWER},
    {"token", FIELD_TEXT, offsetof(struct audit_entry, token), FIELD_ANSWER},
    {"token_id", FIELD_ID, offsetof(struct audit_entry, token_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"role", FIELD_TEXT, offsetof(struct audit_entry, role), FIELD_ANSWER},
    {"peer", FIELD_TEXT, offsetof(struct audit_entry, peer), FIELD_ANSWER},
    {"action", FIELD_TEXT, offsetof(struct audit_entry, action), FIELD_ANSWER},
    {"object", FIELD_TEXT, offsetof(struct audit_entry, object), FIELD_ANSWER},
    {"detail", FIELD_JSON, offsetof(struct audit_entry, detail), FIELD_ANSWER,
     .schema = "{\"type\": \"object\"}"},
};
const struct record audit_entry_record = RECORD("AuditEntry", struct audit_entry, entry_fields);

bool audit_add(struct db *db, const struct audit_row *rows, size_t n, struct error *error) {
  if (n == 0)
    return true;

  cleanup_free struct audit_entry *entries = xcalloc(n, sizeof *entries);
  for (size_t i = 0; i < n; i++) {
    const struct author *author = rows[i].author;
    entries[i] = (struct audit_entry){
        .id = FIELD_NONE,
        .token = author->name,
        .token_id = author->token ? author->token : FIELD_NONE,
        .role = author->roles,
        .peer = author->peer,
        .action = audit_action_name(rows[i].action),
        .object = rows[i].object,
        .detail = rows[i].detail ? json_incref((json_t *)rows[i].detail) : json_object()};
  }

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &audit_entry_record, entries, n);
  bool ok = db_run(db, &sql_audit_add, &parameters, NULL, error);
  for (size_t i = 0; i < n; i++)
    json_decref(entries[i].detail);
  return ok;
}

bool audit_note(struct db *db, const struct author *author, enum audit_action action,
                const char *object, json_t *detail, struct error *error) {
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

bool audit_list(struct db *db, const struct audit_filter *filter, json_t **ret_items,
                int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "token", filter->token);
  bind_text(&parameters, "action", filter->action);
  bind_text(&parameters, "object", filter->object);
  bind_integer(&parameters, "since_us", filter->since_us);
  bind_integer(&parameters, "last_ms", filter->last_ms);
  bind_integer(&parameters, "before", filter->before);
  bind_integer(&parameters, "limit", filter->limit);
  if (!db_run(db, &sql_audit_list, &parameters, &rows, error))
    return false;

  *ret_items = db_rows_to_json(rows, &audit_entry_record);
  *ret_next = 0;
  if (db_count(rows) > filter->limit) {
    ALWAYS(json_array_remove(*ret_items, (size_t)filter->limit) == 0);
    *ret_next = db_get_integer(rows, (int)filter->limit - 1, "id");
  }
  return true;
}
