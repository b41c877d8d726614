/* SQL of compatibilities. Memory and threads: as the header says. */
#include "server/cache/compatibilities.h"

#include "common/base/log.h"
#include "server/db/values.h"

void compatibilities_release(struct compatibilities *compatibilities) {
  for (size_t i = 0; i < compatibilities->n; i++)
    compatibility_release(&compatibilities->all[i]);
  free(compatibilities->all);
  *compatibilities = (struct compatibilities){0};
}

static json_t *row_to_json(const struct db_rows *rows, int row) {
  json_t *item = json_pack("{s:o, s:o, s:s}", "asked", db_get_json(rows, row, "asked"), "served",
                           db_get_json(rows, row, "served"), "reason", db_get(rows, row, "reason"));
  ALWAYS(item != NULL);
  return item;
}

bool compatibilities_load(struct db *db, struct compatibilities *ret, struct error *error) {
  static const struct statement statement = {"compatibilities_load",
                                             "SELECT id, asked, served, reason FROM compatibilities ORDER BY id"};
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &statement, NULL, &rows, error))
    return false;
  *ret = (struct compatibilities){.all = xcalloc((size_t)db_count(rows) + 1, sizeof *ret->all)};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *json = row_to_json(rows, row);
    struct error bad;
    if (compatibility_parse(json, &ret->all[ret->n], &bad))
      ret->all[ret->n++].id = db_get_integer(rows, row, "id");
    else
      log_error("a stored compatibility is not valid any more: %s", bad.message);
  }
  return true;
}

bool compatibilities_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items, int64_t *ret_next,
                          struct error *error) {
  static const struct statement statement = {
      "compatibilities_list", "SELECT id, asked, served, reason, made_by, made_by_id, " SQL_TIME(
                                  "made_at") " AS made_at FROM compatibilities WHERE id > $1::int8 ORDER BY id"
                                             " LIMIT $2::int8 + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  if (!db_run(db, &statement, &parameters, &rows, error))
    return false;
  int n = db_count(rows) > limit ? (int)limit : db_count(rows);
  *ret_items = json_array();
  for (int row = 0; row < n; row++) {
    json_t *item = row_to_json(rows, row);
    json_object_set_new(item, "id", json_string(db_get(rows, row, "id")));
    json_object_set_new(item, "made_by", json_string(db_get(rows, row, "made_by")));
    json_object_set_new(item, "made_by_id", db_get_id(rows, row, "made_by_id"));
    json_object_set_new(item, "made_at", json_string(db_get(rows, row, "made_at")));
    ALWAYS(json_array_append_new(*ret_items, item) == 0);
  }
  *ret_next = n < db_count(rows) ? db_get_integer(rows, n - 1, "id") : 0;
  return true;
}

#define TEXT_OF(number) #number
#define TEXT(macro) TEXT_OF(macro)

bool compatibility_add(struct db *db, const struct compatibility *compatibility, const struct author *author,
                       int64_t *ret_id, struct error *error) {
  static const struct statement statement = {
      "compatibility_add",
      "INSERT INTO compatibilities (asked, served, reason, made_by, made_by_id) SELECT $1::text::json, $2::text::json, "
      "$3, $4, $5::bigint"
      " WHERE (SELECT count(*) FROM compatibilities) < " TEXT(
          COMPATIBILITIES_MAX) " OR EXISTS (SELECT FROM compatibilities WHERE (asked::text, served::text) = ($1, $2))"
                               " ON CONFLICT ((asked::text), (served::text)) DO UPDATE SET reason = excluded.reason,"
                               "  made_by = excluded.made_by, made_by_id = excluded.made_by_id RETURNING id"};
  cleanup_json json_t *asked = environment_to_json(&compatibility->asked),
                      *served = environment_to_json(&compatibility->served);
  cleanup_free char *asked_text = json_canonical(asked), *served_text = json_canonical(served);
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_text(&parameters, asked_text);
  db_text(&parameters, served_text);
  db_text(&parameters, compatibility->reason);
  db_author(&parameters, author);
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &statement, &parameters, &rows, error);
  *ret_id = ok && db_count(rows) ? db_get_integer(rows, 0, "id") : 0;
  if (*ret_id)
    ok = audit_note(db, author, AUDIT_DECLARE, db_get(rows, 0, "id"),
                    json_pack("{s:O, s:O, s:s}", "asked", asked, "served", served, "reason", compatibility->reason),
                    error);
  return db_end(db, ok, error);
}

bool compatibility_remove(struct db *db, int64_t id, const struct author *author, bool *ret_found,
                          struct error *error) {
  static const struct statement statement = {
      "compatibility_remove", "DELETE FROM compatibilities WHERE id = $1 RETURNING id, asked, served, reason"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, id);
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &statement, &parameters, &rows, error);
  *ret_found = ok && db_count(rows) > 0;
  if (*ret_found)
    ok = audit_note(db, author, AUDIT_WITHDRAW, db_get(rows, 0, "id"), row_to_json(rows, 0), error);
  return db_end(db, ok, error);
}
