/* JSON: strict reading, with a JSON Pointer to what is wrong, and the canonical text, whose digest
 * identifies kernels, releases and environments. */
#include "common/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "common/base/file.h"

/* What jansson 2.14 allocates on 64 bits, with malloc's overhead and the average slack of arrays
 * and tables that double. A member's name is in its pair; the first value of an array or object is
 * without a comma before it, which the container's bytes include. */
#define ARRAY_BYTES 128
#define OBJECT_BYTES 224
#define PAIR_BYTES 96
#define VALUE_BYTES 48
#define STRING_BYTES 48

struct json_extent json_measure(const char *text, size_t size, size_t most) {
  struct json_extent extent = {.memory = VALUE_BYTES};
  int depth = 0;
  for (size_t i = 0; i < size && extent.memory <= most; i++) {
    switch (text[i]) {
    case '[':
    case '{':
      extent.memory += text[i] == '[' ? ARRAY_BYTES : OBJECT_BYTES;
      extent.depth = ++depth > extent.depth ? depth : extent.depth;
      break;
    case ']':
    case '}':
      depth--;
      break;
    case ',':
      extent.memory += VALUE_BYTES;
      break;
    case ':':
      extent.memory += PAIR_BYTES - STRING_BYTES;
      break;
    case '"': {
      size_t begin = i;
      for (i++; i < size && text[i] != '"'; i++)
        i += text[i] == '\\';
      extent.memory += STRING_BYTES + (i - begin);
      break;
    }
    default:
      break;
    }
  }

  return extent;
}

bool json_parse(const char *text, size_t size, json_t **ret_value, struct error *error) {
  json_error_t reason;
  if (size == 0)
    return error_set(error, "not a JSON document: it is empty");

  /* jansson would end at a NUL and ignore what follows it. */
  const char *nul = memchr(text, '\0', size);
  if (nul)
    return error_set(error, "not a JSON document: a NUL at byte %zu", (size_t)(nul - text));

  if (json_measure(text, size, SIZE_MAX).depth > JSON_DEPTH_MAX)
    return error_set(error, "the JSON document nests deeper than %d levels", JSON_DEPTH_MAX);

  json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &reason);
  if (!value)
    return error_set(error, "not a JSON document: line %d, column %d: %s", reason.line,
                     reason.column, reason.text);

  *ret_value = value;
  return true;
}

bool json_parse_file(const char *path, size_t size_max, json_t **ret_value, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, size_max, &text, &size, error))
    return false;
  return json_parse(text, size, ret_value, error) || error_prefix(error, "%s: ", path);
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

char *json_pointer_format(char text[JSON_POINTER_SIZE], const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, JSON_POINTER_SIZE, format, arguments);
  va_end(arguments);
  return text;
}

const char *json_type_name(const json_t *value) {
  static const char *const names[] = {
      [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
      [JSON_INTEGER] = "an integer", [JSON_REAL] = "a number",  [JSON_TRUE] = "a boolean",
      [JSON_FALSE] = "a boolean",    [JSON_NULL] = "null"};
  return value ? names[json_typeof(value)] : "absent";
}

bool json_get(const json_t *object, const char *pointer, const char *name,
              struct json_wanted wanted, json_t **ret, struct error *error) {
  json_t *value = json_object_get(object, name);

  if (json_is_null(value) && wanted.presence != JSON_NOT_NULL)
    value = NULL;

  if (!value && wanted.presence == JSON_REQUIRED)
    return error_at(error, POINTER_MEMBER(pointer, name), "member \"%s\" is missing", name);
  if (value && !(wanted.types & JSON_TYPE(json_typeof(value))))
    return error_at(error, POINTER_MEMBER(pointer, name), "\"%s\" must be %s, not %s", name,
                    wanted.name, json_type_name(value));
  if (value)
    *ret = value;
  return true;
}

bool json_get_object(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, json_t **ret, struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_OBJECT), "an object"};
  return json_get(object, pointer, name, wanted, ret, error);
}

bool json_get_array(const json_t *object, const char *pointer, const char *name,
                    enum json_presence presence, json_t **ret, struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_ARRAY), "an array"};
  return json_get(object, pointer, name, wanted, ret, error);
}

bool json_get_string(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, const char **ret, struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_STRING), "a string"};
  json_t *value = NULL;
  if (!json_get(object, pointer, name, wanted, &value, error))
    return false;
  if (value)
    *ret = json_string_value(value);
  return true;
}

