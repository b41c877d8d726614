/* Compatibilities in the database. Memory and threads: as the header says. */
#include "server/cache/compatibilities.h"

#include "common/base/log.h"
#include "server/cache/cache.sql.h"
#include "server/db/db_record.h"
#include "server/records.h"

#define SCHEMA_ENVIRONMENT "{\"$ref\": \"#/components/schemas/Environment\"}"

struct compatibility_item {
  int64_t id, made_by_id;
  json_t *asked, *served;
  char *reason, *made_by, *made_at;
};
static const struct field item_fields[] = {
    {"id", FIELD_ID, offsetof(struct compatibility_item, id), FIELD_ANSWER},
    {"asked", FIELD_JSON, offsetof(struct compatibility_item, asked), FIELD_ANSWER,
     .schema = SCHEMA_ENVIRONMENT},
    {"served", FIELD_JSON, offsetof(struct compatibility_item, served), FIELD_ANSWER,
     .schema = SCHEMA_ENVIRONMENT},
    {"reason", FIELD_TEXT, offsetof(struct compatibility_item, reason), FIELD_ANSWER},
    {"made_by", FIELD_TEXT, offsetof(struct compatibility_item, made_by), FIELD_ANSWER},
    {"made_by_id", FIELD_ID, offsetof(struct compatibility_item, made_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"made_at", FIELD_TIME, offsetof(struct compatibility_item, made_at), FIELD_ANSWER},
};
const struct record compatibility_item_record =
    RECORD("CompatibilityItem", struct compatibility_item, item_fields);

void compatibilities_release(struct compatibilities *compatibilities) {
  for (size_t i = 0; i < compatibilities->n; i++)
    compatibility_release(&compatibilities->all[i]);
  free(compatibilities->all);
  *compatibilities = (struct compatibilities){0};
}

bool compatibilities_load(struct db *db, struct compatibilities *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_compatibilities_load, NULL, &rows, error))
    return false;

  *ret = (struct compatibilities){.all = xcalloc((size_t)db_count(rows) + 1, sizeof *ret->all)};
  for (int row = 0; row < db_count(rows); row++) {
    struct compatibility_text text;
    struct error bad;
    db_read(rows, row, &compatibility_request_record, &text);
    if (compatibility_check(&text, &ret->all[ret->n], &bad))
      ret->all[ret->n++].id = db_get_integer(rows, row, "id");
    else
      log_error("a stored compatibility is not valid any more: %s", bad.message);
    record_release(&compatibility_request_record, &text);
  }
  return true;
}

bool compatibilities_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items,
                          int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_compatibilities_list, &parameters, &rows, error))
    return false;
  db_page_to_json(rows, &compatibility_item_record, limit, ret_items, ret_next);
  return true;
}

bool compatibility_add(struct db *db, const struct compatibility *compatibility,
                       const struct author *author, int64_t *ret_id, struct error *error) {
  cleanup_json json_t *asked = environment_to_json(&compatibility->asked),
                      *served = environment_to_json(&compatibility->served);
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_taken(&parameters, "asked", json_canonical(asked), false);
  bind_taken(&parameters, "served", json_canonical(served), false);
  bind_text(&parameters, "reason", compatibility->reason);
  bind_integer(&parameters, "most", COMPATIBILITIES_MAX);
  bind_author(&parameters, author);
  if (!db_begin(db, error))
    return false;

  bool ok = db_run(db, &sql_compatibility_add, &parameters, &rows, error);
  *ret_id = ok && db_count(rows) ? db_get_integer(rows, 0, "id") : 0;
  if (*ret_id)
    ok = audit_note(db, author, AUDIT_DECLARE, db_get(rows, 0, "id"),
                    json_pack("{s:O, s:O, s:s}", "asked", asked, "served", served, "reason",
                              compatibility->reason),
                    error);
  return db_end(db, ok, error);
}

bool compatibility_remove(struct db *db, int64_t id, const struct author *author, bool *ret_found,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "id", id);
  if (!db_begin(db, error))
    return false;

  bool ok = db_run(db, &sql_compatibility_remove, &parameters, &rows, error);
  *ret_found = ok && db_count(rows) > 0;
  if (*ret_found) {
    cleanup_json json_t *removed = db_rows_to_json(rows, &compatibility_request_record);
    cleanup_free char *object = xasprintf("%lld", (long long)id);
    ok = audit_note(db, author, AUDIT_WITHDRAW, object, json_incref(json_array_get(removed, 0)),
                    error);
  }
  return db_end(db, ok, error);
}
