/* Sets of texts, slices of winners, and Python's str, repr and json.dump. Memory and threads:
 * text.h. */
#include "common/cache/text.h"

#include <math.h>

static struct piece *piece_find(const struct text_set *set, const char *text, uint64_t hash,
                                const char *bytes, size_t size) {
  for (size_t i = hash;; i++) {
    struct piece *piece = &set->pieces[i & (set->capacity - 1)];
    if (!piece->size || (piece->hash == hash && piece->size == size &&
                         memcmp(text + piece->offset, bytes, size) == 0))
      return piece;
  }
}

bool text_set_add(struct text_set *set, const struct text *text, const char *bytes, size_t size,
                  size_t offset) {
  if (2 * set->n >= set->capacity) {
    struct text_set larger = {.n = set->n, .capacity = set->capacity ? 2 * set->capacity : 64};
    larger.pieces = xcalloc(larger.capacity, sizeof *larger.pieces);
    for (size_t i = 0; i < set->capacity; i++)
      if (set->pieces[i].size) /* no two are equal: size 0 finds a free place */
        *piece_find(&larger, NULL, set->pieces[i].hash, NULL, 0) = set->pieces[i];
    free(set->pieces);
    *set = larger;
  }

  uint64_t hash = text_hash(bytes, size);
  struct piece *piece = piece_find(set, text->bytes, hash, bytes, size);
  if (piece->size)
    return false;

  *piece = (struct piece){hash, offset, size};
  set->n++;
  return true;
}

void text_set_clear(struct text_set *set) {
  if (set->capacity)
    memset(set->pieces, 0, set->capacity * sizeof *set->pieces);
  set->n = 0;
}

void text_set_release(struct text_set *set) { free(set->pieces); }

/* The scalars of a canonical array, from behind its '['. */
static void scalars_split(const char *at, struct slice *slices, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *begin = at;
    if (*at == '"') {
      for (at++; *at != '"'; at++)
        at += *at == '\\'; /* skip the escaped character too */
      at++;
    } else {
      at += strcspn(at, ",]");
    }
    slices[i] = (struct slice){begin, (size_t)(at - begin)};
    at++;
  }
}

void winner_key_slices(const struct release_winner *winner, struct slice *slices, size_t n) {
  scalars_split(winner->key + 1, slices, n);
}

/* After the key there are two indices, then the milliseconds in brackets: release_read.c checked
 * that. */
void winner_ms_slices(const struct release_winner *winner, struct slice slices[RELEASE_MS_MAX]) {
  scalars_split(strchr(winner->key + winner->key_size, '[') + 1, slices, winner->n_ms);
}

void text_add_slice_str(struct text *text, struct slice slice) {
  if (slice.bytes[0] == 't') {
    text_add_string(text, "True");
  } else if (slice.bytes[0] == 'f') {
    text_add_string(text, "False");
  } else if (slice.bytes[0] == 'n') {
    text_add_string(text, "None");
  } else if (slice.bytes[0] != '"') {
    text_add(text, slice.bytes, slice.size);
  } else if (!memchr(slice.bytes, '\\', slice.size)) {
    text_add(text, slice.bytes + 1, slice.size - 2);
  } else {
    cleanup_json json_t *string = json_loadb(slice.bytes, slice.size, JSON_DECODE_ANY, NULL);
    ALWAYS(string != NULL);
    text_add(text, json_string_value(string), json_string_length(string));
  }
}

bool python_tuple_repr(const struct value *values, size_t n, char **ret_text, struct error *error) {
  cleanup_text struct text text = {0};
  size_t size;

  text_add_string(&text, "(");
  for (size_t i = 0; i < n; i++) {
    const char *string = values[i].type == VALUE_STRING ? values[i].string : "";
    for (const char *c = string; *c; c++)
      if ((unsigned char)*c >= 0x80)
        return error_set(
            error,
            "\"%.80s\" has characters outside ASCII, whose repr is not the same in every Python",
            string);
    cleanup_free char *element = value_format(values[i], true);
    text_add_string(&text, i ? ", " : "");
    text_add_string(&text, element);
  }

  text_add_string(&text, n == 1 ? ",)" : ")");
  *ret_text = text_finish(&text, &size);
  return true;
}

struct value python_value(const char *text) {
  if (string_equal(text, "None"))
    return value_none();
  if (string_equal(text, "True") || string_equal(text, "False"))
    return value_bool(text[0] == 'T');

  /* strtod reads more than Python prints: white space, hexadecimal, "infinity". */
  if (!text[0] || text[strspn(text, "0123456789+-.e")] || strlen(text) >= FLOAT_TEXT_SIZE)
    return value_string(text);
  char *end;
  bool is_integer = !text[strspn(text, "0123456789-")];
  struct value value =
      is_integer ? value_int(strtoll(text, &end, 10)) : value_float(strtod(text, &end));
  if (*end || (!is_integer && !isfinite(value.real)))
    return value_string(text);