bool json_get_integer(const json_t *object, const char *pointer, const char *name,
                      enum json_presence presence, int64_t min, int64_t max, int64_t *ret,
                      struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_INTEGER), "an integer"};
  json_t *value = NULL;
  if (!json_get(object, pointer, name, wanted, &value, error))
    return false;
  if (!value)
    return true;

  int64_t integer = json_integer_value(value);
  if (integer < min || integer > max) {
    return error_at(error, POINTER_MEMBER(pointer, name), "\"%s\" is %lld; it must be %lld to %lld",
                    name, (long long)integer, (long long)min, (long long)max);
  }

  *ret = integer;
  return true;
}

bool json_get_number(const json_t *object, const char *pointer, const char *name,
                     enum json_presence presence, double *ret, struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_INTEGER) | JSON_TYPE(JSON_REAL),
                               "a number"};
  json_t *value = NULL;
  if (!json_get(object, pointer, name, wanted, &value, error))
    return false;
  if (value)
    *ret = json_number_value(value);
  return true;
}

bool json_get_bool(const json_t *object, const char *pointer, const char *name,
                   enum json_presence presence, bool *ret, struct error *error) {
  struct json_wanted wanted = {presence, JSON_TYPE(JSON_TRUE) | JSON_TYPE(JSON_FALSE), "a boolean"};
  json_t *value = NULL;
  if (!json_get(object, pointer, name, wanted, &value, error))
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

  return !text || digest_parse(text, ret) ||
         error_at(error, POINTER_MEMBER(pointer, name),
                  "\"%s\" must be \"sha256:\" and 64 lower-case hexadecimal digits", name);
}

bool json_only_members(const json_t *value, const char *pointer, const char *const *names,
                       struct error *error) {
  if (!json_is_object(value))
    return error_at(error, pointer, "must be an object, not %s", json_type_name(value));

  json_members (value, name, member) {
    const char *const *known = names;

    while (*known && !string_equal(*known, name))
      known++;
    if (!*known)
      return error_at(error, POINTER_MEMBER(pointer, name), "unknown member \"%.64s\"", name);
  }
  return true;
}

json_t *json_numbers(const double *numbers, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    json_push(array, json_real(numbers[i]));
  return array;
}

json_t *json_digest_text(const struct digest *digest) { return json_string(DIGEST_TEXT(digest)); }

bool json_can_hold(const char *text) {
  cleanup_json json_t *string = json_string(text);
  return string != NULL;
}

char *json_texts_join(const json_t *texts, const char *separator) {
  char *joined = xstrdup("");
  for (size_t i = 0; i < json_array_size(texts); i++) {
    const char *text = json_string_value(json_array_get(texts, i));
    text_append(&joined, "%s%s", i ? separator : "", text ? text : "");
  }
  return joined;
}

/* The canonical text */

/* Changes "d.ddde-XX" to the next larger magnitude; false if that needs one more digit. */
static bool digits_increment(char *scientific) {
  for (char *c = strchr(scientific, 'e'); c-- > scientific;) {
    if (*c < '0' || *c > '9')
      continue;
    if (*c != '9') {
      ++*c;
      return true;
    }
    *c = '0';
  }
  return false;
}

/* Writes a number that is a decimal of up to 15 digits, as nearly every float is, without printing
 * and parsing doubles. Two such decimals are never the same double (DBL_DIG), so the one that reads
 * back equal is the shortest text. False for other numbers. */
static bool short_decimal_format(double number, char text[FLOAT_TEXT_SIZE]) {
  double magnitude = fabs(number), power = 1; /* powers of ten are exact to 1e22 */
  for (int decimals = 0; decimals < 19; decimals++, power *= 10) {
    double digits = rint(magnitude * power);
    if (digits >= 1e15)
      return false;
    /* Both are exact, so the quotient is the double of that decimal. */
    if (digits / power != magnitude)
      continue;

    uint64_t all = (uint64_t)digits, unit = (uint64_t)power;
    snprintf(text, FLOAT_TEXT_SIZE, "%s%" PRIu64 ".%0*" PRIu64, number < 0 ? "-" : "", all / unit,
             decimals ? decimals : 1, all % unit);
    return true;
  }
  return false;
}

