/* Errors, and the names in their messages.
 *
 * Messages quote input and are cut to size, perhaps in the middle of a character. They are sent as
 * JSON, which must be UTF-8, so invalid bytes become '?'. Control characters become '?' too,
 * because terminals execute some of them, but not line breaks and tabs, which messages of compilers
 * contain. */
#include "common/base/error.h"

#include <ctype.h>
#include <stdarg.h>

#define SUGGESTED_MAX 6

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
size_t utf8_character_size(const char *text, size_t length) {
  const unsigned char *bytes = (const unsigned char *)text;
  unsigned char first = bytes[0], low = 0x80, high = 0xbf;
  size_t size = first < 0x80   ? 1
                : first < 0xc2 ? 0
                : first < 0xe0 ? 2
                : first < 0xf0 ? 3
                : first < 0xf5 ? 4
                               : 0;

  if (first == 0xe0)
    low = 0xa0;
  else if (first == 0xed)
    high = 0x9f;
  else if (first == 0xf0)
    low = 0x90;
  else if (first == 0xf4)
    high = 0x8f;

  for (size_t i = 1; i < size; i++) {
    if (i >= length || bytes[i] < low || bytes[i] > high)
      return 0;
    low = 0x80;
    high = 0xbf;
  }
  return size;
}

bool utf8_is_control(const char *text, size_t size) {
  const unsigned char *c = (const unsigned char *)text;
  bool is_c1 = size == 2 && c[0] == 0xc2 && c[1] < 0xa0;
  bool is_separator = size == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9);
  return c[0] < 0x20 || c[0] == 0x7f || is_c1 || is_separator;
}

size_t utf8_cut(const char *text, size_t length, size_t most) {
  if (length <= most)
    return length;
  while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
    most--;
  return most;
}

static void text_make_plain(char *text) {
  while (*text) {
    size_t size = utf8_character_size(text, SIZE_MAX);
    if (!size || (utf8_is_control(text, size) && *text != '\n' && *text != '\t')) {
      size = size ? size : 1;
      memset(text, '?', size);
    }
    text += size;
  }
}

bool error_of_at(struct error *error, enum error_kind kind, const char *pointer, const char *format,
                 ...) {
  va_list arguments;
  error->kind = kind;
  snprintf(error->pointer, sizeof error->pointer, "%s", pointer);

  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  text_make_plain(error->pointer);
  text_make_plain(error->message);
  return false;
}

bool error_become(struct error *error, enum error_kind kind) {
  error->kind = kind;
  return false;
}

static bool text_prefix(char *text, size_t size, const char *prefix) {
  cleanup_free char *old = xstrdup(text);
  snprintf(text, size, "%s%s", prefix, old);
  text_make_plain(text);
  return false;
}

bool error_prefix(struct error *error, const char *format, ...) {
  char prefix[sizeof error->message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(prefix, sizeof prefix, format, arguments);
  va_end(arguments);
  return text_prefix(error->message, sizeof error->message, prefix);
}

bool error_pointer_prefix(struct error *error, const char *prefix) {
  return text_prefix(error->pointer, sizeof error->pointer, prefix);
}

bool error_append(struct error *error, const char *format, ...) {
  size_t used = strlen(error->message);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message + used, sizeof error->message - used, format, arguments);
  va_end(arguments);
  text_make_plain(error->message + used);
  return false;
}

char *name_cut(const char *name, size_t length, char text[NAME_TEXT_SIZE]) {
  size_t fits = utf8_cut(name, length, NAME_TEXT_SIZE - 4);
  snprintf(text, NAME_TEXT_SIZE, "%.*s%s", (int)fits, name, fits < length ? "..." : "");
  return text;
}

char *name_plain(const char *text, size_t length) {
  char *copy = xstrndup(text, length);
  for (char *c = copy; *c; c++)
    if (*c < ' ' || *c > '~')
      *c = '?';
  return copy;
}

/* The Levenshtein distance, where an edit costs 2 and a change of case 1. */
static unsigned distance(const char *a, size_t n_a, const char *b, size_t n_b) {
  unsigned row[NAME_TEXT_SIZE];
  for (size_t j = 0; j <= n_b; j++)
    row[j] = (unsigned)(2 * j);

  for (size_t i = 1; i <= n_a; i++) {
    unsigned diagonal = row[0];
    row[0] = (unsigned)(2 * i);
    for (size_t j = 1; j <= n_b; j++) {
      unsigned char x = (unsigned char)a[i - 1], y = (unsigned char)b[j - 1];
      unsigned replaced = diagonal + (x == y ? 0 : tolower(x) == tolower(y) ? 1 : 2);
      diagonal = row[j];
      unsigned inserted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 2;
      row[j] = replaced < inserted ? replaced : inserted;
    }
  }
  return row[n_b];
}

const char *name_nearest(const char *name, const char *const *names, size_t n_names) {
  size_t length = strlen(name);
  const char *nearest = NULL;

  if (length >= NAME_TEXT_SIZE)
    return NULL;

  /* A typing error has at most length / 3 + 1 edits. */
  unsigned least = (unsigned)(3 + 2 * length / 3);
  for (size_t i = 0; i < n_names; i++) {
    size_t n = strlen(names[i]);
    unsigned d = n < NAME_TEXT_SIZE ? distance(name, length, names[i], n) : least;
    if (d < least && d < 2 * length) {
      nearest = names[i];
      least = d;
    }
  }
  return nearest;
}

void error_suggest(struct error *error, const char *name, const char *const *names,
                   size_t n_names) {
  const char *nearest = name_nearest(name, names, n_names);
  if (nearest) {
    error_append(error, "; did you mean \"%s\"?", nearest);
    return;
  }

  for (size_t i = 0; i < n_names && i < SUGGESTED_MAX; i++)
    error_append(error, "%s%s", i ? ", " : "; known: ", NAME_CUT(names[i]));
  if (n_names > SUGGESTED_MAX)
    error_append(error, ", …");
}
