/* Values and records as texts of SQL, and back. */
#include "server/db/db_record.h"
#include "common/enrolment/enrolment.h"

#include <errno.h>
#include <inttypes.h>

#include "server/db/statement.h"

#define NUMBER_TEXT_SIZE sizeof ",-1.23456789e-308"

static char *numbers_format(const struct numbers *numbers) {
  char *text = xmalloc(numbers->n * NUMBER_TEXT_SIZE + sizeof "{}"), *to = text;
  *to++ = '{';
  for (size_t i = 0; i < numbers->n; i++)
    to += snprintf(to, NUMBER_TEXT_SIZE, "%s%.9g", i ? "," : "", numbers->all[i]);
  memcpy(to, "}", sizeof "}");
  return text;
}

static char *texts_format(const struct texts *texts) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < texts->n; i++)
    db_array_text(&array, texts->all[i]);
  db_array_finish(&array);
  return array.text;
}

char *multirange_format(const struct config_ranges *ranges) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputc('{', out);
  for (size_t i = 0; i < ranges->n; i++)
    fprintf(out, "%s[%" PRIu64 ",%" PRIu64 ")", i ? "," : "", ranges->ranges[i].first,
            ranges->ranges[i].first + ranges->ranges[i].count);

  fputc('}', out);
  ALWAYS(fclose(out) == 0);
  return text;
}

char *digest_bytea(const struct digest *digest, char text[BYTEA_TEXT_SIZE]) {
  char hexadecimal[DIGEST_TEXT_SIZE];
  snprintf(text, BYTEA_TEXT_SIZE, "\\x%s", digest_format(digest, hexadecimal) + strlen("sha256:"));
  return text;
}

static char *json_format(const json_t *json) {
  char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
  ALWAYS(text != NULL);
  return text;
}

/* The literal of a value, NULL where it is absent; the caller's. */
static char *field_format(const struct field *field, const void *at) {
  if (field_is_absent(field, at) || (field->flags & FIELD_ZERO_NULL && !*(const int64_t *)at))
    return NULL;

  char text[BYTEA_TEXT_SIZE > FLOAT_TEXT_SIZE ? BYTEA_TEXT_SIZE : FLOAT_TEXT_SIZE];
  switch (field->type) {
  case FIELD_BOOL:
    return xstrdup(*(const bool *)at ? "t" : "f");
  case FIELD_INTEGER:
  case FIELD_ID:
    return xasprintf("%lld", (long long)*(const int64_t *)at);
  case FIELD_NUMBER:
    return xstrdup(float_format(*(const double *)at, text));
  case FIELD_TEXT:
  case FIELD_TIME:
    return xstrdup(*(char *const *)at);
  case FIELD_ENUM:
    return xstrdup(field->names[*(const int *)at]);
  case FIELD_DIGEST:
    return xstrdup(digest_bytea(at, text));
  case FIELD_JSON:
    return json_format(*(json_t *const *)at);
  case FIELD_CUSTOM: {
    cleanup_json json_t *json = field->custom->write(at);
    return json_format(json);
  }
  case FIELD_NUMBERS:
    return numbers_format(at);
  case FIELD_TEXTS:
    return texts_format(at);
  case FIELD_RANGES:
    return multirange_format(at);
  case FIELD_RECORD:
  case FIELD_RECORDS:
  case FIELD_MAP:
    break;
  }

  die("\"%s\" has no column", field->name);
}

/* Binds each field's value in the first object or, as arrays, its values in `n` objects. `offset`:
 * of the record in each. */
static void fields_bind(struct db_parameters *parameters, const struct record *record,
                        size_t offset, const void *const *objects, bool as_arrays, size_t n) {
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    if (field->flags & FIELD_NO_COLUMN)
      continue;
    if (field->type == FIELD_RECORD) {
      fields_bind(parameters, field->of, offset + field->offset, objects, as_arrays, n);
      continue;
    }

    struct db_array array;
    db_array_init(&array);
    for (size_t k = 0; k < n; k++) {
      cleanup_free char *text =
          field_format(field, field_at(field, (const char *)objects[k] + offset));
      db_array_text(&array, text);
    }
    char *text = NULL;
    if (as_arrays) {
      db_array_finish(&array);
      text = array.text;
    } else {
      text = field_format(field, field_at(field, (const char *)*objects + offset));
    }
    bind_taken(parameters, field_column(field), text, true);
  }
}

void bind_record(struct db_parameters *parameters, const struct record *record,
                 const void *object) {
  fields_bind(parameters, record, 0, &object, false, 0);
}

