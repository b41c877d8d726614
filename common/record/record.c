/* Records from and to JSON, by their tables of fields. */
#include "common/record/record.h"

#include <math.h>

bool digest_is_none(const struct digest *digest) {
  static const struct digest none;
  return memcmp(digest, &none, sizeof none) == 0;
}

bool field_is_absent(const struct field *field, const void *at) {
  switch (field->type) {
  case FIELD_BOOL:
  case FIELD_RANGES:
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
      continue;
    case FIELD_JSON:
      json_decref(*(json_t **)at);
      continue;
    case FIELD_CUSTOM:
      if (field->custom->release)
        field->custom->release(at);
      continue;
    case FIELD_NUMBERS:
      free(((struct numbers *)at)->all);
      continue;
    case FIELD_TEXTS:
      texts_release(at);
      continue;
    case FIELD_RANGES:
      config_ranges_release(at);
      continue;
    case FIELD_RECORD:
      record_release(field->of, at);
      continue;
    case FIELD_RECORDS:
    case FIELD_MAP:
      records_release(field->of, at);
      continue;
    case FIELD_BOOL:
    case FIELD_INTEGER:
    case FIELD_ID:
    case FIELD_NUMBER:
    case FIELD_ENUM:
    case FIELD_DIGEST:
      continue;
    }
    die("no such type of field");
  }

  record_init(record, object);
}

/* Reading */

static bool length_is_good(const struct field *field, size_t length, const char *what,
                           const char *at, struct error *error) {
  if (field->most && length > (uint64_t)field->most)
    return error_at(error, at, "\"%s\" has %zu %s; at most %lld are allowed", field->name, length,
                    what, (long long)field->most);
  if (length < (uint64_t)field->least)
    return error_at(error, at, "\"%s\" has %zu %s; it must have at least %lld", field->name, length,
                    what, (long long)field->least);
  return true;
}

/* Whether the field allows `text`: as its value, as one of its texts, or as the name of a member of
 * a map. */
