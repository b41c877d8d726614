/* Python's str, repr and json.dump. Pure functions, any thread; results are the caller's. */
#include "common/cache/python_text.h"

#include <math.h>

char *python_str(struct value value) { return value_format(value, false); }

bool python_repr(struct value value, char **ret_text, struct error *error) {
  if (value.type == VALUE_STRING) {
    for (const char *c = value.string; *c; c++) {
      if ((unsigned char)*c >= 0x80)
        return error_set(
            error,
            "\"%.80s\" has characters outside ASCII, whose repr is not the same in every Python",
            value.string);
    }
  }
  *ret_text = value_format(value, true);
  return true;
}

bool python_tuple_repr(const struct value *values, size_t n, char **ret_text, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  bool ok = true;
  putc_unlocked('(', out);
  for (size_t i = 0; i < n && ok; i++) {
    cleanup_free char *element = NULL;
    if (i)
      fputs_unlocked(", ", out);
    ok = python_repr(values[i], &element, error);
    if (ok)
      fputs_unlocked(element, out);
  }
  fputs_unlocked(n == 1 ? ",)" : ")", out);
  ALWAYS(fclose(out) == 0);
  if (ok)
    *ret_text = TAKE(text);
  return ok;
}

static bool value_prints_as(struct value value, const char *text) {
  cleanup_free char *printed = python_str(value);
  return strcmp(printed, text) == 0;
}

struct value python_value(const char *text) {
  if (strcmp(text, "None") == 0)
    return value_none();
  if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0)
    return value_bool(text[0] == 'T');
  /* strtod reads more than Python prints: white space, hexadecimal, "infinity". */
  if (!text[0] || text[strspn(text, "0123456789+-.e")])
    return value_string(text);
  char *end;
  if (!text[strspn(text, "0123456789-")]) {
    struct value integer = value_int(strtoll(text, &end, 10));
    return !*end && value_prints_as(integer, text) ? integer : value_string(text);
  }
  double real = strtod(text, &end);
  if (*end || !isfinite(real) || strlen(text) >= FLOAT_TEXT_SIZE)
    return value_string(text);
  struct value number = value_float(real);
  return value_prints_as(number, text) ? number : value_string(text);
}

void strings_free(char **strings, size_t n) {
  for (size_t i = 0; i < n; i++)
    free(strings[i]);
  free(strings);
}

struct strings {
  size_t n, capacity;
  char **all;
};

static void strings_release(struct strings *strings) { strings_free(strings->all, strings->n); }

static bool refuse_tuple(const char *text, const char *at, const char *why, struct error *error) {
  return error_set(error, "the key %.200s is no tuple of strings: column %zu %s", text,
                   (size_t)(at - text) + 1, why);
}

/* One element, with the quotes and escapes that repr writes and no others: read and written again
 * it is the same. Text outside ASCII may stand there as it is. */
static bool element_take(const char *text, const char **at, struct strings *strings,
                         struct error *error) {
  struct error why;
  size_t length;
  if (**at != '\'' && **at != '"')
    return refuse_tuple(text, *at, "does not begin a string", error);
  GROW(strings->all, strings->n, strings->capacity);
  if (!value_unquote(*at, &strings->all[strings->n], &length, &why))
    return refuse_tuple(text, *at, "begins no whole string", error);
  const char *string = strings->all[strings->n++];
  cleanup_free char *again = value_format(value_string(string), true);
  if (strlen(again) != length || memcmp(again, *at, length) != 0)
    return refuse_tuple(text, *at, "is not quoted as Python quotes it", error);
  *at += length;
  return true;
}

bool python_string_tuple_parse(const char *text, size_t n_max, char ***ret_elements, size_t *ret_n,
                               struct error *error) {
  __attribute__((cleanup(strings_release))) struct strings strings = {0};
  const char *at = text;
  if (*at != '(')
    return refuse_tuple(text, at, "has no \"(\"", error);
  at++;
  while (*at != ')') {
    if (strings.n && !string_starts(at, ", "))
      return refuse_tuple(text, at, "has no \", \" and no \")\"", error);
    at += strings.n ? 2 : 0;
    if (strings.n == n_max)
      return refuse_tuple(text, at, "is behind the largest number of elements", error);
    if (!element_take(text, &at, &strings, error))
      return false;
    if (strings.n == 1 && string_starts(at, ",)"))
      at++;
    else if (strings.n == 1 && *at == ')')
      return refuse_tuple(text, at, "lacks the \",\" of a tuple of one", error);
  }
  if (at[1])
    return refuse_tuple(text, at + 1, "has more behind the tuple", error);
  *ret_elements = strings.all;
  *ret_n = strings.n;
  strings = (struct strings){0};
  return true;
}