void bind_each(struct db_parameters *parameters, const struct record *record,
               const void *const *objects, size_t n) {
  if (!parameters->record)
    parameters->record = record;
  fields_bind(parameters, record, 0, objects, true, n);
}

void bind_records(struct db_parameters *parameters, const struct record *record,
                  const void *objects, size_t n) {
  cleanup_free const void **each = xcalloc(n + 1, sizeof *each);
  for (size_t i = 0; i < n; i++)
    each[i] = (const char *)objects + i * record->size;
  bind_each(parameters, record, each, n);
}

/* Types of the elements of the arrays that bind_records binds, and of the columns that need a
 * cast. */
static const struct {
  const char *element, *column;
} sql_types[] = {
    [FIELD_BOOL] = {"boolean", NULL},   [FIELD_INTEGER] = {"bigint", NULL},
    [FIELD_ID] = {"bigint", NULL},      [FIELD_NUMBER] = {"float8", NULL},
    [FIELD_TEXT] = {"text", NULL},      [FIELD_TIME] = {"timestamptz", NULL},
    [FIELD_ENUM] = {"text", NULL},      [FIELD_DIGEST] = {"bytea", NULL},
    [FIELD_JSON] = {"json", NULL},      [FIELD_NUMBERS] = {"text", "real[]"},
    [FIELD_TEXTS] = {"text", "text[]"}, [FIELD_RANGES] = {"int8multirange", NULL},
};

static void columns_write(FILE *out, const struct record *record, const char *placeholder,
                          const char **comma) {
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    const char *column = field_column(field);
    if (field->flags & FIELD_NO_COLUMN)
      continue;
    if (field->type == FIELD_RECORD) {
      columns_write(out, field->of, placeholder, comma);
      continue;
    }

    const char *cast = field->sql_type ? field->sql_type : sql_types[field->type].column;
    if (strcmp(placeholder, "{arrays}") == 0)
      fprintf(out, "%s:%s::%s[]", *comma, column, sql_types[field->type].element);
    else if (strcmp(placeholder, "{values}") == 0 && cast)
      fprintf(out, "%s\"%s\"::%s", *comma, column, cast);
    else
      fprintf(out, "%s\"%s\"", *comma, column);
    *comma = ", ";
  }
}

char *statement_expand(const char *sql, const struct record *record) {
  static const char *const placeholders[] = {"{columns}", "{arrays}", "{values}"};
  char *made = NULL;
  size_t size;
  FILE *out = open_memstream(&made, &size);
  ALWAYS(out != NULL);

  while (*sql) {
    size_t i = 0;
    while (i < ARRAY_LENGTH(placeholders) && !string_starts(sql, placeholders[i]))
      i++;
    if (i == ARRAY_LENGTH(placeholders)) {
      putc(*sql++, out);
      continue;
    }

    ALWAYS(record != NULL);
    const char *comma = "";
    columns_write(out, record, placeholders[i], &comma);
    sql += strlen(placeholders[i]);
  }

  ALWAYS(fclose(out) == 0);
  return made;
}

struct db_parameter parameter_digest(const char *name, const struct digest *digest) {
  return digest ? parameter_bytes(name, digest->bytes, sizeof digest->bytes)
                : parameter_text(name, NULL);
}

void db_array_digest(struct db_array *array, const struct digest *digest) {
  char text[BYTEA_TEXT_SIZE];
  db_array_text(array, digest_bytea(digest, text));
}

struct db_parameter parameter_digests(const char *name, const struct digest *digests, size_t n) {
  struct db_array array;
  if (!digests)
    return parameter_text(name, NULL);
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &digests[i]);
  db_array_finish(&array);
  return parameter_taken(name, array.text);
}

struct db_parameter parameter_integers(const char *name, const void *integers, size_t n) {
  struct db_array array;
  if (!integers)
    return parameter_text(name, NULL);
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    if (((const int64_t *)integers)[i] == FIELD_NONE)
      db_array_text(&array, NULL);
    else
      db_array_integer(&array, ((const int64_t *)integers)[i]);
  db_array_finish(&array);
  return parameter_taken(name, array.text);
}

struct db_parameter parameter_ranges(const char *name, const struct config_ranges *ranges) {
  return parameter_taken(name, multirange_format(ranges));
}

struct db_parameter parameter_json(const char *name, const json_t *json) {
  return parameter_taken(name, json ? json_format(json) : NULL);
}

void bind_list(struct db_parameters *parameters, const struct db_bound *bound) {
  for (size_t i = 1; i < bound->n; i++) {
    const struct db_parameter *parameter = &bound->all[i];
    const void *object = parameter->value;
    switch (parameter->kind) {
    case PARAMETER_ONE:
      bind_parameter(parameters, *parameter);
      break;
    case PARAMETER_AUTHOR:
      bind_author(parameters, object);
      break;
    case PARAMETER_RECORD:
      bind_record(parameters, parameter->record, object);
      break;
    case PARAMETER_RECORDS:
      bind_records(parameters, parameter->record, object, parameter->n);
      break;
    }
  }
}

