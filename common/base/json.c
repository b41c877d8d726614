/* Reading JSON strictly, with a JSON Pointer to what is wrong. The canonical writer is
 * json_canonical.c. */
#include "common/base/json.h"

#include <errno.h>

#include "common/base/file.h"

static bool depth_is_within(const json_t *value, int left) {
  if (!json_is_object(value) && !json_is_array(value))
    return true;
  if (left == 0)
    return false;
  const char *name;
  json_t *member;
  size_t index;
  json_object_foreach ((json_t *)value, name, member) {
    if (!depth_is_within(member, left - 1))
      return false;
  }
  json_array_foreach (value, index, member) {
    if (!depth_is_within(member, left - 1))
      return false;
  }
  return true;
}

bool json_parse(const char *text, size_t size, json_t **ret_value, struct error *error) {
  json_error_t reason;
  if (size == 0)
    return error_set(error, "not a JSON document: it is empty");
  /* jansson takes a NUL for the end and would ignore whatever follows it. */
  const char *nul = memchr(text, '\0', size);
  if (nul)
    return error_set(error, "not a JSON document: a NUL at byte %zu", (size_t)(nul - text));
  json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!value)
    return error_set(error, "not a JSON document: line %d, column %d: %s", reason.line,
                     reason.column, reason.text);
  if (!depth_is_within(value, JSON_DEPTH_MAX)) {
    json_decref(value);
    return error_set(error, "the JSON document nests deeper than %d levels", JSON_DEPTH_MAX);
  }
  *ret_value = value;
  return true;
}

bool json_parse_file(const char *path, size_t size_max, json_t **ret_value, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, size_max, &text, &size, error))
    return false;
  if (!json_parse(text, size, ret_value, error))
    return error_prefix(error, "%s: ", path);
  return true;
}

char *json_pointer_member(char *text, size_t size, const char *pointer, const char *name) {
  size_t used = (size_t)snprintf(text, size, "%s/", pointer);
  for (const char *c = name; *c && used + 3 < size; c++) {
    if (*c == '~' || *c == '/') {
      text[used++] = '~';
      text[used++] = *c == '~' ? '0' : '1';
    } else {
      text[used++] = *c;
    }
  }
  if (used < size)
    text[used] = '\0';
  return text;
}

char *json_pointer_index(char *text, size_t size, const char *pointer, size_t index) {
  snprintf(text, size, "%s/%zu", pointer, index);
  return text;
}

const char *json_type_name(const json_t *value) {
  if (!value)
    return "absent";
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    return "an object";
  case JSON_ARRAY:
    return "an array";
  case JSON_STRING:
    return "a string";
  case JSON_INTEGER:
    return "an integer";
  case JSON_REAL:
    return "a number";
  case JSON_TRUE:
  case JSON_FALSE:
    return "a boolean";
  default:
    return "null";
  }
}

#define TYPE(type) (1u << (type))
#define TYPES_NUMBER (TYPE(JSON_INTEGER) | TYPE(JSON_REAL))
#define TYPES_BOOL (TYPE(JSON_TRUE) | TYPE(JSON_FALSE))

/* Finds a member of one of `types`, said as `wanted`. *ret_value is NULL when it is absent and may
 * be. */
static bool member_get(const json_t *object, const char *pointer, const char *name,
                       enum json_presence presence, unsigned types, const char *wanted,
                       json_t **ret_value, struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_t *value = json_object_get(object, name);
  if (json_is_null(value) && presence != JSON_NOT_NULL)
    value = NULL;
  if (!value && presence == JSON_REQUIRED)
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "member \"%s\" is missing", name);
  if (value && !(types & TYPE(json_typeof(value))))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "\"%s\" must be %s, not %s", name, wanted, json_type_name(value));
  *ret_value = value;
  return true;
}

bool json_get_object(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, json_t **ret, struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPE(JSON_OBJECT), "an object", &value, error))
    return false;
  if (value)
    *ret = value;
  return true;
}

bool json_get_array(const json_t *object, const char *pointer, const char *name,
                    enum json_presence presence, json_t **ret, struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPE(JSON_ARRAY), "an array", &value, error))
    return false;
  if (value)
    *ret = value;
  return true;
}

bool json_get_string(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, const char **ret, struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPE(JSON_STRING), "a string", &value, error))
    return false;
  if (value)
    *ret = json_string_value(value);
  return true;
}

bool json_get_integer(const json_t *object, const char *pointer, const char *name,
                      enum json_presence presence, int64_t min, int64_t max, int64_t *ret,
                      struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPE(JSON_INTEGER), "an integer", &value, error))
    return false;
  if (!value)
    return true;
  int64_t integer = json_integer_value(value);
  if (integer < min || integer > max) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "\"%s\" is %lld; it must be %lld to %lld", name, (long long)integer,
                    (long long)min, (long long)max);
  }
  *ret = integer;
  return true;
}

bool json_get_number(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, double *ret, struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPES_NUMBER, "a number", &value, error))
    return false;
  if (value)
    *ret = json_number_value(value);
  return true;
}

bool json_get_bool(const json_t *object, const char *pointer, const char *name,
                   enum json_presence presence, bool *ret, struct error *error) {
  json_t *value;
  if (!member_get(object, pointer, name, presence, TYPES_BOOL, "a boolean", &value, error))
    return false;
  if (value)
    *ret = json_is_true(value);
  return true;
}

bool json_get_digest(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, struct digest *ret, struct error *error) {
  const char *text = NULL;
  if (!json_get_string(object, pointer, name, presence, &text, error))
    return false;
  if (!text)
    return true;
  if (!digest_parse(text, ret)) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "\"%s\" must be \"sha256:\" and 64 lower-case hexadecimal digits", name);
  }
  return true;
}

bool json_only_members(const json_t *value, const char *pointer, const char *const *names,
                       struct error *error) {
  if (!json_is_object(value))
    return error_at(error, pointer, "must be an object, not %s", json_type_name(value));
  const char *name;
  json_t *member;
  json_object_foreach ((json_t *)value, name, member) {
    const char *const *known = names;
    while (*known && strcmp(*known, name) != 0)
      known++;
    if (!*known) {
      char at[JSON_POINTER_SIZE];
      return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                      "unknown member \"%.64s\"", name);
    }
  }
  return true;
}

json_t *json_numbers(const double *numbers, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(array, json_real(numbers[i])) == 0);
  return array;
}

json_t *json_digest_text(const struct digest *digest) {
  char text[DIGEST_TEXT_SIZE];
  return json_string(digest_format(digest, text));
}

bool json_can_hold(const char *text) {
  cleanup_json json_t *string = json_string(text);
  return string != NULL;
}

char *json_texts_join(const json_t *texts, const char *separator) {
  char *joined = xstrdup("");
  for (size_t i = 0; i < json_array_size(texts); i++) {
    const char *text = json_string_value(json_array_get(texts, i));
    char *longer = xasprintf("%s%s%s", joined, i ? separator : "", text ? text : "");
    free(joined);
    joined = longer;
  }
  return joined;
}
