/* Records from and to JSON, by their tables of fields. Memory and threads: as the header says. */
#include "common/record/record.h"

#include <math.h>

bool digest_is_none(const struct digest *digest) {
  static const struct digest none;
  return memcmp(digest, &none, sizeof none) == 0;
}

bool field_is_absent(const struct field *field, const void *at) {
  switch (field->type) {
  case FIELD_BOOL:
    return false;
  case FIELD_INTEGER:
  case FIELD_ID:
    return *(const int64_t *)at == FIELD_NONE;
  case FIELD_NUMBER:
    return isnan(*(const double *)at);
  case FIELD_TEXT:
  case FIELD_TIME:
    return *(char *const *)at == NULL;
  case FIELD_ENUM:
    return *(const int *)at < 0;
  case FIELD_DIGEST:
    return !(field->flags & FIELD_REQUIRED) && digest_is_none(at);
  case FIELD_JSON:
    return *(json_t *const *)at == NULL;
  case FIELD_CUSTOM:
    return field->custom->is_absent && field->custom->is_absent(at);
  case FIELD_NUMBERS:
    return ((const struct numbers *)at)->all == NULL;
  case FIELD_TEXTS:
    return ((const struct texts *)at)->all == NULL;
  case FIELD_RANGES:
    return false;
  case FIELD_RECORD:
    for (size_t i = 0; i < field->of->n; i++)
      if (!field_is_absent(&field->of->fields[i], field_at(&field->of->fields[i], at)))
        return false;
    return true;
  case FIELD_RECORDS:
  case FIELD_MAP:
    return ((const struct records *)at)->all == NULL;
  }
  die("no such type of field");
}

void record_init(const struct record *record, void *object) {
  memset(object, 0, record->size);
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    void *at = field_at(field, object);
    if (field->type == FIELD_INTEGER || field->type == FIELD_ID)
      *(int64_t *)at = FIELD_NONE;
    else if (field->type == FIELD_NUMBER)
      *(double *)at = NAN;
    else if (field->type == FIELD_ENUM)
      *(int *)at = -1;
    else if (field->type == FIELD_RECORD)
      record_init(field->of, at);
  }
}

static void texts_release(struct texts *texts) {
  for (size_t i = 0; i < texts->n; i++)
    free(texts->all[i]);
  free(texts->all);
}

static void records_release(const struct record *of, struct records *records) {
  for (size_t i = 0; i < records->n; i++)
    record_release(of, (char *)records->all + i * of->size);
  free(records->all);
}

void record_release(const struct record *record, void *object) {
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    void *at = field_at(field, object);
    switch (field->type) {
    case FIELD_TEXT:
    case FIELD_TIME:
      free(*(char **)at);
      break;
    case FIELD_JSON:
      json_decref(*(json_t **)at);
      break;
    case FIELD_CUSTOM:
      if (field->custom->release)
        field->custom->release(at);
      break;
    case FIELD_NUMBERS:
      free(((struct numbers *)at)->all);
      break;
    case FIELD_TEXTS:
      texts_release(at);
      break;
    case FIELD_RANGES:
      config_ranges_release(at);
      break;
    case FIELD_RECORD:
      record_release(field->of, at);
      break;
    case FIELD_RECORDS:
    case FIELD_MAP:
      records_release(field->of, at);
      break;
    default:
      break;
    }
  }
  record_init(record, object);
}

static bool length_is_good(const struct field *field, size_t length, const char *what,
                           const char *at, struct error *error) {
  if (field->most && length > (uint64_t)field->most)
    return error_at(error, at, "\"%s\" has %zu %s; at most %lld are taken", field->name, length,
                    what, (long long)field->most);
  if (length < (uint64_t)field->least)
    return error_at(error, at, "\"%s\" has %zu %s; it must have at least %lld", field->name, length,
                    what, (long long)field->least);
  return true;
}