static bool text_is_good(const struct field *field, const char *text, const char *at,
                         struct error *error) {
  /* The limits of FIELD_TEXTS are numbers of texts. */
  if (field->type != FIELD_TEXTS && !length_is_good(field, strlen(text), "bytes", at, error))
    return false;
  for (const char *c = text; *c && field->flags & FIELD_LINE; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return error_at(error, at, "\"%s\" contains a control character", field->name);
  return !field->check || field->check(text, error) || error_pointer_prefix(error, at);
}

static bool text_read(const struct field *field, const json_t *value, const char *at, char **ret,
                      struct error *error) {
  cleanup_free char *text = json_is_integer(value)
                                ? xasprintf("%lld", (long long)json_integer_value(value))
                                : xstrdup(json_string_value(value));
  if (!text_is_good(field, text, at, error))
    return false;

  free(*ret);
  *ret = TAKE(text);
  return true;
}

static bool texts_read(const struct field *field, const json_t *array, const char *at,
                       struct texts *ret, struct error *error) {
  bool or_integer = field->flags & FIELD_OR_INTEGER;
  texts_release(ret);
  *ret = (struct texts){0, xcalloc(json_array_size(array) + 1, sizeof *ret->all)};

  for (size_t i = 0; i < json_array_size(array); i++, ret->n++) {
    const json_t *element = json_array_get(array, i);
    char element_at[JSON_POINTER_SIZE];
    json_pointer_index(element_at, sizeof element_at, at, i);
    if (!json_is_string(element) && !(or_integer && json_is_integer(element)))
      return error_at(error, element_at, "\"%s\" must hold strings%s, not %s", field->name,
                      or_integer ? " or integers" : "", json_type_name(element));

    if (!text_read(field, element, element_at, &ret->all[i], error))
      return false;
  }
  return true;
}

/* Reads the number of a field, or one of its numbers. */
static bool number_read(const struct field *field, const json_t *value, const char *at, double *ret,
                        struct error *error) {
  double number = json_number_value(value), least = field->least_number, most = field->most_number;
  bool is_any = least == 0 && most == 0;
  if (json_is_number(value) && (is_any || (number >= least && number <= most))) {
    *ret = number;
    return true;
  }

  if (is_any)
    return error_at(error, at, "\"%s\" must hold numbers", field->name);
  if (isinf(most))
    return error_at(error, at, "\"%s\" must be a number of at least %g", field->name, least);
  return error_at(error, at, "\"%s\" must be a number from %g to %g", field->name, least, most);
}

static bool numbers_read(const struct field *field, const json_t *array, const char *at,
                         struct numbers *ret, struct error *error) {
  size_t n = json_array_size(array);
  cleanup_free double *all = xcalloc(n + 1, sizeof *all);

  for (size_t i = 0; i < n; i++) {
    char element_at[JSON_POINTER_SIZE];
    json_pointer_index(element_at, sizeof element_at, at, i);
    if (!number_read(field, json_array_get(array, i), element_at, &all[i], error))
      return false;
  }

  free(ret->all);
  *ret = (struct numbers){n, TAKE(all)};
  return true;
}

static bool enum_read(const struct field *field, const char *text, const char *at, int *ret,
                      struct error *error) {
  for (int i = 0; field->names[i]; i++)
    if (string_equal(field->names[i], text)) {
      *ret = i;
      return true;
    }

  error_at(error, at, "\"%s\" is \"%.40s\"; it must be one of:", field->name, text);
  for (size_t i = 0; field->names[i]; i++)
    error_append(error, "%s %s", i ? "," : "", field->names[i]);
  return false;
}

static bool members_read(const struct record *record, const json_t *json, const char *pointer,
                         bool is_answer, void *object, struct error *error);
static bool field_read(const struct field *field, const json_t *json, const char *pointer,
                       bool is_answer, void *to, struct error *error);

/* Reads the elements of an array, or the members of a map, each into a struct of name and value. */
static bool records_read(const struct field *field, json_t *value, const char *at, bool is_answer,
                         struct records *ret, struct error *error) {
  const struct record *of = field->of;
  bool is_map = field->type == FIELD_MAP;
  size_t n = is_map ? json_object_size(value) : json_array_size(value);
  records_release(of, ret);
  *ret = (struct records){0, xcalloc(n + 1, of->size)};

  void *member = json_object_iter(value);
  for (size_t i = 0; i < n; i++, member = json_object_iter_next(value, member)) {
    void *element = (char *)ret->all + i * of->size;
    char element_at[JSON_POINTER_SIZE];
    record_init(of, element);
    ret->n++;

    if (!is_map) {
      json_pointer_index(element_at, sizeof element_at, at, i);
      if (!members_read(of, json_array_get(value, i), element_at, is_answer, element, error))
        return false;
      continue;
    }

    const char *name = json_object_iter_key(member);
    struct field value_field = of->fields[1];
    value_field.name = name;
    *(char **)field_at(&of->fields[0], element) = xstrdup(name);
    json_pointer_member(element_at, sizeof element_at, at, name);
    if (!text_is_good(&of->fields[0], name, element_at, error) ||
        !field_read(&value_field, value, at, is_answer, field_at(&value_field, element), error))
      return false;
  }
  return true;
}

/* The types of JSON that a field accepts. */
static struct json_wanted field_wants(const struct field *field) {
  enum json_presence presence = field->flags & FIELD_REQUIRED   ? JSON_REQUIRED
                                : field->flags & FIELD_NOT_NULL ? JSON_NOT_NULL
                                                                : JSON_OPTIONAL;
  if (field->flags & FIELD_OR_INTEGER && field->type == FIELD_TEXT)
    return (struct json_wanted){presence, JSON_TYPE(JSON_STRING) | JSON_TYPE(JSON_INTEGER),
                                "a string or an integer"};

  switch (field->type) {
  case FIELD_NUMBER:
    return (struct json_wanted){presence, JSON_TYPE(JSON_INTEGER) | JSON_TYPE(JSON_REAL),
                                "a number"};
  case FIELD_ID:
  case FIELD_TEXT:
  case FIELD_TIME:
  case FIELD_ENUM:
    return (struct json_wanted){presence, JSON_TYPE(JSON_STRING), "a string"};
  case FIELD_NUMBERS:
  case FIELD_TEXTS:
  case FIELD_RANGES:
  case FIELD_RECORDS:
    return (struct json_wanted){presence, JSON_TYPE(JSON_ARRAY), "an array"};
  case FIELD_RECORD:
  case FIELD_MAP:
    return (struct json_wanted){presence, JSON_TYPE(JSON_OBJECT), "an object"};
  case FIELD_BOOL: /* json_get_bool() and the like check the types of three */
  case FIELD_INTEGER:
  case FIELD_DIGEST:
  case FIELD_JSON:
  case FIELD_CUSTOM:
    if (field->flags & FIELD_OBJECT)
      return (struct json_wanted){presence, JSON_TYPE(JSON_OBJECT), "an object"};
    if (field->flags & FIELD_ARRAY)
      return (struct json_wanted){presence, JSON_TYPE(JSON_ARRAY), "an array"};
    return (struct json_wanted){presence, ~JSON_TYPE(JSON_NULL), "a value"};
  }
  die("no such type of field");
}

static bool field_read(const struct field *field, const json_t *json, const char *pointer,
                       bool is_answer, void *to, struct error *error) {
  struct json_wanted wanted = field_wants(field);
  const char *name = field->name;
  char at[JSON_POINTER_SIZE]; /* not cleared: this runs for each member of each measurement */
  json_pointer_member(at, sizeof at, pointer, name);

  if (field->flags & FIELD_STATED && !json_object_get(json, name))
    return error_at(error, at, "member \"%s\" is missing; it may be null", name);
  if (field->type == FIELD_BOOL)
    return json_get_bool(json, pointer, name, wanted.presence, to, error);
  if (field->type == FIELD_DIGEST)
    return json_get_digest(json, pointer, name, wanted.presence, to, error);

  if (field->type == FIELD_INTEGER) {
    bool is_any = field->least == 0 && field->most == 0;
    return json_get_integer(json, pointer, name, wanted.presence,
                            is_any ? INT64_MIN + 1 : field->least, is_any ? INT64_MAX : field->most,
                            to, error);
  }

  json_t *value = NULL;
  if (!json_get(json, pointer, name, wanted, &value, error))
    return false;
  if (!value)
    return true;

  bool is_list = field->flags & FIELD_ARRAY || field->type == FIELD_NUMBERS ||
                 field->type == FIELD_TEXTS || field->type == FIELD_RECORDS;
  if (is_list && !length_is_good(field, json_array_size(value), "elements", at, error))
    return false;

  switch (field->type) {
  case FIELD_NUMBER:
    return number_read(field, value, at, to, error);
  case FIELD_TEXT:
  case FIELD_TIME:
    return text_read(field, value, at, to, error);
  case FIELD_ENUM:
    return enum_read(field, json_string_value(value), at, to, error);
  case FIELD_ID: {
    const char *text = json_string_value(value);
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits])
      return error_at(error, at, "\"%s\" must be a decimal number in a string", name);
    *(int64_t *)to = strtoll(text, NULL, 10);
    return true;
  }
  case FIELD_JSON: {
    cleanup_free char *text = field->most && !is_list ? json_canonical(value) : NULL;
    if (text && !length_is_good(field, strlen(text), "bytes", at, error))
      return false;
    json_decref(*(json_t **)to);
    *(json_t **)to = json_incref(value);
    return true;
  }
  case FIELD_CUSTOM:
    if (field->custom->release)
      field->custom->release(to);
    return field->custom->read(value, to, error) || error_pointer_prefix(error, at);
  case FIELD_NUMBERS:
    return numbers_read(field, value, at, to, error);
  case FIELD_TEXTS:
    return texts_read(field, value, at, to, error);
  case FIELD_RANGES: {
    struct config_ranges ranges;
    if (!config_ranges_from_json(value, &ranges, error))
      return error_pointer_prefix(error, at);
    config_ranges_release(to);
    *(struct config_ranges *)to = ranges;
    return true;
  }
  case FIELD_RECORD:
    return members_read(field->of, value, at, is_answer, to, error);
  case FIELD_MAP:
    return length_is_good(field, json_object_size(value), "members", at, error) &&
           records_read(field, value, at, is_answer, to, error);
  case FIELD_RECORDS:
    return records_read(field, value, at, is_answer, to, error);
  case FIELD_BOOL: /* read above */
  case FIELD_INTEGER:
  case FIELD_DIGEST:
    break;
  }
  die("no such type of field");
}

