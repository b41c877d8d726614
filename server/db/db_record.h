/* Records as the parameters and columns of statements, by their tables of fields
 * (common/record/record.h).
 *
 * Threads: as in db.h. */
#ifndef WAVETUNE_SERVER_DB_DB_RECORD_H
#define WAVETUNE_SERVER_DB_DB_RECORD_H

#include "common/record/record.h"
#include "common/space/space.h"
#include "common/verdict/budget.h"
#include "server/db/db.h"

/* Binds each field that has a column as :column; the fields of a record in it likewise. A statement
 * need not use all of them. */
void bind_record(struct db_parameters *parameters, const struct record *record, const void *object);

/* Binds, for each field that has a column, an array of its values in `n` objects, for unnest: as
 * text[], bigint[], float8[], boolean[] or bytea[]; lists and ranges as text[] of their literals,
 * times and JSON as text[].
 *
 * In the statement {columns} stands for these columns, "a", "b", …; {arrays} for :a::bigint[],
 * :b::text[], …, and {values} for the columns of what was unnested, each as the type of its column:
 * so a new field needs no SQL. A statement has the same record in every run. */
void bind_records(struct db_parameters *parameters, const struct record *record,
                  const void *objects, size_t n);
/* The same for objects that are not in one array. */
void bind_each(struct db_parameters *parameters, const struct record *record,
               const void *const *objects, size_t n);

#define bind_integers(parameters, name, all, n)                                                    \
  bind_parameter(parameters, parameter_integers(name, all, n))
struct db_parameter parameter_digest(const char *name, const struct digest *digest); /* or NULL */
struct db_parameter parameter_ranges(const char *name, const struct config_ranges *ranges);
struct db_parameter parameter_json(const char *name, const json_t *json); /* NULL: null */
/* bytea[] and bigint[]; NULL: null, and so is each integer that is FIELD_NONE. */
struct db_parameter parameter_digests(const char *name, const struct digest *digests, size_t n);
struct db_parameter parameter_integers(const char *name, const void *integers, size_t n);

/* A statement that is run once takes its parameters as a list:
 *
 *   cleanup_rows struct db_rows *rows =
 *       db_query(db, &sql_lease_find, error, BIND("lease", lease), BIND("agent", agent));
 *   if (!rows)
 *     return false;
 *
 * BIND binds a value by its C type: an integer (FIELD_NONE: null), a bool, a number (NaN: null), a
 * text, a digest, ranges or JSON, each by its pointer (NULL: null). BIND_ALL binds an array of
 * integers or digests. */
#define BIND(name, value)                                                                          \
  _Generic((value),                                                                                \
      bool: parameter_bool,                                                                        \
      double: parameter_number,                                                                    \
      char *: parameter_text,                                                                      \
      const char *: parameter_text,                                                                \
      struct digest *: parameter_digest,                                                           \
      const struct digest *: parameter_digest,                                                     \
      struct config_ranges *: parameter_ranges,                                                    \
      const struct config_ranges *: parameter_ranges,                                              \
      json_t *: parameter_json,                                                                    \
      const json_t *: parameter_json,                                                              \
      default: parameter_integer)(name, value)
#define BIND_ALL(name, all, n)                                                                     \
  _Generic((all),                                                                                  \
      struct digest *: parameter_digests,                                                          \
      const struct digest *: parameter_digests,                                                    \
      default: parameter_integers)(name, all, n)

/* Several parameters: as by bind_record, bind_records and bind_author. */
#define BIND_RECORD(of, object)                                                                    \
  ((struct db_parameter){.kind = PARAMETER_RECORD, .record = (of), .value = (const void *)(object)})
#define BIND_RECORDS(of, objects, count)                                                           \
  ((struct db_parameter){                                                                          \
      .kind = PARAMETER_RECORDS, .record = (of), .value = (const void *)(objects), .n = (count)})
#define BIND_AUTHOR(author)                                                                        \
  ((struct db_parameter){.kind = PARAMETER_AUTHOR, .value = (const void *)(author)})

/* The rows, or NULL after a failure. */
#define db_query(db, statement, error, ...) db_query_of(db, statement, error, BOUND(__VA_ARGS__))
/* Without rows. */
#define db_execute(db, statement, error, ...)                                                      \
  db_execute_of(db, statement, error, BOUND(__VA_ARGS__))