static bool line_is_good(const struct field *field, const char *text, const char *at,
                         struct error *error) {
  for (const char *c = text; *c && field->flags & FIELD_LINE; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return error_at(error, at, "\"%s\" holds a control character", field->name);
  return true;
}

static bool text_is_good(const struct field *field, const char *text, const char *at,
                         struct error *error) {
  bool has_limits = field->type != FIELD_TEXTS; /* which has those of its number */
  if (has_limits && !length_is_good(field, strlen(text), "bytes", at, error))
    return false;
  if (!line_is_good(field, text, at, error))
    return false;
  return !field->check || field->check(text, error) || error_pointer_prefix(error, at);
}

/* A text of a field, or one of its texts. */
static bool text_read(const struct field *field, const json_t *value, const char *at, char **ret,
                      struct error *error) {
  bool is_list = field->type == FIELD_TEXTS, takes_integers = field->flags & FIELD_OR_INTEGER;
  cleanup_free char *text = NULL;
  if (json_is_string(value))
    text = xstrdup(json_string_value(value));
  else if (takes_integers && json_is_integer(value))
    text = xasprintf("%lld", (long long)json_integer_value(value));
  else
    return error_at(error, at, "\"%s\" must %s%s, not %s", field->name,
                    is_list ? "hold strings" : "be a string",
                    !takes_integers ? ""
                    : is_list       ? " or integers"
                                    : " or an integer",
                    json_type_name(value));
  if (!text_is_good(field, text, at, error))
    return false;
  free(*ret);
  *ret = TAKE(text);
  return true;
}

static bool number_is_good(const struct field *field, double number) {
  return (field->least_number == 0 && field->most_number == 0) ||
         (number >= field->least_number && number <= field->most_number);
}

static bool number_wrong(const struct field *field, const char *at, struct error *error) {
  if (field->least_number == 0 && field->most_number == 0)
    return error_at(error, at, "\"%s\" must hold numbers", field->name);
  if (isinf(field->most_number))
    return error_at(error, at, "\"%s\" must be a number of at least %g", field->name,
                    field->least_number);
  return error_at(error, at, "\"%s\" must be a number from %g to %g", field->name,
                  field->least_number, field->most_number);
}

static bool enum_read(const struct field *field, const char *text, const char *at, int *ret,
                      struct error *error) {
  size_t n = 0;
  for (; field->names[n]; n++)
    if (strcmp(field->names[n], text) == 0) {
      *ret = (int)n;
      return true;
    }

  error_at(error, at, "\"%s\" is \"%.40s\"; it must be one of:", field->name, text);
  for (size_t i = 0; i < n; i++) {
    size_t used = strlen(error->message);
    snprintf(error->message + used, sizeof error->message - used, "%s %s", i ? "," : "",
             field->names[i]);
  }
  return false;
}

static bool id_read(const struct field *field, const char *text, const char *at, int64_t *ret,
                    struct error *error) {
  size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 18 || text[digits])
    return error_at(error, at, "\"%s\" must be a decimal number in a string", field->name);
  *ret = strtoll(text, NULL, 10);
  return true;
}

static bool numbers_read(const struct field *field, const json_t *array, const char *at,
                         struct numbers *ret, struct error *error) {
  size_t n = json_array_size(array);
  if (!length_is_good(field, n, "elements", at, error))
    return false;

  cleanup_free double *all = xcalloc(n + 1, sizeof *all);
  for (size_t i = 0; i < n; i++) {
    const json_t *element = json_array_get(array, i);
    all[i] = json_number_value(element);
    if (!json_is_number(element) || !number_is_good(field, all[i])) {
      char element_at[JSON_POINTER_SIZE];
      return number_wrong(field, json_pointer_index(element_at, sizeof element_at, at, i), error);
    }
  }
  free(ret->all);
  *ret = (struct numbers){n, TAKE(all)};
  return true;
}

static bool texts_read(const struct field *field, const json_t *array, const char *at,
                       struct texts *ret, struct error *error) {
  size_t n = json_array_size(array);
  if (!length_is_good(field, n, "elements", at, error))
    return false;

  texts_release(ret);
  *ret = (struct texts){0, xcalloc(n + 1, sizeof *ret->all)};
  for (size_t i = 0; i < n; i++) {
    char element_at[JSON_POINTER_SIZE];
    json_pointer_index(element_at, sizeof element_at, at, i);
    if (!text_read(field, json_array_get(array, i), element_at, &ret->all[ret->n], error))
      return false;
    ret->n++;
  }
  return true;
}

static bool ranges_read(const json_t *array, const char *at, struct config_ranges *ret,
                        struct error *error) {
  struct config_ranges ranges;
  if (!config_ranges_from_json(array, &ranges, error))
    return error_pointer_prefix(error, at);
  config_ranges_release(ret);
  *ret = ranges;
  return true;
}