static bool is_read(const struct record *record, const struct field *field, bool is_answer) {
  unsigned flags = record->flags | field->flags;
  return !(flags & (FIELD_NO_JSON | (is_answer ? FIELD_REQUEST : FIELD_ANSWER)));
}

static bool members_read(const struct record *record, const json_t *json, const char *pointer,
                         bool is_answer, void *object, struct error *error) {
  if (is_answer && !json_is_object(json))
    return error_at(error, pointer, "must be an object");

  if (!is_answer) {
    cleanup_free const char **names = xcalloc(record->n + 1, sizeof *names);
    for (size_t i = 0, n = 0; i < record->n; i++)
      if (is_read(record, &record->fields[i], false))
        names[n++] = record->fields[i].name;
    if (!json_only_members(json, pointer, names, error))
      return false;
  }

  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    void *to = field_at(field, object);
    if (is_read(record, field, is_answer) &&
        !field_read(field, json, pointer, is_answer, to, error))
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

/* Writing */

static json_t *field_write(const struct field *field, const void *at);

/* Writes an array of texts or records, or the object of a map. */
static json_t *list_write(const struct field *field, const void *at) {
  const struct texts *texts = at;
  const struct records *records = at;
  const struct record *of = field->of;
  bool is_map = field->type == FIELD_MAP, is_texts = field->type == FIELD_TEXTS;
  json_t *list = is_map ? json_object() : json_array();
  size_t n = is_texts ? texts->n : records->n;

  for (size_t i = 0; i < n; i++) {
    const char *element = is_texts ? texts->all[i] : (const char *)records->all + i * of->size;

    if (is_texts)
      json_push(list, json_string(element));
    else if (is_map)
      json_put(list, *(char *const *)field_at(&of->fields[0], element),
               field_write(&of->fields[1], field_at(&of->fields[1], element)));
    else
      json_push(list, record_write(of, element));
  }
  return list;
}

static json_t *field_write(const struct field *field, const void *at) {
  if (field_is_absent(field, at))
    return json_null();

  switch (field->type) {
  case FIELD_BOOL:
    return json_boolean(*(const bool *)at);
  case FIELD_INTEGER:
    return json_integer(*(const int64_t *)at);
  case FIELD_ID:
    return json_sprintf("%lld", (long long)*(const int64_t *)at);
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
  case FIELD_RANGES:
    return config_ranges_to_json(at);
  case FIELD_RECORD:
    return record_write(field->of, at);
  case FIELD_TEXTS:
  case FIELD_RECORDS:
  case FIELD_MAP:
    return list_write(field, at);
  }
  die("no such type of field");
}

json_t *record_write(const struct record *record, const void *object) {
  json_t *json = json_object();
  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    const void *at = field_at(field, object);
    bool is_absent = field->type == FIELD_BOOL ? !*(const bool *)at : field_is_absent(field, at);
    if (field->flags & (FIELD_NO_JSON | FIELD_REQUEST) ||
        (field->flags & FIELD_OMITTED && is_absent))
      continue;

    json_t *value = field_write(field, at);
    if (!value || json_object_set_new(json, field->name, value) != 0)
      die("\"%s\" cannot be written as JSON", field->name);
  }
  return json;
}

