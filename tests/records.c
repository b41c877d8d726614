/* What tests/system/test_records.py holds against each other: the server's records, and a database.
 *
 *   records                   all records of the server, as JSON
 *   records round CONNINFO    what comes back of a record with fields of every type, and of one
 *                             that is empty
 *   records quoted CONNINFO   a statement with quotes; a parameter that occurs twice
 *   records unbound|twice|unknown CONNINFO   mistakes in binding, which abort
 *
 * Memory: what it makes lives as long as it runs. Threads: one. */
#include "server/records.h"
#include "server/db/db_record.h"
#include "tests/every_type.h"
#include "tests/records.sql.h"

static const char *const type_names[] = {
    "bool", "integer", "id",      "number", "text",   "time",   "enum",    "digest",
    "json", "custom",  "numbers", "texts",  "ranges", "record", "records", "map"};

static json_t *field_describe(const struct field *field) {
  bool has_json = !(field->flags & FIELD_NO_JSON);
  json_t *json = json_pack(
      "{s:s, s:s, s:b, s:b, s:b, s:b, s:b}", "name", field->name, "type", type_names[field->type],
      "json", has_json, "required", !!(field->flags & (FIELD_REQUIRED | FIELD_STATED)), "answer",
      !!(field->flags & FIELD_ANSWER), "omitted", !!(field->flags & FIELD_OMITTED), "not_null",
      !!(field->flags & FIELD_NOT_NULL));
  if (!(field->flags & FIELD_NO_COLUMN))
    json_object_set_new(json, "column", json_string(field_column(field)));
  if (field->type == FIELD_ENUM) {
    json_t *names = json_array();
    for (size_t i = 0; field->names[i]; i++)
      json_array_append_new(names, json_string(field->names[i]));
    json_object_set_new(json, "names", names);
  }
  if (field->sql_type)
    json_object_set_new(json, "sql_type", json_string(field->sql_type));
  if (field->of && field->of->name)
    json_object_set_new(json, "of", json_string(field->of->name));
  if (field->schema)
    json_object_set_new(json, "schema", json_true());
  return json;
}

static int records_list(void) {
  cleanup_json json_t *all = json_array();
  for (const struct server_record *each = server_records; each->record; each++) {
    json_t *fields = json_array();
    for (size_t i = 0; i < each->record->n; i++)
      json_array_append_new(fields, field_describe(&each->record->fields[i]));
    json_array_append_new(all, json_pack("{s:s?, s:s, s:o}", "name", each->record->name, "table",
                                         each->table, "fields", fields));
  }
  return json_dumpf(all, stdout, JSON_INDENT(1));
}

static bool records_round(struct db *db, struct error *error) {
  cleanup_json json_t *given = NULL;
  struct every objects[2];
  record_init(&every_record, &objects[0]);
  record_init(&every_record, &objects[1]);
  if (!json_parse(EVERY_JSON, strlen(EVERY_JSON), &given, error) ||
      !record_read(&every_record, given, "", &objects[0], error))
    return false;

  json_t *out = json_pack("{s:[o, o], s:[]}", "given", record_write(&every_record, &objects[0]),
                          record_write(&every_record, &objects[1]), "single");
  for (size_t i = 0; i < ARRAY_LENGTH(objects); i++) {
    cleanup_parameters struct db_parameters parameters = {0};
    cleanup_rows struct db_rows *rows = NULL;
    struct every read;
    bind_record(&parameters, &every_record, &objects[i]);
    if (!db_run(db, &sql_records_one, &parameters, &rows, error))
      return false;
    db_read(rows, 0, &every_record, &read);
    json_array_append_new(json_object_get(out, "single"), record_write(&every_record, &read));
    record_release(&every_record, &read);
  }

  const struct statement expanded = statement_of_record(&sql_records_expanded, &every_record);
  const struct {
    const char *name;
    const struct statement *statement;
  } many[] = {{"unnested", &sql_records_many}, {"expanded", &expanded}};
  for (size_t i = 0; i < ARRAY_LENGTH(many); i++) {
    cleanup_parameters struct db_parameters parameters = {0};
    cleanup_rows struct db_rows *rows = NULL;
    bind_records(&parameters, &every_record, objects, ARRAY_LENGTH(objects));
    if (!db_run(db, many[i].statement, &parameters, &rows, error))
      return false;
    json_object_set_new(out, many[i].name, db_rows_to_json(rows, &every_record));
    size_t n;
    struct every *all = db_read_all(rows, &every_record, &n);
    ALWAYS(n == ARRAY_LENGTH(objects) && all[0].count == objects[0].count && all[1].text == NULL);
    db_records_free(&every_record, all, n);
  }
  free((char *)expanded.sql);

  for (size_t i = 0; i < ARRAY_LENGTH(objects); i++)
    record_release(&every_record, &objects[i]);
  int written = json_dumpf(out, stdout, JSON_INDENT(1));
  json_decref(out);
  return written == 0 || error_set(error, "cannot write");
}

static bool quoted_run(struct db *db, const char *mode, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  if (strcmp(mode, "unbound") != 0)
    bind_text(&parameters, "x", "é");
  if (strcmp(mode, "twice") == 0)
    bind_text(&parameters, "x", "y");
  if (strcmp(mode, "unknown") == 0)
    bind_text(&parameters, "y", "y");
  if (!db_run(db, &sql_records_quoted, &parameters, &rows, error))
    return false;
  printf("%s|%s|%s|%s\n", db_get(rows, 0, "text"), db_get(rows, 0, "q:no"),
         db_get(rows, 0, "twice"), db_get(rows, 0, "one"));
  return true;
}

int main(int argc, char **argv) {
  if (argc == 1)
    return records_list();
  if (argc != 3)
    return 2;

  struct error error;
  struct db *db = db_new(argv[2], "records");
  bool is_good =
      strcmp(argv[1], "round") == 0 ? records_round(db, &error) : quoted_run(db, argv[1], &error);
  if (!is_good)
    fprintf(stderr, "%s\n", error.message);
  db_free(db);
  return !is_good;
}