static void records_begin(const struct record *of, size_t n, struct records *ret) {
  records_release(of, ret);
  *ret = (struct records){0, xcalloc(n + 1, of->size)};
}

static void *records_add(const struct record *of, struct records *records) {
  void *element = (char *)records->all + records->n++ * of->size;
  record_init(of, element);
  return element;
}

static bool members_read(const struct record *record, const json_t *json, const char *pointer,
                         bool is_answer, void *object, struct error *error);

static bool records_read(const struct field *field, const json_t *array, const char *at,
                         bool is_answer, struct records *ret, struct error *error) {
  size_t n = json_array_size(array);
  if (!length_is_good(field, n, "elements", at, error))
    return false;

  records_begin(field->of, n, ret);
  for (size_t i = 0; i < n; i++) {
    char element_at[JSON_POINTER_SIZE];
    void *element = records_add(field->of, ret);
    json_pointer_index(element_at, sizeof element_at, at, i);
    if (!members_read(field->of, json_array_get(array, i), element_at, is_answer, element, error))
      return false;
  }
  return true;
}

static bool field_read(const struct field *field, const json_t *json, const char *pointer,
                       bool is_answer, void *to, struct error *error);

static bool map_read(const struct field *field, const json_t *object, const char *at,
                     bool is_answer, struct records *ret, struct error *error) {
  const struct field *name_field = &field->of->fields[0];
  size_t n = json_object_size(object);
  if (!length_is_good(field, n, "members", at, error))
    return false;

  records_begin(field->of, n, ret);
  for (void *i = json_object_iter((json_t *)object); i;
       i = json_object_iter_next((json_t *)object, i)) {
    const char *name = json_object_iter_key(i);
    char member_at[JSON_POINTER_SIZE];
    void *element = records_add(field->of, ret);
    struct field value_field = field->of->fields[1];
    value_field.name = name;
    *(char **)field_at(name_field, element) = xstrdup(name);
    json_pointer_member(member_at, sizeof member_at, at, name);
    if (!text_is_good(name_field, name, member_at, error) ||
        !field_read(&value_field, object, at, is_answer, field_at(&value_field, element), error))
      return false;
  }
  return true;
}

static bool custom_read(const struct field *field, const json_t *value, const char *at, void *to,
                        struct error *error) {
  if (field->custom->release)
    field->custom->release(to);
  return field->custom->read(value, to, error) || error_pointer_prefix(error, at);
}

static bool json_read(const struct field *field, json_t *value, const char *at, json_t **ret,
                      struct error *error) {
  if (field->flags & FIELD_ARRAY) {
    if (!length_is_good(field, json_array_size(value), "elements", at, error))
      return false;
  } else if (field->most) {
    cleanup_free char *text = json_canonical(value);
    if (!length_is_good(field, strlen(text), "bytes", at, error))
      return false;
  }
  json_decref(*ret);
  *ret = json_incref(value);
  return true;
}