/* Schemas */

static json_t *reference(const char *schema) {
  return json_pack("{s:s+}", "$ref", "#/components/schemas/", schema);
}

/* Adds the limits of a field to its schema, with these names; returns the schema. */
static json_t *limited(const struct field *field, json_t *schema, const char *least_name,
                       const char *most_name) {
  if (field->least)
    json_put(schema, least_name, json_integer(field->least));
  if (field->most && field->most < INT64_MAX - 1)
    json_put(schema, most_name, json_integer(field->most));
  return schema;
}

static json_t *array_schema(const struct field *field, json_t *items) {
  json_t *schema = json_pack("{s:s, s:o}", "type", "array", "items", items);
  return limited(field, schema, "minItems", "maxItems");
}

static json_t *type_schema(const struct field *field) {
  const char *text =
      field->type == FIELD_CUSTOM && !field->schema ? field->custom->schema : field->schema;
  json_t *schema;

  if (text) {
    struct error error;
    if (!json_parse(text, strlen(text), &schema, &error))
      die("the schema of \"%s\": %s", field->name, error.message);
    return field->flags & FIELD_ARRAY ? array_schema(field, schema) : schema;
  }

  switch (field->type) {
  case FIELD_BOOL:
    return json_pack("{s:s}", "type", "boolean");
  case FIELD_INTEGER:
    schema = limited(field, json_pack("{s:s}", "type", "integer"), "minimum", "maximum");
    if (field->least == 0 && field->most != 0)
      json_put(schema, "minimum", json_integer(0));
    return schema;
  case FIELD_NUMBER:
  case FIELD_NUMBERS:
    schema = json_pack("{s:s}", "type", "number");
    if (field->least_number != 0 || field->most_number != 0) {
      json_put(schema, "minimum", json_real(field->least_number));
      if (!isinf(field->most_number))
        json_put(schema, "maximum", json_real(field->most_number));
    }
    return field->type == FIELD_NUMBERS ? array_schema(field, schema) : schema;
  case FIELD_TEXT:
  case FIELD_TEXTS:
    schema = field->flags & FIELD_OR_INTEGER ? json_pack("{s:[s, s]}", "type", "string", "integer")
                                             : json_pack("{s:s}", "type", "string");
    return field->type == FIELD_TEXTS ? array_schema(field, schema)
                                      : limited(field, schema, "minLength", "maxLength");
  case FIELD_ID:
    return reference("Id");
  case FIELD_TIME:
    return reference("Time");
  case FIELD_DIGEST:
    return reference("Digest");
  case FIELD_RANGES:
    return reference("Ranges");
  case FIELD_ENUM:
    schema = json_pack("{s:s, s:[]}", "type", "string", "enum");
    for (size_t i = 0; field->names[i]; i++)
      json_push(json_object_get(schema, "enum"), json_string(field->names[i]));
    return schema;
  case FIELD_JSON:
  case FIELD_CUSTOM:
    return field->flags & FIELD_OBJECT ? json_pack("{s:s}", "type", "object") : json_object();
  case FIELD_RECORD:
  case FIELD_RECORDS:
    schema = field->of->name ? reference(field->of->name) : record_schema(field->of);
    return field->type == FIELD_RECORDS ? array_schema(field, schema) : schema;
  case FIELD_MAP:
    schema = json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                       type_schema(&field->of->fields[1]));
    return limited(field, schema, "minProperties", "maxProperties");
  }
  die("no such type of field");
}

