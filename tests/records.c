/* Prints what tests/system/test_records.py compares: the server's records, and a database.
 *
 *   records                   all records of the server, as JSON
 *   records round CONNINFO    a record with fields of every type, and an empty one, as the
 *                             database returns them
 *   records quoted CONNINFO   a statement with quotes; a parameter that occurs twice
 *   records unbound|twice|unknown CONNINFO   mistakes in binding, which abort
 *   records pipeline CONNINFO   transactions whose statements are sent together; makes a table
 *
 * Memory: freed at the end of the process. Threads: one. */
#include "server/records.h"
#include "server/db/db_record.h"
#include "tests/every_type.h"
#include "tests/records.sql.h"

static const char *const type_names[] = {
    "bool", "integer", "id",      "number", "text",   "time",   "enum",    "digest",
    "json", "custom",  "numbers", "texts",  "ranges", "record", "records", "map"};

static json_t *field_describe(const struct record *record, const struct field *field) {
  bool has_json = !(field->flags & FIELD_NO_JSON);
  json_t *json = json_pack(
      "{s:s, s:s, s:b, s:b, s:b, s:b, s:b}", "name", field->name, "type", type_names[field->type],
      "json", has_json, "required", !!(field->flags & (FIELD_REQUIRED | FIELD_STATED)), "answer",
      !!((record->flags | field->flags) & FIELD_ANSWER), "omitted",
      !!(field->flags & FIELD_OMITTED), "not_null", !!(field->flags & FIELD_NOT_NULL));

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
      json_array_append_new(fields, field_describe(each->record, &each->record->fields[i]));
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

  const struct {
    const char *name;
    const struct statement *statement;
  } many[] = {{"unnested", &sql_records_many}, {"expanded", &sql_records_expanded}};
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

#define N_SENT 20 /* more than a connection sends before it reads answers */

static uint64_t n_counted;
static void count(struct db *db, int what, uint64_t n) {
  (void)db;
  n_counted += (uint64_t)what * n;
}

static bool insert_send(struct db *db, int64_t x, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "x", x);
  db_at_commit(db, count, 1, 1);
  return db_send(db, &sql_pipeline_insert, &parameters, 1, error);
}

/* A transaction of many statements, with a script between them. */
static bool many_store(struct db *db, struct error *error) {
  bool is_good = true;
  for (int64_t x = 1; is_good && x <= N_SENT; x++)
    is_good = insert_send(db, x, error);

  return is_good &&
         db_run_script(db, "INSERT INTO pipeline VALUES (100); INSERT INTO pipeline VALUES (101)",
                       error) &&
         insert_send(db, N_SENT + 1, error);
}

/* A transaction whose second statement breaks the primary key. It ends with a run, or with the
 * commit; returns how that fails. */
static const char *duplicate_store(struct db *db, bool by_run) {
  cleanup_rows struct db_rows *rows = NULL;
  struct error error;
  if (!db_begin(db, &error) || !insert_send(db, 200, &error) || !insert_send(db, 1, &error) ||
      !insert_send(db, 201, &error))
    return "the queue failed";

  bool is_good = !by_run || db_run(db, &sql_pipeline_sum, NULL, &rows, &error);
  if (db_end(db, is_good, &error))
    return "it was committed";
  return error.kind == ERROR_UNIQUE ? "unique" : "another kind";
}

/* A transaction that breaks the primary key, or refuses, until its last call. */
struct calls {
  int n, last;
  bool is_refused;
};

static bool last_store(struct db *db, void *context, struct error *error) {
  struct calls *calls = context;
  if (!insert_send(db, 300, error))
    return false;
  if (++calls->n < calls->last && calls->is_refused)
    return error_set(error, "refused");
  return calls->n == calls->last || insert_send(db, 1, error);
}

/* How often it is called before it is committed; negative: it was given up. */
static int calls_count(struct db *db, int last, bool is_refused) {
  struct calls calls = {0, last, is_refused};
  struct error error;
  return db_transaction(db, 3, last_store, &calls, &error) ? calls.n : -calls.n;
}