static bool field_read(const struct field *field, const json_t *json, const char *pointer,
                       bool is_answer, void *to, struct error *error) {
  enum json_presence presence = field->flags & FIELD_REQUIRED   ? JSON_REQUIRED
                                : field->flags & FIELD_NOT_NULL ? JSON_NOT_NULL
                                                                : JSON_OPTIONAL;
  const char *name = field->name, *text = NULL;
  json_t *value = NULL;
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, pointer, name);
  if (field->flags & FIELD_STATED && !json_object_get(json, name))
    return error_at(error, at, "member \"%s\" is missing; it may be null", name);

  switch (field->type) {
  case FIELD_BOOL:
    return json_get_bool(json, pointer, name, presence, to, error);
  case FIELD_INTEGER: {
    bool is_any = field->least == 0 && field->most == 0;
    return json_get_integer(json, pointer, name, presence, is_any ? INT64_MIN + 1 : field->least,
                            is_any ? INT64_MAX : field->most, to, error);
  }
  case FIELD_NUMBER: {
    double number = NAN;
    if (!json_get_number(json, pointer, name, presence, &number, error))
      return false;
    if (isnan(number))
      return true;
    *(double *)to = number;
    return number_is_good(field, number) || number_wrong(field, at, error);
  }
  case FIELD_DIGEST:
    return json_get_digest(json, pointer, name, presence, to, error);
  case FIELD_TEXT:
  case FIELD_TIME:
    value = json_object_get(json, name);
    if (value && !json_is_null(value))
      return text_read(field, value, at, to, error);
    return json_get_string(json, pointer, name, presence, &text, error);
  case FIELD_ID:
  case FIELD_ENUM:
    if (!json_get_string(json, pointer, name, presence, &text, error))
      return false;
    if (!text)
      return true;
    return field->type == FIELD_ID ? id_read(field, text, at, to, error)
                                   : enum_read(field, text, at, to, error);
  case FIELD_JSON:
  case FIELD_CUSTOM:
    if (field->flags & FIELD_OBJECT &&
        !json_get_object(json, pointer, name, presence, &value, error))
      return false;
    if (field->flags & FIELD_ARRAY && !json_get_array(json, pointer, name, presence, &value, error))
      return false;
    value = json_object_get(json, name);
    if (json_is_null(value) && presence != JSON_NOT_NULL)
      value = NULL;
    if (!value && presence == JSON_REQUIRED)
      return error_at(error, at, "member \"%s\" is missing", name);
    if (json_is_null(value))
      return error_at(error, at, "\"%s\" must not be null", name);
    if (!value)
      return true;
    return field->type == FIELD_CUSTOM ? custom_read(field, value, at, to, error)
                                       : json_read(field, value, at, to, error);
  case FIELD_RECORD:
    if (!json_get_object(json, pointer, name, presence, &value, error))
      return false;
    return !value || members_read(field->of, value, at, is_answer, to, error);
  case FIELD_MAP:
    if (!json_get_object(json, pointer, name, presence, &value, error))
      return false;
    return !value || map_read(field, value, at, is_answer, to, error);
  case FIELD_NUMBERS:
  case FIELD_TEXTS:
  case FIELD_RANGES:
  case FIELD_RECORDS:
    if (!json_get_array(json, pointer, name, presence, &value, error))
      return false;
    if (!value)
      return true;
    if (field->type == FIELD_NUMBERS)
      return numbers_read(field, value, at, to, error);
    if (field->type == FIELD_TEXTS)
      return texts_read(field, value, at, to, error);
    if (field->type == FIELD_RANGES)
      return ranges_read(value, at, to, error);
    return records_read(field, value, at, is_answer, to, error);
  }
  die("no such type of field");
}

static bool is_read(const struct field *field, bool is_answer) {
  return !(field->flags & (FIELD_NO_JSON | (is_answer ? FIELD_REQUEST : FIELD_ANSWER)));
}
static bool is_written(const struct field *field) {
  return !(field->flags & (FIELD_NO_JSON | FIELD_REQUEST));
}

static bool only_fields(const struct record *record, const json_t *json, const char *pointer,
                        struct error *error) {
  cleanup_free const char **names = xcalloc(record->n + 1, sizeof *names);
  size_t n = 0;
  for (size_t i = 0; i < record->n; i++)
    if (is_read(&record->fields[i], false))
      names[n++] = record->fields[i].name;
  return json_only_members(json, pointer, names, error);
}

static bool members_read(const struct record *record, const json_t *json, const char *pointer,
                         bool is_answer, void *object, struct error *error) {
  if (is_answer ? !json_is_object(json) && !error_at(error, pointer, "must be an object")
                : !only_fields(record, json, pointer, error))
    return false;

  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    void *to = field_at(field, object);
    if (is_read(field, is_answer) && !field_read(field, json, pointer, is_answer, to, error))
      return false;
  }
  return true;
}

bool record_read(const struct record *record, const json_t *json, const char *pointer, void *object,
                 struct error *error) {
  return members_read(record, json, pointer, false, object, error);
}

bool record_read_answer(const struct record *record, const json_t *json, const char *pointer,
                        void *object, struct error *error) {
  return members_read(record, json, pointer, true, object, error);
}

static json_t *id_write(int64_t id) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)id);
  return json_string(text);
}

static json_t *texts_write(const struct texts *texts) {
  json_t *array = json_array();
  for (size_t i = 0; i < texts->n; i++)
    ALWAYS(json_array_append_new(array, json_string(texts->all[i])) == 0);
  return array;
}