static bool run_of(struct db *db, const struct statement *statement, const struct db_bound *bound,
                   struct db_rows **ret_rows, struct error *error) {
  cleanup_parameters struct db_parameters parameters;
  parameters.n = 0;
  parameters.record = NULL;
  bind_list(&parameters, bound);
  return db_run(db, statement, &parameters, ret_rows, error);
}

struct db_rows *db_query_of(struct db *db, const struct statement *statement, struct error *error,
                            const struct db_bound *bound) {
  struct db_rows *rows = NULL;
  return run_of(db, statement, bound, &rows, error) ? rows : NULL;
}

bool db_execute_of(struct db *db, const struct statement *statement, struct error *error,
                   const struct db_bound *bound) {
  return run_of(db, statement, bound, NULL, error);
}

bool db_find_of(struct db *db, const struct statement *statement, const struct record *record,
                void *ret, bool *ret_found, struct error *error, const struct db_bound *bound) {
  cleanup_rows struct db_rows *rows = db_query_of(db, statement, error, bound);
  *ret_found = rows && db_count(rows) > 0;
  if (*ret_found)
    db_read(rows, 0, record, ret);
  return rows != NULL;
}

void *db_list_of(struct db *db, const struct statement *statement, const struct record *record,
                 size_t *ret_n, struct error *error, const struct db_bound *bound) {
  cleanup_rows struct db_rows *rows = db_query_of(db, statement, error, bound);
  return rows ? db_read_all(rows, record, ret_n) : NULL;
}

struct db_parameter parameter_all_runs(void) {
  struct db_array runs;
  db_array_init(&runs);
  for (int i = 0; regime_names[i]; i++) {
    cleanup_free char *run = run_of_regime((enum regime)i);
    db_array_text(&runs, run);
  }
  db_array_finish(&runs);
  return parameter_taken("all_runs", runs.text);
}

struct digest db_get_digest(const struct db_rows *rows, int row, const char *column) {
  struct digest digest;
  size_t size;
  cleanup_free uint8_t *bytes = db_get_bytes(rows, row, column, &size);
  ALWAYS(size == sizeof digest.bytes);
  memcpy(digest.bytes, bytes, sizeof digest.bytes);
  return digest;
}

json_t *db_get_json(const struct db_rows *rows, int row, const char *column) {
  if (db_is_null(rows, row, column))
    return json_null();
  const char *text = db_get(rows, row, column);
  json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  ALWAYS(value != NULL);
  return value;
}

static uint64_t bound_parse(const char **text, char before) {
  ALWAYS(**text == before);
  char *end;
  errno = 0;
  uint64_t bound = strtoull(*text + 1, &end, 10);
  ALWAYS(errno == 0 && end != *text + 1);
  *text = end;
  return bound;
}

struct config_ranges multirange_parse(const char *text) {
  struct config_ranges ranges = {0};
  ALWAYS(*text == '{');
  for (text++; *text != '}'; text += *text == ',') {
    struct config_range range;
    range.first = bound_parse(&text, '[');
    range.count = bound_parse(&text, ',') - range.first;
    ALWAYS(*text++ == ')');
    GROW(ranges.ranges, ranges.n, ranges.capacity);
    ranges.ranges[ranges.n++] = range;
  }

  return ranges;
}

size_t ordinals_parse(const char *text, uint64_t *ret, size_t most) {
  size_t n = 0;
  while ((*text == '{' || *text == ',') && text[1] != '}' && n < most) {
    char *end;
    ret[n++] = strtoull(text + 1, &end, 10);
    ALWAYS(end != text + 1);
    text = end;
  }
  return n;
}

static struct numbers numbers_parse(const char *text) {
  struct numbers numbers = {0, xcalloc(strlen(text) / 2 + 1, sizeof *numbers.all)};
  while ((*text == '{' || *text == ',') && text[1] != '}') {
    char *end;
    numbers.all[numbers.n++] = strtod(text + 1, &end);
    ALWAYS(end != text + 1);
    text = end;
  }
  return numbers;
}

