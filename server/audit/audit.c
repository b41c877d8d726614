/* The audit table, and GET /v1/audit. */
#include "server/audit/audit.h"

#include "common/base/time.h"
#include "common/verdict/verdict.h"
#include "server/audit/audit.sql.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"

#define X(id, name) [AUDIT_##id] = name,
static const char *const action_names[AUDIT_ACTION_COUNT + 1] = {AUDIT_ACTIONS(X)};
#undef X

struct audit_entry {
  int64_t id, token_id;
  const char *at, *token, *role, *peer, *object;
  const char *action; /* not an enum: a newer server may write actions that this one lacks */
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
        .action = action_names[rows[i].action],
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

/* Binds the parameters of a list from the query; answers and returns false when one is wrong. */
static bool filter_bind(struct request *request, struct db_parameters *parameters,
                        int64_t *ret_limit) {
  static const char *const names[] = {"limit", "after", "since", "token", "action", "object", NULL};
  const char *since = request_query(request, "since"), *action = request_query(request, "action");
  int64_t before, since_us = 0, last_ms = 0;
  size_t known;
  if (!request_query_only(request, names) || !page_by_id(request, INT64_MAX, ret_limit, &before))
    return false;
  if (action && !name_find(action_names, AUDIT_ACTION_COUNT, action, &known)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "action=\"%.40s\" is not an action of an entry, like submit, move or sign",
                   action);
    return false;
  }
  if (since && !(duration_parse(since, &last_ms) && last_ms) && !time_parse(since, &since_us)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "since=\"%.40s\" is not a time such as 2026-01-31T12:00:00Z, 12h or 7d", since);
    return false;
  }

  bind_text(parameters, "token", request_query(request, "token"));
  bind_text(parameters, "action", action);
  bind_text(parameters, "object", request_query(request, "object"));
  bind_integer(parameters, "since_us", since_us);
  bind_integer(parameters, "last_ms", last_ms);
  bind_integer(parameters, "before", before);
  bind_integer(parameters, "limit", *ret_limit);
  return true;
}

void route_audit_get(struct worker *worker, struct request *request) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct error error;
  json_t *items;
  int64_t limit, next;

  if (!filter_bind(request, &parameters, &limit))
    return;
  if (!db_run(worker->db, &sql_audit_list, &parameters, &rows, &error)) {
    answer_failure(request, &error);
    return;
  }

  db_page_to_json(rows, &audit_entry_record, limit, &items, &next);
  request_answer_json(request, 200, page_to_json(items, next));
}