static json_t *records_write(const struct record *of, const struct records *records) {
  json_t *array = json_array();
  for (size_t i = 0; i < records->n; i++)
    ALWAYS(json_array_append_new(array, record_write(of, (char *)records->all + i * of->size)) ==
           0);
  return array;
}

static json_t *field_write(const struct field *field, const void *at);

static json_t *map_write(const struct record *of, const struct records *records) {
  json_t *object = json_object();
  for (size_t i = 0; i < records->n; i++) {
    const char *element = (const char *)records->all + i * of->size;
    const char *name = *(char *const *)field_at(&of->fields[0], element);
    json_t *value = field_write(&of->fields[1], field_at(&of->fields[1], element));
    ALWAYS(json_object_set_new(object, name, value) == 0);
  }
  return object;
}

static json_t *field_write(const struct field *field, const void *at) {
  if (field_is_absent(field, at))
    return json_null();
  switch (field->type) {
  case FIELD_BOOL:
    return json_boolean(*(const bool *)at);
  case FIELD_INTEGER:
    return json_integer((json_int_t) * (const int64_t *)at);
  case FIELD_ID:
    return id_write(*(const int64_t *)at);
  case FIELD_NUMBER:
    return json_real(*(const double *)at);
  case FIELD_TEXT:
  case FIELD_TIME:
    return json_string(*(char *const *)at);
  case FIELD_ENUM:
    return json_string(field->names[*(const int *)at]);
  case FIELD_DIGEST:
    return json_digest_text(at);
  case FIELD_JSON:
    return json_incref(*(json_t *const *)at);
  case FIELD_CUSTOM:
    return field->custom->write(at);
  case FIELD_NUMBERS:
    return json_numbers(((const struct numbers *)at)->all, ((const struct numbers *)at)->n);
  case FIELD_TEXTS:
    return texts_write(at);
  case FIELD_RANGES:
    return config_ranges_to_json(at);
  case FIELD_RECORD:
    return record_write(field->of, at);
  case FIELD_RECORDS:
    return records_write(field->of, at);
  case FIELD_MAP:
    return map_write(field->of, at);
  }
  die("no such type of field");
}

static bool is_left_out(const struct field *field, const void *at) {
  if (!(field->flags & FIELD_OMITTED))
    return false;
  return field->type == FIELD_BOOL ? !*(const bool *)at : field_is_absent(field, at);
}

json_t *record_write(const struct record *record, const void *object) {
  json_t *json = json_object();
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    const void *at = field_at(field, object);
    if (!is_written(field) || is_left_out(field, at))
      continue;
    json_t *value = field_write(field, at);
    if (!value || json_object_set_new(json, field->name, value) != 0)
      die("\"%s\" cannot be written as JSON", field->name);
  }
  return json;
}

static json_t *reference(const char *schema) {
  cleanup_free char *path = xasprintf("#/components/schemas/%s", schema);
  return json_pack("{s:s}", "$ref", path);
}

static json_t *of_schema(const struct record *of) {
  return of->name ? reference(of->name) : record_schema(of);
}

static void limits_add(json_t *schema, const char *least_name, const char *most_name,
                       const struct field *field) {
  if (field->least)
    json_object_set_new(schema, least_name, json_integer((json_int_t)field->least));
  if (field->most && field->most < INT64_MAX - 1)
    json_object_set_new(schema, most_name, json_integer((json_int_t)field->most));
}

static json_t *number_schema(const struct field *field) {
  json_t *schema = json_pack("{s:s}", "type", "number");
  if (field->least_number != 0 || field->most_number != 0) {
    json_object_set_new(schema, "minimum", json_real(field->least_number));
    if (!isinf(field->most_number))
      json_object_set_new(schema, "maximum", json_real(field->most_number));
  }
  return schema;
}

static json_t *integer_schema(const struct field *field) {
  json_t *schema = json_pack("{s:s}", "type", "integer");
  limits_add(schema, "minimum", "maximum", field);
  if (field->least == 0 && field->most != 0)
    json_object_set_new(schema, "minimum", json_integer(0));
  return schema;
}

static json_t *one_text_schema(const struct field *field) {
  return field->flags & FIELD_OR_INTEGER ? json_pack("{s:[s, s]}", "type", "string", "integer")
                                         : json_pack("{s:s}", "type", "string");
}

