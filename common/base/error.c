/* Filling and widening an error. Plain values; any thread.
 *
 * Messages quote input and are cut to size, in places in the middle of a character, and errors
 * travel as JSON, which must be UTF-8: what is not is replaced by '?'. So are control characters:
 * errors are printed on terminals, which take some for commands, and quote what servers and files
 * say. Line breaks and tabs stay, which compilers' messages have. */
#include "common/base/error.h"

#include <stdarg.h>

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

/* Of ASCII, and U+0080 to U+009F. */
static bool is_control(const unsigned char *text) {
  return (text[0] < 0x20 && text[0] != '\n' && text[0] != '\t') || text[0] == 0x7f ||
         (text[0] == 0xc2 && text[1] < 0xa0);
}

static void text_make_plain(char *text) {
  while (*text) {
    size_t size = utf8_character_size(text, SIZE_MAX);
    if (!size) {
      *text = '?';
      size = 1;
    } else if (is_control((const unsigned char *)text)) {
      memset(text, '?', size);
    }
    text += size;
  }
}

static printf_like(2, 0) void message_write(struct error *error, const char *format,
                                            va_list arguments) {
  vsnprintf(error->message, sizeof error->message, format, arguments);
  text_make_plain(error->message);
}

static printf_like(4, 0) bool error_write(struct error *error, enum error_kind kind,
                                          const char *pointer, const char *format,
                                          va_list arguments) {
  error->kind = kind;
  snprintf(error->pointer, sizeof error->pointer, "%s", pointer);
  text_make_plain(error->pointer);
  message_write(error, format, arguments);
  return false;
}

bool error_set(struct error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error_write(error, ERROR_INVALID, "", format, arguments);
  va_end(arguments);
  return false;
}

bool error_of(struct error *error, enum error_kind kind, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error_write(error, kind, "", format, arguments);
  va_end(arguments);
  return false;
}

bool error_at(struct error *error, const char *pointer, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error_write(error, ERROR_INVALID, pointer, format, arguments);
  va_end(arguments);
  return false;
}

bool error_of_at(struct error *error, enum error_kind kind, const char *pointer, const char *format,
                 ...) {
  va_list arguments;
  va_start(arguments, format);
  error_write(error, kind, pointer, format, arguments);
  va_end(arguments);
  return false;
}

bool error_become(struct error *error, enum error_kind kind) {
  error->kind = kind;
  return false;
}

bool error_prefix(struct error *error, const char *format, ...) {
  char old[sizeof error->message];
  memcpy(old, error->message, sizeof old);
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof error->message)
    snprintf(error->message + length, sizeof error->message - (size_t)length, "%s", old);
  text_make_plain(error->message);
  return false;
}

bool error_pointer_prefix(struct error *error, const char *prefix) {
  char old[sizeof error->pointer];
  memcpy(old, error->pointer, sizeof old);
  int length = snprintf(error->pointer, sizeof error->pointer, "%s", prefix);
  if (length >= 0 && (size_t)length < sizeof error->pointer)
    snprintf(error->pointer + length, sizeof error->pointer - (size_t)length, "%s", old);
  text_make_plain(error->pointer);
  return false;
}