/* The code point at *at, which is moved behind it; the text is UTF-8, as jansson's always is. */
static uint32_t code_point_next(const char **at) {
  unsigned char first = (unsigned char)*(*at)++;
  int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  uint32_t point = more ? first & (0x3fu >> more) : first;
  for (; more && (**at & 0xc0) == 0x80; more--)
    point = point << 6 | ((unsigned char)*(*at)++ & 0x3f);
  return point;
}

void python_json_write_string(FILE *out, const char *text) {
  static const char short_escapes[] =
      "\"\"\\\\\nn\rr\tt\ff\bb"; /* pairs: the character, what stands for it */
  putc_unlocked('"', out);
  while (*text) {
    size_t plain = 0;
    while (text[plain] >= ' ' && text[plain] <= '~' && text[plain] != '"' && text[plain] != '\\')
      plain++;
    fwrite_unlocked(text, 1, plain, out);
    text += plain;
    if (!*text)
      break;
    uint32_t point = code_point_next(&text);
    size_t i = 0;
    while (short_escapes[i] && (uint32_t)short_escapes[i] != point)
      i += 2;
    if (short_escapes[i])
      fprintf(out, "\\%c", short_escapes[i + 1]);
    else if (point < 0x10000)
      fprintf(out, "\\u%04x", point);
    else
      fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10), 0xdc00 + (point & 0x3ff));
  }
  putc_unlocked('"', out);
}

static void line_write(FILE *out, unsigned indent, unsigned depth) {
  putc_unlocked('\n', out);
  for (unsigned i = 0; i < indent * depth; i++)
    putc_unlocked(' ', out);
}

static void value_write(FILE *out, const json_t *value, unsigned indent, unsigned depth);

static void separator_write(FILE *out, bool is_first, unsigned indent, unsigned depth) {
  if (!is_first)
    fputs_unlocked(indent ? "," : ", ", out);
  if (indent)
    line_write(out, indent, depth);
}

static void array_write(FILE *out, const json_t *array, unsigned indent, unsigned depth) {
  size_t i;
  json_t *element;
  putc_unlocked('[', out);
  json_array_foreach (array, i, element) {
    separator_write(out, i == 0, indent, depth + 1);
    value_write(out, element, indent, depth + 1);
  }
  if (indent && i)
    line_write(out, indent, depth);
  putc_unlocked(']', out);
}

static void object_write(FILE *out, const json_t *object, unsigned indent, unsigned depth) {
  const char *name;
  json_t *value;
  bool is_first = true;
  putc_unlocked('{', out);
  json_object_foreach ((json_t *)object, name, value) {
    separator_write(out, is_first, indent, depth + 1);
    is_first = false;
    python_json_write_string(out, name);
    fputs_unlocked(": ", out);
    value_write(out, value, indent, depth + 1);
  }
  if (indent && !is_first)
    line_write(out, indent, depth);
  putc_unlocked('}', out);
}

static void value_write(FILE *out, const json_t *value, unsigned indent, unsigned depth) {
  if (json_is_array(value))
    array_write(out, value, indent, depth);
  else if (json_is_object(value))
    object_write(out, value, indent, depth);
  else if (json_is_string(value))
    python_json_write_string(out, json_string_value(value));
  else
    json_canonical_write(out, value); /* null, booleans and numbers: the same text */
}

void python_json_write(FILE *out, const json_t *value, unsigned indent) {
  value_write(out, value, indent, 0);
}

char *python_json(const json_t *value, unsigned indent, size_t *ret_size) {
  char *text = NULL;
  FILE *out = open_memstream(&text, ret_size);
  ALWAYS(out != NULL);
  python_json_write(out, value, indent);
  ALWAYS(fclose(out) == 0);
  return text;
}
