/* Allocation that aborts on failure, monotonic time, and die(). */
#include "common/base/base.h"

#include <stdarg.h>
#include <time.h>

#include "common/base/log.h"

void die(const char *format, ...) {
  va_list arguments;
  char message[1024];
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);

  if (log_format_now() == LOG_FORMAT_JSON)
    log_error("fatal: %s", message);
  else
    fprintf(stderr, "fatal: %s\n", message);
  abort();
}

static void *not_null(void *pointer, size_t size) {
  if (!pointer)
    die("out of memory for %zu bytes", size);
  return pointer;
}

void *xmalloc(size_t size) { return not_null(malloc(size ? size : 1), size); }

static size_t product(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes))
    die("out of memory for %zu times %zu bytes", count, size);
  return bytes;
}

void *xcalloc(size_t count, size_t size) {
  size_t bytes = product(count, size);
  return not_null(calloc(1, bytes ? bytes : 1), bytes);
}

void *xreallocarray(void *pointer, size_t count, size_t size) {
  size_t bytes = product(count, size);
  return not_null(realloc(pointer, bytes ? bytes : 1), bytes);
}

char *xstrdup(const char *text) { return not_null(strdup(text), strlen(text)); }

char *xstrndup(const char *text, size_t length) { return not_null(strndup(text, length), length); }

char *xasprintf(const char *format, ...) {
  va_list arguments;
  char *text = NULL;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  if (length < 0)
    die("out of memory for a formatted string");
  return text;
}

char *shell_quote(const char *text) {
  char *quoted = xmalloc(4 * strlen(text) + 3), *to = quoted;
  *to++ = '\'';
  for (; *text; text++)
    to = *text == '\'' ? stpcpy(to, "'\\''") : (*to = *text, to + 1);
  stpcpy(to, "'");
  return quoted;
}

void text_append(char **text, const char *format, ...) {
  char *more = NULL;
  va_list arguments;
  va_start(arguments, format);
  ALWAYS(vasprintf(&more, format, arguments) >= 0);
  va_end(arguments);

  char *before = *text;
  *text = xasprintf("%s%s", before, more);
  free(before);
  free(more);
}

void *xmemdup(const void *bytes, size_t size) {
  void *copy = xmalloc(size);
  if (size)
    memcpy(copy, bytes, size);
  return copy;
}

int64_t clock_monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