static json_t *text_schema(const struct field *field) {
  json_t *schema = one_text_schema(field);
  limits_add(schema, "minLength", "maxLength", field);
  return schema;
}

static json_t *array_schema(const struct field *field, json_t *items) {
  json_t *schema = json_pack("{s:s, s:o}", "type", "array", "items", items);
  limits_add(schema, "minItems", "maxItems", field);
  return schema;
}

static json_t *enum_schema(const struct field *field) {
  json_t *names = json_array();
  for (size_t i = 0; field->names[i]; i++)
    json_array_append_new(names, json_string(field->names[i]));
  return json_pack("{s:s, s:o}", "type", "string", "enum", names);
}

static json_t *given_schema(const struct field *field, const char *text) {
  struct error error;
  json_t *schema;
  if (!json_parse(text, strlen(text), &schema, &error))
    die("the schema of \"%s\": %s", field->name, error.message);
  return field->flags & FIELD_ARRAY ? array_schema(field, schema) : schema;
}

static json_t *type_schema(const struct field *field);

static json_t *map_schema(const struct field *field) {
  json_t *schema = json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                             type_schema(&field->of->fields[1]));
  limits_add(schema, "minProperties", "maxProperties", field);
  return schema;
}

static json_t *type_schema(const struct field *field) {
  const char *text = field->schema                 ? field->schema
                     : field->type == FIELD_CUSTOM ? field->custom->schema
                                                   : NULL;
  if (text)
    return given_schema(field, text);
  switch (field->type) {
  case FIELD_BOOL:
    return json_pack("{s:s}", "type", "boolean");
  case FIELD_INTEGER:
    return integer_schema(field);
  case FIELD_ID:
    return reference("Id");
  case FIELD_NUMBER:
    return number_schema(field);
  case FIELD_TEXT:
    return text_schema(field);
  case FIELD_TIME:
    return reference("Time");
  case FIELD_ENUM:
    return enum_schema(field);
  case FIELD_DIGEST:
    return reference("Digest");
  case FIELD_JSON:
  case FIELD_CUSTOM:
    return field->flags & FIELD_OBJECT ? json_pack("{s:s}", "type", "object") : json_object();
  case FIELD_NUMBERS:
    return array_schema(field, number_schema(field));
  case FIELD_TEXTS:
    return array_schema(field, one_text_schema(field));
  case FIELD_RANGES:
    return reference("Ranges");
  case FIELD_RECORD:
    return of_schema(field->of);
  case FIELD_RECORDS:
    return array_schema(field, of_schema(field->of));
  case FIELD_MAP:
    return map_schema(field);
  }
  die("no such type of field");
}

/* Null is a value of the field too: a type becomes two, anything else one of two schemas. */
static json_t *nullable(json_t *schema) {
  json_t *type = json_object_get(schema, "type");
  if (json_is_string(type) && !json_object_get(schema, "enum")) {
    json_object_set_new(schema, "type", json_pack("[s, s]", json_string_value(type), "null"));
    return schema;
  }
  if (json_object_size(schema) == 0)
    return schema;
  return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

static bool may_be_null(const struct field *field) {
  if (field->type == FIELD_BOOL || field->flags & (FIELD_REQUIRED | FIELD_NOT_NULL))
    return false;
  return !(field->flags & FIELD_ANSWER && field->flags & FIELD_OMITTED);
}

json_t *record_schema(const struct record *record) {
  json_t *properties = json_object(), *required = json_array();
  bool is_request = false;
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    if (field->flags & FIELD_NO_JSON)
      continue;
    json_t *schema = type_schema(field);
    if (may_be_null(field))
      schema = nullable(schema);
    if (field->about)
      json_object_set_new(schema, "description", json_string(field->about));
    json_object_set_new(properties, field->name, schema);
    /* An answer always has what is not left out. */
    if (field->flags & (FIELD_REQUIRED | FIELD_STATED) ||
        (field->flags & FIELD_ANSWER && !(field->flags & FIELD_OMITTED)))
      json_array_append_new(required, json_string(field->name));
    is_request |= is_read(field, false);
  }
  json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
  if (json_array_size(required))
    json_object_set(schema, "required", required);
  json_decref(required);
  if (is_request)
    json_object_set_new(schema, "additionalProperties", json_false());
  return schema;
}
