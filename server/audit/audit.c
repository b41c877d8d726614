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
#define RECORD_OF struct audit_entry
static const struct field entry_fields[] = {
    MEMBER(ID, id),
    MEMBER(TIME, at),
    MEMBER(TEXT, token),
    MEMBER(ID, token_id, .schema = SCHEMA_BY_ID),
    MEMBER(TEXT, role),
    MEMBER(TEXT, peer),
    MEMBER(TEXT, action),
    MEMBER(TEXT, object),
    MEMBER(JSON, detail, .schema = "{\"type\": \"object\"}"),
};
const struct record audit_entry_record = ANSWER("AuditEntry", entry_fields);
#undef RECORD_OF

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

  bool ok = db_execute(db, &sql_audit_add, error, BIND_RECORDS(&audit_entry_record, entries, n));
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

bool answer_removal(struct worker *worker, struct request *request, const struct removal *removal,
                    struct error *error) {
  struct db *db = worker->db;
  int64_t id;
  if (!id_read(request, removal->what, &id, error))
    return false;

  cleanup_free char *object = xasprintf("%lld", (long long)id);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error);
  if (ok) {
    ok = (rows = db_query(db, removal->statement, error, BIND("id", id)));
    if (ok && db_count(rows))
      ok = audit_note(db, request_author(request), removal->action, object,
                      db_get_json(rows, 0, "detail"), error);
    ok = db_end(db, ok, error);
  }

  if (!ok)
    return false;
  if (!db_count(rows)) {
    return error_of(error, ERROR_MISSING, "there is no %s %lld; GET %s lists all", removal->what,
                    (long long)id, removal->list);
  }
  response_cache_forget_channels(worker->server);
  return request_answer_empty(request, 204);
}

bool route_audit_get(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {
      .statement = &sql_audit_list, .record = &audit_entry_record, .is_newest_first = true};
  const char *since = request_query(request, "since"), *action = request_query(request, "action");
  int64_t since_us = 0, last_ms = 0;
  size_t known;
  if (action && !name_find(action_names, AUDIT_ACTION_COUNT, action, &known))
    return error_set(
        error, "action=\"%.40s\" is not an action of an entry, like submit, move or sign", action);

  if (since && !(duration_parse(since, &last_ms) && last_ms) && !time_parse(since, &since_us))
    return error_set(error, "since=\"%.40s\" is not a time such as 2026-01-31T12:00:00Z, 12h or 7d",
                     since);

  return answer_page_by(worker, request, &list, error,
                        BIND("token", request_query(request, "token")), BIND("action", action),
                        BIND("object", request_query(request, "object")),
                        BIND("since_us", since_us), BIND("last_ms", last_ms));
}
