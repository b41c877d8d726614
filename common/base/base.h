/* What every file of wavetune needs: attributes, ownership by scope, allocation that aborts on
 * failure, strings, monotonic time.
 *
 * Memory: a failed allocation logs and aborts (a supervisor restarts the daemon); no caller handles
 * NULL. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_BASE_H
#define WAVETUNE_COMMON_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define must_check __attribute__((warn_unused_result))
#define printf_like(format_index, first_argument)                                                  \
  __attribute__((format(printf, format_index, first_argument)))
#define no_return __attribute__((noreturn))

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Ownership by scope: `cleanup_free char *text = xstrdup("…");` frees text when its scope ends;
 * `return TAKE(text);` hands it to the caller instead. */
#define TAKE(pointer)                                                                              \
  ({                                                                                               \
    __typeof__(pointer) *take_from_ = &(pointer);                                                  \
    __typeof__(pointer) taken_ = *take_from_;                                                      \
    *take_from_ = NULL;                                                                            \
    taken_;                                                                                        \
  })

/* Frees what a pointer leads to, unless it is NULL, and makes it NULL. */
#define DISCARD(pointer, function)                                                                 \
  do {                                                                                             \
    if (pointer)                                                                                   \
      function(TAKE(pointer));                                                                     \
  } while (0)

/* Defines `static inline void NAME(TYPE *p)`, which releases *p with `function` when it is not
 * NULL. */
#define DEFINE_CLEANUP(type, name, function)                                                       \
  static inline void name(type *pointer_) {                                                        \
    if (*pointer_)                                                                                 \
      function(*pointer_);                                                                         \
  }

/* `cleanup_by(NAME) TYPE variable`: calls NAME with the variable's address when its scope ends. */
#define cleanup_by(function) __attribute__((cleanup(function)))

static inline void cleanup_free_pointer(void *pointer_) { free(*(void **)pointer_); }
#define cleanup_free __attribute__((cleanup(cleanup_free_pointer)))

static inline void cleanup_close_fd(const int *fd) {
  if (*fd >= 0)
    close(*fd);
}
#define cleanup_fd __attribute__((cleanup(cleanup_close_fd)))

DEFINE_CLEANUP(FILE *, cleanup_fclose, fclose)
#define cleanup_file __attribute__((cleanup(cleanup_fclose)))

/* A struct that a callback receives as `void *` starts with `uint32_t magic`; MAGIC_CHECK aborts
 * when the pointer is to another struct or to a freed one. It stays on in release builds: reading
 * another struct could end in a wrong measurement. */
#define MAGIC_CHECK(pointer, expected)                                                             \
  do {                                                                                             \
    if ((pointer) == NULL || (pointer)->magic != (expected))                                       \
      die("%s:%d: not a %s", __FILE__, __LINE__, #expected);                                       \
  } while (0)

/* Logs the message and aborts. For states that cannot occur. */
no_return void die(const char *format, ...) printf_like(1, 2);

/* Logs the expression and aborts if it is false, in every build. For invariants, not for input. */
#define ALWAYS(expression)                                                                         \
  do {                                                                                             \
    if (!(expression))                                                                             \
      die("%s:%d: ALWAYS(%s): a bug; report it: %s", __FILE__, __LINE__, #expression,              \
          WAVETUNE_REPORT_TO);                                                                     \
  } while (0)

/* Abort also when count * size overflows. */
must_check void *xmalloc(size_t size);
must_check void *xcalloc(size_t count, size_t size); /* zeroed */
must_check void *xreallocarray(void *pointer, size_t count, size_t size);
must_check char *xstrdup(const char *text);
must_check char *xstrndup(const char *text, size_t length);
must_check char *xasprintf(const char *format, ...) printf_like(1, 2);
must_check void *xmemdup(const void *bytes, size_t size);

/* The text as one word of a POSIX shell's command line, in single quotes; the caller's. */
must_check char *shell_quote(const char *text);

/* Appends to *text, which the caller owns. */
void text_append(char **text, const char *format, ...) printf_like(2, 3);

/* Grows `array` (of `capacity` elements) so that one can be appended to its first `length`. */
#define GROW(array, length, capacity)                                                              \
  do {                                                                                             \
    if ((length) >= (capacity)) {                                                                  \
      (capacity) = (capacity) ? (capacity) * 2 : 8;                                                \
      (array) = xreallocarray((array), (capacity), sizeof *(array));                               \
    }                                                                                              \
  } while (0)

/* Appends a zeroed element to an array without a capacity, which doubles where its length is a
 * power of two. The value is the element's address. */
#define APPEND(array, length)                                                                      \
  ({                                                                                               \
    if (!((length) & ((length) - 1)))                                                              \
      (array) = xreallocarray((array), (length) ? 2 * (length) : 1, sizeof *(array));              \
    memset(&(array)[length], 0, sizeof *(array));                                                  \
    &(array)[(length)++];                                                                          \
  })

/* Loops over the `n` elements of an array, in their order: `item` points to each. */
#define array_foreach(item, array, n)                                                              \
  for (__typeof__((array) + 0) item = (array), item##_end_ = item + (n); item < item##_end_; item++)

/* The same for an array of a known length. */
#define list_foreach(item, list) array_foreach (item, list, ARRAY_LENGTH(list))

static inline bool string_equal(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}
static inline bool string_starts(const char *text, const char *prefix) {
  while (*prefix)
    if (*text++ != *prefix++)
      return false;
  return true;
}
/* Whether the text is `end` with at least one character before it. */
static inline bool string_ends(const char *text, const char *end) {
  size_t length = strlen(text), size = strlen(end);
  return length > size && strcmp(text + length - size, end) == 0;
}

/* Replaces each of the characters `from`. Returns text. */
static inline char *text_replace(char *text, const char *from, char to) {
  for (char *c = text; *c; c++)
    *c = strchr(from, *c) ? to : *c;
  return text;
}

/* Monotonic time since an arbitrary start, for durations and deadlines on this machine. */
int64_t clock_monotonic_ns(void);
static inline int64_t clock_monotonic_ms(void) { return clock_monotonic_ns() / 1000000; }

#endif
