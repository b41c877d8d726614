/* GET /v1/poison, GET /v1/poison/{id} and POST /v1/poison/{id}/release.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/poison/poison.h"
#include "server/poison/poison.sql.h"
#include "server/records.h"

#define POISON_REASON_MAX 1000

struct poison_entry {
  int64_t id, released_by_id;
  char *scope, *name, *reason, *at, *released_at, *released_by, *release_reason;
  struct digest kernel, build, object;
  json_t *config, *environment, *evidence;
};
#define RECORD_OF struct poison_entry
static const struct field entry_fields[] = {
    MEMBER(ID, id),
    MEMBER(TEXT, scope, .schema = "{\"enum\": [\"config\", \"object\", \"kernel\"]}"),
    MEMBER(DIGEST, kernel, .about = "of an object: in which it was lost last"),
    MEMBER(TEXT, name, .about = "of the kernel"),
    MEMBER(DIGEST, build,
           .about = "null: agents compile the kernel. Other builds of it are not concerned"),
    MEMBER(DIGEST, object, .about = "compiled code"),
    MEMBER(JSON, config, .schema = "{\"type\": \"object\"}",
           .about = "of a config and an object: its values"),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT,
           .about = "one with the hardware on which it is not met again"),
    MEMBER(TEXT, reason),
    MEMBER(JSON, evidence, .schema = "{\"type\": \"array\", \"items\": {\"type\": \"object\"}}",
           .about = "the newest losses that count: job, lease, epoch, config, agent, device, at"),
    MEMBER(TIME, at),
    MEMBER(TIME, released_at, .about = "null: it is in force"),
    MEMBER(TEXT, released_by, .schema = SCHEMA_BY),
    MEMBER(ID, released_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TEXT, release_reason),
};
const struct record poison_entry_record = ANSWER("PoisonEntry", entry_fields);
#undef RECORD_OF

bool route_poison_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {
      .statement = &sql_poison_list, .record = &poison_entry_record, .is_newest_first = true};
  const char *in_force = request_query(request, "in_force");
  bool is_true = string_equal(in_force, "true");
  if (in_force && !is_true && !string_equal(in_force, "false"))
    return error_set(error, "in_force=\"%.40s\" is not true or false", in_force);
  return answer_page_by(worker, request, &list, error, parameter_bool("in_force", is_true));
}

/* Finds the entry of the path. NULL: *error says why not. */
static struct db_rows *entry_find(struct worker *worker, struct request *request,
                                  struct error *error) {
  int64_t id;
  if (!id_read(request, "entry of the ledger of poison", &id, error))
    return NULL;
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_poison_get, error, BIND("id", id));
  if (rows && db_count(rows))
    return TAKE(rows);
  if (rows)
    error_of(error, ERROR_MISSING,
             "there is no entry %lld of the ledger of poison; GET /v1/poison lists all",
             (long long)id);
  return NULL;
}

static bool entry_answer(struct request *request, const struct db_rows *rows) {
  return request_answer_json(request, 200, db_row_to_json(rows, &poison_entry_record, NULL));
}

bool route_poison_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = entry_find(worker, request, error);
  return rows && entry_answer(request, rows);
}

struct poison_release {
  char *reason;
};
#define RECORD_OF struct poison_release
static const struct field release_fields[] = {
    MEMBER(TEXT, reason, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = POISON_REASON_MAX),
};
#undef RECORD_OF
const struct record poison_release_record =
    RECORD("PoisonRelease", struct poison_release, release_fields);

/* *ret_released: false when it had been released. */
static bool entry_release(struct db *db, const char *id, const char *reason,
                          const struct author *author, bool *ret_released, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error) && db_execute(db, &sql_poison_lock, error) &&
            (rows = db_query(db, &sql_poison_release, error, BIND("id", id), BIND("reason", reason),
                             BIND_AUTHOR(author)));
  *ret_released = ok && db_count(rows) > 0;
  if (*ret_released)
    ok = audit_note(db, author, AUDIT_RELEASE_POISON, id, json_pack("{s:s}", "reason", reason),
                    error);
  return db_end(db, ok, error);
}

bool route_poison_release(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = entry_find(worker, request, error);
  struct poison_release wanted = {0};
  bool is_released;
  bool ok = rows && record_read(&poison_release_record, request->json, "", &wanted, error) &&
            entry_release(worker->db, db_get(rows, 0, "id"), wanted.reason, request_author(request),
                          &is_released, error);
  record_release(&poison_release_record, &wanted);
  if (ok && !is_released)
    ok = error_of(error, ERROR_CONFLICT,
                  "entry %s was released already; GET /v1/poison/%s says by whom and why",
                  db_get(rows, 0, "id"), db_get(rows, 0, "id"));
  cleanup_rows struct db_rows *after = ok ? entry_find(worker, request, error) : NULL;
  return after && entry_answer(request, after);
}
