/* Reading canonical JSON (as json_canonical writes it) without making values of it. Between release_scan.c,
 * release_read.c and release.c.
 *
 * What a scan accepts is canonical: a scalar is written as json_canonical would write it. The text ends with a NUL, which
 * is not part of it and which no scan passes. The scanning functions return false on what they do not accept and leave
 * `at` where it was wrong; scan_refuse says it in a sentence.
 *
 * Memory: everything points into the text. Threads: one to a scan. */
#ifndef WAVETUNE_COMMON_CACHE_RELEASE_SCAN_H
#define WAVETUNE_COMMON_CACHE_RELEASE_SCAN_H

#include "common/space/value.h"

struct scan {
  const char *begin, *at, *end; /* *end is NUL */
};

/* A scalar as it stands in the text: the members of its type are set. Strings are not unescaped: `text` is what stands
 * between the quotes. */
struct scalar {
  enum value_type type;
  bool boolean;
  int64_t integer;
  double real;
  const char *text;
  size_t size;
  bool is_plain; /* no escape in the string */
};

/* Takes exactly `literal`. */
bool scan_literal(struct scan *scan, const char *literal);
static inline bool scan_character(struct scan *scan, char character) {
  if (*scan->at != character)
    return false;
  scan->at++;
  return true;
}

must_check bool scan_scalar(struct scan *scan, struct scalar *ret);
must_check bool scan_string(struct scan *scan, struct scalar *ret);
must_check bool scan_number(struct scan *scan, struct scalar *ret);
/* A number without a fraction, 0 to max. */
must_check bool scan_count(struct scan *scan, int64_t max, int64_t *ret);

/* The string of a scalar of type VALUE_STRING, owned by the caller. */
must_check char *scalar_text(const struct scalar *scalar);

/* A new reference; what it stands for is checked already. */
must_check json_t *scalar_to_json(const struct scalar *scalar);

/* The object or array that begins here, by the brackets alone. */
must_check bool scan_span(struct scan *scan, const char **ret_text, size_t *ret_size);

/* "byte 17: expected …" at the pointer; returns false. */
bool scan_refuse(const struct scan *scan, const char *pointer, const char *expected, struct error *error);

#endif
