/* The canonical text of a JSON value: what every identity in wavetune is a digest of. */
#include <inttypes.h>
#include <math.h>

#include "common/base/json.h"

/* Replaces the digits of "d.ddde-XX" by those of the next larger magnitude; false where a digit
 * would be added. */
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

/* Whether `precision` digits read back as the number; they are written to `scientific`. The nearest
 * such digits do not always: above a power of two doubles lie twice as far apart as below it, so
 * the next digits up may read back although the nearest, below it, do not. (Those numbers all have
 * 16 digits and an exponent, so float_format never has to write them plainly.) */
static bool digits_read_back(double number, int precision, char scientific[FLOAT_TEXT_SIZE]) {
  snprintf(scientific, FLOAT_TEXT_SIZE, "%.*e", precision - 1, number);
  return strtod(scientific, NULL) == number ||
         (digits_increment(scientific) && strtod(scientific, NULL) == number);
}

/* Where a decimal of up to 15 digits has no more than 18 of them behind the point. */
static bool is_in_decimal_range(double number) {
  return fabs(number) >= 1e-4 && fabs(number) < 1e15;
}

/* Decimals of up to 15 digits, written plainly: what nearly every float is, without printf. No two
 * of them are one double (DBL_DIG), so the one that reads back is the shortest text. False for all
 * others. */
static bool short_decimal_format(double number, char text[FLOAT_TEXT_SIZE]) {
  double magnitude = fabs(number), power = 1; /* powers of ten are exact to 1e22 */
  if (!is_in_decimal_range(number))
    return false;
  for (int decimals = 0; decimals < 19; decimals++, power *= 10) {
    double digits = rint(magnitude * power);
    if (digits >= 1e15)
      return false;
    if (digits / power != magnitude) /* of two exact numbers, so it is what the decimal reads as */
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
  char scientific[FLOAT_TEXT_SIZE];
  if (short_decimal_format(number, text))
    return text;
  int precision = is_in_decimal_range(number) ? 16 : 1; /* up to 15 would have been found above */
  while (!digits_read_back(number, precision, scientific))
    precision++;
  int exponent = (int)strtol(strchr(scientific, 'e') + 1, NULL, 10);
  if (exponent >= -4 && exponent < 16) {
    int decimals = precision - 1 - exponent;
    snprintf(text, FLOAT_TEXT_SIZE, "%.*f", decimals > 1 ? decimals : 1, number);
  } else {
    snprintf(text, FLOAT_TEXT_SIZE, "%s", scientific);
  }
  return text;
}

/* The unlocked forms: a release of 50,000 winners is some 10 MB, and a lock a byte would be most of
 * the time. */
static void string_write(FILE *out, const char *text, size_t length) {
  putc_unlocked('"', out);
  size_t plain = 0; /* start of the run that needs no escape */
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x20 && c != '"' && c != '\\')
      continue;
    fwrite_unlocked(text + plain, 1, i - plain, out);
    plain = i + 1;
    if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fprintf(out, "\\%c", c);
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
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)object, name, value)
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
  size_t index;
  json_t *element;
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    object_write(out, value);
    break;
  case JSON_ARRAY:
    putc_unlocked('[', out);
    json_array_foreach (value, index, element) {
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