  cleanup_free char *printed = value_format(value, false);
  return string_equal(printed, text) ? value : value_string(text);
}

void strings_release(struct strings *strings) {
  for (size_t i = 0; i < strings->n; i++)
    free(strings->all[i]);
  free(strings->all);
}

static bool tuple_refuse(const char *text, const char *at, const char *why, struct error *error) {
  return error_set(error, "the key %.200s is not a tuple of strings: column %zu %s", text,
                   (size_t)(at - text) + 1, why);
}

bool python_string_tuple_parse(const char *text, size_t n_max, struct strings *ret,
                               struct error *error) {
  struct error why;
  const char *at = text;
  if (*at != '(')
    return tuple_refuse(text, at, "has no \"(\"", error);
  at++;

  while (*at != ')') {
    if (ret->n && !string_starts(at, ", "))
      return tuple_refuse(text, at, "has no \", \" and no \")\"", error);
    at += ret->n ? 2 : 0;
    if (ret->n == n_max)
      return tuple_refuse(text, at, "is one element too many", error);

    /* An element has the quotes and escapes that repr writes and no others: read and written again
     * it is the same. Text outside ASCII is taken as it is. */
    size_t length;
    if (*at != '\'' && *at != '"')
      return tuple_refuse(text, at, "does not begin a string", error);
    GROW(ret->all, ret->n, ret->capacity);
    if (!value_unquote(at, &ret->all[ret->n], &length, &why))
      return tuple_refuse(text, at, "begins no whole string", error);
    cleanup_free char *again = value_format(value_string(ret->all[ret->n++]), true);
    if (strlen(again) != length || memcmp(again, at, length) != 0)
      return tuple_refuse(text, at, "is not quoted as Python quotes it", error);
    at += length;

    if (ret->n == 1 && string_starts(at, ",)"))
      at++;
    else if (ret->n == 1 && *at == ')')
      return tuple_refuse(text, at, "lacks the \",\" of a tuple of one", error);
  }

  return !at[1] || tuple_refuse(text, at + 1, "has more text after the tuple", error);
}

/* The text is UTF-8, as jansson's always is. */
static void string_write(struct text *out, const char *text) {
  static const char short_escapes[] = "\"\"\\\\\nn\rr\tt\ff\bb"; /* pairs: character, its escape */
  text_add_string(out, "\"");

  while (*text) {
    unsigned char first = (unsigned char)*text;
    if (first >= ' ' && first <= '~' && first != '"' && first != '\\') {
      text_add(out, text++, 1);
      continue;
    }

    int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t point = more ? first & (0x3fu >> more) : first;
    for (text++; more > 0; more--)
      point = point << 6 | ((unsigned char)*text++ & 0x3f);
    size_t i = 0;
    while (short_escapes[i] && (uint32_t)short_escapes[i] != point)
      i += 2;
    char escape[16];
    if (short_escapes[i])
      snprintf(escape, sizeof escape, "\\%c", short_escapes[i + 1]);
    else if (point < 0x10000)
      snprintf(escape, sizeof escape, "\\u%04x", point);
    else
      snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10),
               0xdc00 + (point & 0x3ff));
    text_add_string(out, escape);
  }

  text_add_string(out, "\"");
}

static void line_begin(struct text *out, unsigned indent) {
  text_add_string(out, "\n");
  for (unsigned i = 0; i < indent; i++)
    text_add_string(out, " ");
}

/* `line`: the spaces before the line that the value begins in; `indent`: how many more its elements
 * have. */
static void value_write(struct text *out, const json_t *value, unsigned indent, unsigned line) {
  if (json_is_string(value)) {
    string_write(out, json_string_value(value));
    return;
  }

  if (!json_is_array(value) && !json_is_object(value)) {
    cleanup_free char *text = json_canonical(value);
    text_add_string(out, text);
    return;
  }

  bool is_array = json_is_array(value);
  void *member = is_array ? NULL : json_object_iter((json_t *)(uintptr_t)value);
  size_t n = is_array ? json_array_size(value) : json_object_size(value);
  text_add_string(out, is_array ? "[" : "{");

  for (size_t i = 0; i < n; i++) {
    if (i)
      text_add_string(out, indent ? "," : ", ");
    if (indent)
      line_begin(out, line + indent);
    if (is_array) {
      value_write(out, json_array_get(value, i), indent, line + indent);
    } else {
      string_write(out, json_object_iter_key(member));
      text_add_string(out, ": ");
      value_write(out, json_object_iter_value(member), indent, line + indent);
      member = json_object_iter_next((json_t *)(uintptr_t)value, member);
    }
  }

  if (indent && n)
    line_begin(out, line);
  text_add_string(out, is_array ? "]" : "}");
}

char *python_json(const json_t *value, unsigned indent, size_t *ret_size) {
  cleanup_text struct text text = {0};
  value_write(&text, value, indent, 0);
  return text_finish(&text, ret_size);
}