/* Reads the first row as the record; *ret_found: false when there is none, and `ret` is as it
 * was. */
#define db_find(db, statement, record, ret, ret_found, error, ...)                                 \
  db_find_of(db, statement, record, ret, ret_found, error, BOUND(__VA_ARGS__))
/* db_read_all of the rows; NULL after a failure. */
#define db_list(db, statement, record, ret_n, error, ...)                                          \
  db_list_of(db, statement, record, ret_n, error, BOUND(__VA_ARGS__))

#define BOUND(...)                                                                                 \
  &(struct db_bound) {                                                                             \
    sizeof((struct db_parameter[]){{0}, __VA_ARGS__}) / sizeof(struct db_parameter),               \
        (struct db_parameter[]) {                                                                  \
      {0}, __VA_ARGS__                                                                             \
    }                                                                                              \
  }
struct db_bound {
  size_t n;
  struct db_parameter *all; /* the first one is none */
};
must_check struct db_rows *db_query_of(struct db *db, const struct statement *statement,
                                       struct error *error, const struct db_bound *bound);
must_check bool db_execute_of(struct db *db, const struct statement *statement, struct error *error,
                              const struct db_bound *bound);
must_check bool db_find_of(struct db *db, const struct statement *statement,
                           const struct record *record, void *ret, bool *ret_found,
                           struct error *error, const struct db_bound *bound);
must_check void *db_list_of(struct db *db, const struct statement *statement,
                            const struct record *record, size_t *ret_n, struct error *error,
                            const struct db_bound *bound);
/* Adds such parameters to those of a statement. */
#define bind_values(parameters, ...) bind_list(parameters, BOUND(__VA_ARGS__))
void bind_list(struct db_parameters *parameters, const struct db_bound *bound);

/* Binds :all_runs, all that a device may run (common/enrolment/enrolment.h), as text[]. */
struct db_parameter parameter_all_runs(void);

/* Sets every field that has a column; the result must have that column. Values that the object held
 * before are lost, not freed. Release the object. */
void db_read(const struct db_rows *rows, int row, const struct record *record, void *ret_object);

/* All *ret_n rows; free them with db_records_free. */
must_check void *db_read_all(const struct db_rows *rows, const struct record *record,
                             size_t *ret_n);
void db_records_free(const struct record *record, void *objects, size_t n);

/* All rows as a JSON array of what record_write makes of each; a new reference. */
must_check json_t *db_rows_to_json(const struct db_rows *rows, const struct record *record);
/* The same for the first `n` rows, with `write` (NULL: record_write). */
must_check json_t *db_first_rows_to_json(const struct db_rows *rows, int n,
                                         const struct record *record,
                                         json_t *(*write)(const void *object));

/* What record_write, or `write`, makes of the first row; a new reference. */
must_check json_t *db_row_to_json(const struct db_rows *rows, const struct record *record,
                                  json_t *(*write)(const void *object));

/* A bytea literal, \x and 64 digits. */
#define BYTEA_TEXT_SIZE (2 + 2 * DIGEST_SIZE + 1)
char *digest_bytea(const struct digest *digest, char text[BYTEA_TEXT_SIZE]);
void db_array_digest(struct db_array *array, const struct digest *digest);
/* A bytea column of 32 bytes; aborts on anything else. */
struct digest db_get_digest(const struct db_rows *rows, int row, const char *column);

/* A json column, parsed; null for SQL null; a new reference. Aborts on invalid JSON: the column's
 * type forbids it. */
must_check json_t *db_get_json(const struct db_rows *rows, int row, const char *column);

/* An int8multirange literal, {[0,48),[50,72)}; the caller's. */
must_check char *multirange_format(const struct config_ranges *ranges);
/* The inverse, for what the database wrote; aborts on anything else. */
struct config_ranges multirange_parse(const char *text);

/* A bigint[] of ordinals, {17,3}: writes at most `most` of them and returns how many. */
size_t ordinals_parse(const char *text, uint64_t *ret, size_t most);

/* From the columns of the database's function job_spending. */
struct budget db_get_budget(const struct db_rows *rows, int row);

#endif