/* Python's repr: the shortest digits that read back equal, plain between 1e-4 and 1e16, else with
 * an exponent of at least two digits (CPython, Python/pystrtod.c, format code 'r'). */
char *float_format(double number, char text[FLOAT_TEXT_SIZE]) {
  ALWAYS(isfinite(number));

  /* In this range a decimal of up to 15 digits has at most 18 behind the point. */
  bool is_plain = fabs(number) >= 1e-4 && fabs(number) < 1e15;
  if (is_plain && short_decimal_format(number, text))
    return text;

  /* The nearest decimal of a precision may read back as another double although the next larger one
   * reads back equal: above a power of two, doubles are twice as far apart as below it. (All such
   * numbers have 16 digits and an exponent.) */
  char scientific[FLOAT_TEXT_SIZE];
  int precision = is_plain ? 16 : 1; /* precisions up to 15 were tried above */
  for (;; precision++) {
    snprintf(scientific, FLOAT_TEXT_SIZE, "%.*e", precision - 1, number);
    if (strtod(scientific, NULL) == number ||
        (digits_increment(scientific) && strtod(scientific, NULL) == number))
      break;
  }

  int exponent = (int)strtol(strchr(scientific, 'e') + 1, NULL, 10);
  int decimals = precision - 1 - exponent;
  if (exponent >= -4 && exponent < 16)
    snprintf(text, FLOAT_TEXT_SIZE, "%.*f", decimals > 1 ? decimals : 1, number);
  else
    memcpy(text, scientific, FLOAT_TEXT_SIZE);
  return text;
}

/* Uses the unlocked functions: a release of 50,000 winners has about 10 MB, and locking the stream
 * for each byte would take most of the time. */
static void string_write(FILE *out, const char *text, size_t length) {
  putc_unlocked('"', out);
  size_t plain = 0; /* start of the bytes that are not written yet and need no escape */

  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x20 && c != '"' && c != '\\')
      continue;
    fwrite_unlocked(text + plain, 1, i - plain, out);
    plain = i + 1;
    fprintf(out, c < 0x20 ? "\\u%04x" : "\\%c", c);
  }

  fwrite_unlocked(text + plain, 1, length - plain, out);
  putc_unlocked('"', out);
}

void json_canonical_write_string(FILE *out, const char *text) {
  string_write(out, text, strlen(text));
}

struct member {
  const char *name;
  const json_t *value;
};

static int members_compare(const void *a, const void *b) {
  return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void object_write(FILE *out, const json_t *object) {
  struct member few[16];
  size_t n = json_object_size(object), filled = 0;
  cleanup_free struct member *many = n > ARRAY_LENGTH(few) ? xcalloc(n, sizeof *many) : NULL;
  struct member *members = many ? many : few;

  json_members (object, name, value)
    members[filled++] = (struct member){name, value};
  qsort(members, n, sizeof *members, members_compare);

  putc_unlocked('{', out);
  for (size_t i = 0; i < n; i++) {
    if (i)
      putc_unlocked(',', out);
    json_canonical_write_string(out, members[i].name);
    putc_unlocked(':', out);
    json_canonical_write(out, members[i].value);
  }
  putc_unlocked('}', out);
}

void json_canonical_write(FILE *out, const json_t *value) {
  char number[FLOAT_TEXT_SIZE];

  switch (json_typeof(value)) {
  case JSON_OBJECT:
    object_write(out, value);
    break;
  case JSON_ARRAY:
    putc_unlocked('[', out);
    json_elements (value, index, element) {
      if (index)
        putc_unlocked(',', out);
      json_canonical_write(out, element);
    }
    putc_unlocked(']', out);
    break;
  case JSON_STRING:
    string_write(out, json_string_value(value), json_string_length(value));
    break;
  case JSON_INTEGER:
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    fputs_unlocked(number, out);
    break;
  case JSON_REAL:
    fputs_unlocked(float_format(json_real_value(value), number), out);
    break;
  case JSON_TRUE:
    fputs_unlocked("true", out);
    break;
  case JSON_FALSE:
    fputs_unlocked("false", out);
    break;
  case JSON_NULL:
    fputs_unlocked("null", out);
    break;
  }
}

char *json_canonical(const json_t *value) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  json_canonical_write(out, value);
  ALWAYS(fclose(out) == 0);
  return text;
}

struct digest json_digest(const json_t *value) {
  cleanup_free char *text = json_canonical(value);
  return digest_of(text, strlen(text));
}
