/* /v1/compatibilities: which environments an operator lets serve each other. They are few, and each
 * lookup with match=compatible that is not cached reads them all.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/cache/cache.sql.h"
#include "server/cache/cache_rules.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"

#define RECORD_OF struct compatibility
static const struct field request_fields[] = {
    MEMBER(CUSTOM, asked, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(CUSTOM, served, FIELD_REQUIRED, .custom = &environment_field),
    MEMBER(TEXT, reason, FIELD_NOT_NULL, .most = COMPATIBILITY_REASON_MAX),
};
#undef RECORD_OF
const struct record compatibility_request_record =
    RECORD("CompatibilityRequest", struct compatibility, request_fields);

void compatibility_release(struct compatibility *compatibility) {
  record_release(&compatibility_request_record, compatibility);
}

/* Both sides must state the same members; otherwise a cache could be served that ignores members of
 * the query. */
static bool sides_check(const struct compatibility *it, struct error *error) {
  bool any = false, differ = false;

#define X(member, hardware)                                                                        \
  if ((it->asked.member != NULL) != (it->served.member != NULL))                                   \
    return error_at(error, "/served", "state \"%s\" in both \"asked\" and \"served\"", #member);   \
  any = any || it->asked.member != NULL;                                                           \
  differ = differ || !string_equal(it->asked.member, it->served.member);
  ENVIRONMENT_TEXTS(X)
#undef X

  const struct environment *const sides[] = {&it->asked, &it->served};
  for (size_t i = 0; i < ARRAY_LENGTH(sides); i++)
    if (sides[i]->arch || sides[i]->partition || sides[i]->compute_units)
      return error_at(error, i ? "/served" : "/asked",
                      "arch, compute_units and partition cannot be declared compatible: a config "
                      "of another GPU is never served");

  if (!any)
    return error_at(error, "/asked", "state the members that may differ, such as rocm");
  return differ ||
         error_at(error, "/served", "\"served\" equals \"asked\"; state at least one other value");
}

bool compatibility_parse(const json_t *json, struct compatibility *ret, struct error *error) {
  cleanup_compatibility struct compatibility read = {.reason = xstrdup("")};
  if (!record_read(&compatibility_request_record, json, "", &read, error) ||
      !sides_check(&read, error))
    return false;

  *ret = read;
  read = (struct compatibility){0};
  return true;
}

bool compatibilities_load(struct db *db, struct compatibilities *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_compatibilities_load, error);
  if (!rows)
    return false;

  *ret = (struct compatibilities){.all = xcalloc((size_t)db_count(rows) + 1, sizeof *ret->all)};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *json =
        json_pack("{s:o, s:o, s:s}", "asked", db_get_json(rows, row, "asked"), "served",
                  db_get_json(rows, row, "served"), "reason", db_get(rows, row, "reason"));
    struct error bad;
    if (compatibility_parse(json, &ret->all[ret->n], &bad))
      ret->all[ret->n++].id = db_get_integer(rows, row, "id");
    else
      log_error("cache: a stored compatibility is no longer valid: %s", bad.message);
  }

  return true;
}

void compatibilities_release(struct compatibilities *compatibilities) {
  for (size_t i = 0; i < compatibilities->n; i++)
    compatibility_release(&compatibilities->all[i]);
  free(compatibilities->all);
  *compatibilities = (struct compatibilities){0};
}

bool route_compatibility_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_compatibility struct compatibility declared = {0};
  if (!compatibility_parse(request->json, &declared, error))
    return false;

  struct db *db = worker->db;
  const struct author *author = request_author(request);
  cleanup_json json_t *asked = environment_to_json(&declared.asked),
                      *served = environment_to_json(&declared.served);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error);
  if (ok) {
    ok = (rows = db_query(
              db, &sql_compatibility_add, error, parameter_taken("asked", json_canonical(asked)),
              parameter_taken("served", json_canonical(served)), BIND("reason", declared.reason),
              BIND("most", COMPATIBILITIES_MAX), BIND_AUTHOR(author)));
    if (ok && db_count(rows))
      ok = audit_note(
          db, author, AUDIT_DECLARE, db_get(rows, 0, "id"),
          json_pack("{s:O, s:O, s:s}", "asked", asked, "served", served, "reason", declared.reason),
          error);
    ok = db_end(db, ok, error);
  }

  if (!ok)
    return false;
  if (!db_count(rows)) {
    return error_of(error, ERROR_CONFLICT,
                    "there are %d compatibilities; remove those that are not needed any more",
                    COMPATIBILITIES_MAX);
  }
  response_cache_forget_channels(worker->server);
  return request_answer_json(request, 201, json_pack("{s:s}", "id", db_get(rows, 0, "id")));
}

struct compatibility_item {
  int64_t id, made_by_id;
  json_t *asked, *served;
  char *reason, *made_by, *made_at;
};
#define RECORD_OF struct compatibility_item
static const struct field item_fields[] = {
    MEMBER(ID, id),
    MEMBER(JSON, asked, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(JSON, served, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, reason),
    MEMBER(TEXT, made_by),
    MEMBER(ID, made_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TIME, made_at),
};
const struct record compatibility_item_record = ANSWER("CompatibilityItem", item_fields);
#undef RECORD_OF

bool route_compatibility_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_compatibilities_list,
                                   .record = &compatibility_item_record};
  return answer_page_by(worker, request, &list, error);
}

bool route_compatibility_delete(struct worker *worker, struct request *request,
                                struct error *error) {
  static const struct removal removal = {"compatibility", "/v1/compatibilities",
                                         &sql_compatibility_remove, AUDIT_WITHDRAW};
  return answer_removal(worker, request, &removal, error);
}