/* Whether now() of a transaction is earlier than a moment after the transaction's beginning. */
static bool begin_look(struct db *db, struct db *other, bool is_now, json_t **ret,
                       struct error *error) {
  cleanup_rows struct db_rows *moment = NULL, *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  if (!(is_now ? db_begin_now(db, error) : db_begin(db, error)) ||
      !db_run(other, &sql_pipeline_moment, NULL, &moment, error))
    return false;

  bind_text(&parameters, "moment", db_get(moment, 0, "moment"));
  bool is_good = db_run(db, &sql_pipeline_is_before, &parameters, &rows, error);
  if (is_good)
    *ret = json_boolean(db_get_bool(rows, 0, "is_before"));
  return db_end(db, is_good, error);
}

static void statistic_see(void *context, const char *statement,
                          const uint64_t values[DB_STATISTICS]) {
  if (strcmp(statement, sql_pipeline_first.name) == 0)
    memcpy(context, values, DB_STATISTICS * sizeof *values);
}

/* Runs a statement before and after its table changes; returns what is counted of it. */
static bool stale_run(struct db *db, uint64_t ret_values[DB_STATISTICS], struct error *error) {
  bool is_good = db_run(db, &sql_pipeline_first, NULL, NULL, error) &&
                 db_run_script(db, "ALTER TABLE pipeline ADD COLUMN y bigint", error) &&
                 db_run(db, &sql_pipeline_first, NULL, NULL, error);
  db_statistics_visit(statistic_see, ret_values);
  return is_good;
}

static bool pipeline_run(struct db *db, const char *conninfo, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run_script(db, "CREATE TABLE pipeline (x bigint PRIMARY KEY)", error) ||
      !db_begin(db, error) || !many_store(db, error))
    return false;

  uint64_t n_before = n_counted, stale[DB_STATISTICS];
  if (!db_commit(db, error))
    return false;
  uint64_t n_after = n_counted;

  int of_calls[] = {calls_count(db, 4, false), calls_count(db, 2, true), calls_count(db, 3, false)};
  const char *of_run = duplicate_store(db, true), *of_commit = duplicate_store(db, false);
  json_t *begin = NULL, *begin_now = NULL;
  struct db *other = db_new(conninfo, "records");
  bool is_good = begin_look(db, other, false, &begin, error) &&
                 begin_look(db, other, true, &begin_now, error) &&
                 db_run(db, &sql_pipeline_sum, NULL, &rows, error) && stale_run(db, stale, error);
  db_free(other);
  if (!is_good)
    return false;

  cleanup_json json_t *out = json_pack(
      "{s:[i, i, i], s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:I, s:I, s:[I, I]}", "calls", of_calls[0],
      of_calls[1], of_calls[2], "before", (json_int_t)n_before, "after", (json_int_t)n_after,
      "at_end", (json_int_t)n_counted, "of_run", of_run, "of_commit", of_commit, "begin", begin,
      "begin_now", begin_now, "n", (json_int_t)db_get_integer(rows, 0, "n"), "sum",
      (json_int_t)db_get_integer(rows, 0, "sum"), "stale", (json_int_t)stale[DB_RUNS],
      (json_int_t)stale[DB_FAILURES]);
  return json_dumpf(out, stdout, JSON_INDENT(1)) == 0 || error_set(error, "cannot write");
}

int main(int argc, char **argv) {
  if (argc == 1)
    return records_list();
  if (argc != 3)
    return 2;

  struct error error;
  struct db *db = db_new(argv[2], "records");
  bool is_good = strcmp(argv[1], "round") == 0      ? records_round(db, &error)
                 : strcmp(argv[1], "pipeline") == 0 ? pipeline_run(db, argv[2], &error)
                                                    : quoted_run(db, argv[1], &error);
  if (!is_good)
    fprintf(stderr, "%s\n", error.message);
  db_free(db);
  return !is_good;
}