/* Allows null: as a second type where the schema has one, else as a second schema. */
static json_t *nullable(json_t *schema) {
  json_t *type = json_object_get(schema, "type");
  if (json_is_string(type) && !json_object_get(schema, "enum")) {
    json_put(schema, "type", json_pack("[s, s]", json_string_value(type), "null"));
    return schema;
  }
  if (json_object_size(schema) == 0)
    return schema;
  return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

json_t *record_schema(const struct record *record) {
  json_t *properties = json_object(), *required = json_array();
  bool is_request = false;

  for (size_t i = 0; i < record->n; i++) {
    const struct field *field = &record->fields[i];
    if (field->flags & FIELD_NO_JSON)
      continue;

    json_t *schema = type_schema(field);
    bool is_answer = (record->flags | field->flags) & FIELD_ANSWER,
         is_omitted_answer = is_answer && field->flags & FIELD_OMITTED;
    if (field->type != FIELD_BOOL && !(field->flags & (FIELD_REQUIRED | FIELD_NOT_NULL)) &&
        !is_omitted_answer)
      schema = nullable(schema);

    if (field->about)
      json_put(schema, "description", json_string(field->about));
    json_put(properties, field->name, schema);

    /* An answer has all its fields but those with FIELD_OMITTED. */
    if (field->flags & (FIELD_REQUIRED | FIELD_STATED) || (is_answer && !is_omitted_answer))
      json_push(required, json_string(field->name));
    is_request |= is_read(record, field, false);
  }

  json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
  if (json_array_size(required))
    json_object_set(schema, "required", required);
  json_decref(required);

  if (is_request)
    json_put(schema, "additionalProperties", json_false());
  return schema;
}
