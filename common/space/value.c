/* Values: comparison, JSON and Python's text of them. Threads: any. */
#include "common/space/value.h"

#include "common/base/names.h"

bool value_equal(struct value a, struct value b) {
  if (a.type != b.type)
    return false;
  switch (a.type) {
  case VALUE_NONE:
    return true;
  case VALUE_BOOL:
    return a.boolean == b.boolean;
  case VALUE_INT:
    return a.integer == b.integer;
  case VALUE_FLOAT:
    return a.real == b.real;
  case VALUE_STRING:
    return strcmp(a.string, b.string) == 0;
  }
  die("value_equal: type %d", (int)a.type);
}

bool value_from_json(const json_t *json, struct value *ret, struct error *error) {
  switch (json_typeof(json)) {
  case JSON_NULL:
    *ret = value_none();
    return true;
  case JSON_TRUE:
  case JSON_FALSE:
    *ret = value_bool(json_is_true(json));
    return true;
  case JSON_INTEGER:
    *ret = value_int(json_integer_value(json));
    return true;
  case JSON_REAL:
    *ret = value_float(json_real_value(json));
    return true;
  case JSON_STRING:
    *ret = value_string(json_string_value(json));
    return true;
  default:
    return error_set(error, "a value must be null, a boolean, a number or a string, not %s",
                     json_is_object(json) ? "an object" : "an array");
  }
}

json_t *value_to_json(struct value value) {
  json_t *json = NULL;
  switch (value.type) {
  case VALUE_NONE:
    json = json_null();
    break;
  case VALUE_BOOL:
    json = json_boolean(value.boolean);
    break;
  case VALUE_INT:
    json = json_integer(value.integer);
    break;
  case VALUE_FLOAT:
    json = json_real(value.real);
    break;
  case VALUE_STRING:
    json = json_string(value.string);
    break;
  }
  ALWAYS(json != NULL);
  return json;
}

/* Python's repr of a string: single quotes unless only those occur inside. Characters outside ASCII
 * stay as they
 * are. */
static char *string_quote(const char *string) {
  char quote = strchr(string, '\'') && !strchr(string, '"') ? '"' : '\'';
  size_t length = strlen(string);
  ALWAYS(length < SIZE_MAX / 4 - 4);
  char *text = xmalloc(4 * length + 3), *out = text;
  *out++ = quote;
  for (const char *c = string; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    if (*c == quote || *c == '\\')
      out += sprintf(out, "\\%c", *c);
    else if (*c == '\n' || *c == '\r' || *c == '\t')
      out += sprintf(out, "\\%c", *c == '\n' ? 'n' : *c == '\r' ? 'r' : 't');
    else if (byte < 0x20 || byte == 0x7f)
      out += sprintf(out, "\\x%02x", byte);
    else
      *out++ = *c;
  }
  *out++ = quote;
  *out = '\0';
  return text;
}

char *value_format(struct value value, bool quoted) {
  char number[FLOAT_TEXT_SIZE];
  switch (value.type) {
  case VALUE_NONE:
    return xstrdup("None");
  case VALUE_BOOL:
    return xstrdup(value.boolean ? "True" : "False");
  case VALUE_INT:
    return xasprintf("%lld", (long long)value.integer);
  case VALUE_FLOAT:
    return xstrdup(float_format(value.real, number));
  case VALUE_STRING:
    return quoted ? string_quote(value.string) : xstrdup(value.string);
  }
  die("value_format: type %d", (int)value.type);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The character that the escape at `at` (behind the backslash) stands for, 0 when it is none that
 * is known. */
static char unescape(const char *at, size_t *ret_used) {
  *ret_used = 1;
  switch (*at) {
  case '\\':
  case '\'':
  case '"':
    return *at;
  case 'n':
    return '\n';
  case 'r':
    return '\r';
  case 't':
    return '\t';
  case 'x': {
    int high = hex_digit(at[1]), low = high >= 0 ? hex_digit(at[2]) : -1;
    *ret_used = 3;
    return low >= 0 && high < 8 ? (char)(high * 16 + low) : '\0';
  }
  default:
    return '\0';
  }
}

bool value_unquote(const char *text, char **ret_string, size_t *ret_length, struct error *error) {
  char quote = text[0];
  cleanup_free char *string = xmalloc(strlen(text) + 1);
  char *out = string;
  const char *at = text + 1;
  while (*at != quote) {
    if (*at == '\0' || *at == '\n')
      return error_set(error, "the string has no closing %c", quote);
    if (*at != '\\') {
      *out++ = *at++;
      continue;
    }
    size_t used;
    char c = unescape(at + 1, &used);
    if (!c)
      return error_set(
          error,
          "the string holds an unknown escape; write \\\\ \\' \\\" \\n \\r \\t or \\x01 to \\x7f");
    *out++ = c;
    at += 1 + used;
  }
  *out = '\0';
  *ret_length = (size_t)(at + 1 - text);
  *ret_string = TAKE(string);
  return true;
}