/* {a,"b c",NULL}: an element in quotes has \" and \\ for those two. */
static struct texts texts_parse(const char *text) {
  struct texts texts = {0, xcalloc(strlen(text) / 2 + 1, sizeof *texts.all)};
  ALWAYS(*text == '{');
  while (*++text && *text != '}') {
    cleanup_free char *element = xmalloc(strlen(text) + 1);
    size_t n = 0;
    bool is_quoted = *text == '"';
    for (text += is_quoted; *text && (is_quoted ? *text != '"' : *text != ',' && *text != '}');
         text++) {
      text += *text == '\\';
      element[n++] = *text;
    }
    element[n] = '\0';
    text += is_quoted;
    texts.all[texts.n++] = TAKE(element);
    if (*text == '}')
      break;
  }

  return texts;
}

static void field_parse(const struct field *field, const struct db_rows *rows, int row, void *to) {
  const char *column = field_column(field);
  if (db_is_null(rows, row, column))
    return;

  const char *text = db_get(rows, row, column);
  switch (field->type) {
  case FIELD_BOOL:
    *(bool *)to = *text == 't';
    return;
  case FIELD_INTEGER:
  case FIELD_ID:
    *(int64_t *)to = strtoll(text, NULL, 10);
    return;
  case FIELD_NUMBER:
    *(double *)to = strtod(text, NULL);
    return;
  case FIELD_TEXT:
  case FIELD_TIME:
    *(char **)to = xstrdup(text);
    return;
  case FIELD_ENUM:
    for (int i = 0; field->names[i]; i++)
      if (strcmp(field->names[i], text) == 0) {
        *(int *)to = i;
        return;
      }
    die("\"%s\" of the database is not a %s", text, field->name);
  case FIELD_DIGEST:
    *(struct digest *)to = db_get_digest(rows, row, column);
    return;
  case FIELD_JSON:
    *(json_t **)to = db_get_json(rows, row, column);
    return;
  case FIELD_CUSTOM: {
    cleanup_json json_t *json = db_get_json(rows, row, column);
    struct error error;
    if (!field->custom->read(json, to, &error))
      die("\"%s\" of the database cannot be read: %s", field->name, error.message);
    return;
  }
  case FIELD_NUMBERS:
    *(struct numbers *)to = numbers_parse(text);
    return;
  case FIELD_TEXTS:
    *(struct texts *)to = texts_parse(text);
    return;
  case FIELD_RANGES:
    *(struct config_ranges *)to = multirange_parse(text);
    return;
  case FIELD_RECORD:
  case FIELD_RECORDS:
  case FIELD_MAP:
    break;
  }

  die("\"%s\" has no column", field->name);
}

void db_read(const struct db_rows *rows, int row, const struct record *record, void *ret_object) {
  record_init(record, ret_object);
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    void *to = field_at(field, ret_object);
    if (field->flags & FIELD_NO_COLUMN)
      continue;
    if (field->type == FIELD_RECORD)
      db_read(rows, row, field->of, to);
    else
      field_parse(field, rows, row, to);
  }
}

void *db_read_all(const struct db_rows *rows, const struct record *record, size_t *ret_n) {
  *ret_n = (size_t)db_count(rows);
  char *objects = xcalloc(*ret_n + 1, record->size);
  for (size_t row = 0; row < *ret_n; row++)
    db_read(rows, (int)row, record, objects + row * record->size);
  return objects;
}

void db_records_free(const struct record *record, void *objects, size_t n) {
  for (size_t i = 0; objects && i < n; i++)
    record_release(record, (char *)objects + i * record->size);
  free(objects);
}

json_t *db_first_rows_to_json(const struct db_rows *rows, int n, const struct record *record,
                              json_t *(*write)(const void *object)) {
  json_t *array = json_array();
  cleanup_free void *object = xmalloc(record->size);
  for (int row = 0; row < n; row++) {
    db_read(rows, row, record, object);
    json_push(array, write ? write(object) : record_write(record, object));
    record_release(record, object);
  }
  return array;
}

json_t *db_row_to_json(const struct db_rows *rows, const struct record *record,
                       json_t *(*write)(const void *object)) {
  cleanup_json json_t *array = db_first_rows_to_json(rows, 1, record, write);
  return json_incref(json_array_get(array, 0));
}

json_t *db_rows_to_json(const struct db_rows *rows, const struct record *record) {
  return db_first_rows_to_json(rows, db_count(rows), record, NULL);
}

struct budget db_get_budget(const struct db_rows *rows, int row) {
  return (struct budget){.total_us = db_get_integer(rows, row, "budget_us"),
                         .spent_us = db_get_integer(rows, row, "spent_us"),
                         .opening_us = db_get_integer(rows, row, "opening_us"),
                         .openings = db_get_integer(rows, row, "openings"),
                         .measured = db_get_integer(rows, row, "measured"),
                         .final_us = db_get_integer(rows, row, "final_us"),
                         .final_processes = db_get_integer(rows, row, "final_processes")};
}
