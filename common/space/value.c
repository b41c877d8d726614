/* Values: comparison, JSON and Python's text of them. */
#include "common/space/expr.h"

#include <ctype.h>

int value_compare(struct value a, struct value b) {
  if (a.type != b.type)
    return a.type < b.type ? -1 : 1;

  switch (a.type) {
  case VALUE_NONE:
    return 0;
  case VALUE_BOOL:
    return (int)a.boolean - (int)b.boolean;
  case VALUE_INT:
    return (a.integer > b.integer) - (a.integer < b.integer);
  case VALUE_FLOAT:
    return (a.real > b.real) - (a.real < b.real);
  case VALUE_STRING:
    return strcmp(a.string, b.string);
  }
  die("value_compare: type %d", (int)a.type);
}

bool value_equal(struct value a, struct value b) { return value_compare(a, b) == 0; }

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
  json_t *json = value.type == VALUE_NONE    ? json_null()
                 : value.type == VALUE_BOOL  ? json_boolean(value.boolean)
                 : value.type == VALUE_INT   ? json_integer(value.integer)
                 : value.type == VALUE_FLOAT ? json_real(value.real)
                                             : json_string(value.string);
  ALWAYS(json != NULL);
  return json;
}

static const char escaped[] = "\\'\"\n\r\t", escape_letters[] = "\\'\"nrt";

/* Python's repr of a string: single quotes unless only those occur inside. Characters outside ASCII
 * are not escaped. */
static char *string_quote(const char *string) {
  char quote = strchr(string, '\'') && !strchr(string, '"') ? '"' : '\'';
  size_t length = strlen(string);

  ALWAYS(length < SIZE_MAX / 4 - 4);
  char *text = xmalloc(4 * length + 3), *out = text;
  *out++ = quote;
  for (const char *c = string; *c; c++) {
    const char *known = strchr(escaped, *c);
    bool is_other_quote = (*c == '\'' || *c == '"') && *c != quote;
    if (known && !is_other_quote)
      out += sprintf(out, "\\%c", escape_letters[known - escaped]);
    else if ((unsigned char)*c < 0x20 || *c == 0x7f)
      out += sprintf(out, "\\x%02x", (unsigned char)*c);
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
    const char *known = at[1] ? strchr(escape_letters, at[1]) : NULL;
    if (known) {
      *out++ = escaped[known - escape_letters];
      at += 2;
    } else if (at[1] == 'x' && at[2] >= '0' && at[2] <= '7' && isxdigit((unsigned char)at[3]) &&
               strncmp(at + 2, "00", 2) != 0) {
      const char digits[] = {at[2], at[3], '\0'};
      *out++ = (char)strtol(digits, NULL, 16);
      at += 4;
    } else {
      return error_set(
          error,
          "the string holds an unknown escape; write \\\\ \\' \\\" \\n \\r \\t or \\x01 to \\x7f");
    }
  }

  *out = '\0';
  *ret_length = (size_t)(at + 1 - text);
  *ret_string = TAKE(string);
  return true;
}
