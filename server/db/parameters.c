/* Parameters of statements, and arrays as PostgreSQL writes them.
 *
 * Memory: parameters own what bind_taken gave them. Threads: plain values. */
#include <inttypes.h>
#include <math.h>

#include "common/record/record.h"
#include "server/db/db.h"

void bind_parameter(struct db_parameters *parameters, struct db_parameter parameter) {
  ALWAYS(parameters->n < DB_PARAMETERS_MAX);
  parameters->all[parameters->n++] = parameter;
}

struct db_parameter parameter_text(const char *name, const char *text) {
  return (struct db_parameter){.name = name, .value = text};
}

struct db_parameter parameter_integer(const char *name, int64_t integer) {
  return parameter_taken(name, integer == FIELD_NONE ? NULL : xasprintf("%" PRId64, integer));
}

struct db_parameter parameter_id(const char *name, int64_t id) {
  return parameter_integer(name, id ? id : FIELD_NONE);
}

struct db_parameter parameter_number(const char *name, double number) {
  char text[FLOAT_TEXT_SIZE];
  return parameter_taken(name, isnan(number) ? NULL : xstrdup(float_format(number, text)));
}

struct db_parameter parameter_bool(const char *name, bool is_true) {
  return parameter_text(name, is_true ? "t" : "f");
}

struct db_parameter parameter_bytes(const char *name, const void *bytes, size_t size) {
  ALWAYS(size <= INT32_MAX);
  return (struct db_parameter){.name = name, .value = bytes, .size = (int)size, .is_binary = true};
}

struct db_parameter parameter_taken(const char *name, char *text) {
  return (struct db_parameter){.name = name, .value = text, .owned = text};
}

void bind_taken(struct db_parameters *parameters, const char *name, char *text,
                bool may_be_unused) {
  struct db_parameter parameter = parameter_taken(name, text);
  parameter.may_be_unused = may_be_unused;
  bind_parameter(parameters, parameter);
}

struct db_parameter parameter_array(const char *name, struct db_array *array) {
  db_array_finish(array);
  return parameter_taken(name, TAKE(array->text));
}

struct db_parameter parameter_texts(const char *name, const char *const *texts, size_t n) {
  struct db_array array;
  if (!texts)
    return parameter_text(name, NULL);
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_text(&array, texts[i]);
  return parameter_array(name, &array);
}

void db_parameters_release(struct db_parameters *parameters) {
  for (int i = 0; i < parameters->n; i++)
    free(parameters->all[i].owned);
  parameters->n = 0;
}

void db_array_init(struct db_array *array) { *array = (struct db_array){0}; }

void db_array_text(struct db_array *array, const char *element) {
  size_t needed = array->size + (element ? 2 * strlen(element) : strlen("NULL")) + sizeof ",\"\"}";
  if (needed > array->capacity) {
    array->capacity = needed < 512 ? 1024 : 2 * needed;
    array->text = xreallocarray(array->text, array->capacity, 1);
  }

  char *to = array->text + array->size;
  *to++ = array->n++ ? ',' : '{';
  if (element) {
    *to++ = '"';
    for (const char *c = element; *c; c++) {
      if (*c == '"' || *c == '\\')
        *to++ = '\\';
      *to++ = *c;
    }
    *to++ = '"';
  } else {
    to = mempcpy(to, "NULL", strlen("NULL"));
  }

  array->size = (size_t)(to - array->text);
}

void db_array_integer(struct db_array *array, int64_t element) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, element);
  db_array_text(array, text);
}

const char *db_array_finish(struct db_array *array) {
  if (array->n == 0) {
    free(array->text);
    array->text = xstrdup("{}");
  } else {
    memcpy(array->text + array->size, "}", sizeof "}");
  }
  return array->text;
}

const struct author author_server = {.name = "(server)", .roles = ""};
const struct author author_command_line = {.name = "(command line)", .roles = ""};

void bind_author(struct db_parameters *parameters, const struct author *author) {
  bind_text(parameters, "author", author->name);
  bind_id(parameters, "author_id", author->token);
}
