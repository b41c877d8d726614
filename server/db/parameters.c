/* Parameters of statements, and arrays as PostgreSQL writes them.
 *
 * Memory: parameters own what bind_taken gave them. Threads: plain values. */
#include <inttypes.h>
#include <math.h>

#include "common/record/record.h"
#include "server/db/db.h"

static struct db_parameter *parameter_add(struct db_parameters *parameters, const char *name) {
  ALWAYS(parameters->n < DB_PARAMETERS_MAX);
  struct db_parameter *parameter = &parameters->all[parameters->n++];
  *parameter = (struct db_parameter){.name = name};
  return parameter;
}

void bind_text(struct db_parameters *parameters, const char *name, const char *text) {
  parameter_add(parameters, name)->value = text;
}

void bind_integer(struct db_parameters *parameters, const char *name, int64_t integer) {
  bool is_null = integer == FIELD_NONE;
  bind_taken(parameters, name, is_null ? NULL : xasprintf("%" PRId64, integer), false);
}

void bind_id(struct db_parameters *parameters, const char *name, int64_t id) {
  bind_integer(parameters, name, id ? id : FIELD_NONE);
}

void bind_number(struct db_parameters *parameters, const char *name, double number) {
  char text[FLOAT_TEXT_SIZE];
  bind_taken(parameters, name, isnan(number) ? NULL : xstrdup(float_format(number, text)), false);
}

void bind_bool(struct db_parameters *parameters, const char *name, bool is_true) {
  bind_text(parameters, name, is_true ? "t" : "f");
}

void bind_bytes(struct db_parameters *parameters, const char *name, const void *bytes,
                size_t size) {
  struct db_parameter *parameter = parameter_add(parameters, name);
  ALWAYS(size <= INT32_MAX);
  parameter->value = bytes;
  parameter->size = (int)size;
  parameter->is_binary = true;
}

void bind_taken(struct db_parameters *parameters, const char *name, char *text,
                bool may_be_unused) {
  struct db_parameter *parameter = parameter_add(parameters, name);
  parameter->value = parameter->owned = text;
  parameter->may_be_unused = may_be_unused;
}

void bind_array(struct db_parameters *parameters, const char *name, struct db_array *array) {
  db_array_finish(array);
  bind_taken(parameters, name, TAKE(array->text), false);
}

void bind_texts(struct db_parameters *parameters, const char *name, const char *const *texts,
                size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; texts && i < n; i++)
    db_array_text(&array, texts[i]);
  if (texts)
    bind_array(parameters, name, &array);
  else
    bind_text(parameters, name, NULL);
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

void db_array_bool(struct db_array *array, bool element) {
  db_array_text(array, element ? "t" : "f");
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
