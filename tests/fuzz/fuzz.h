/* What fuzz targets share. Threads: one. */
#ifndef WAVETUNE_TESTS_FUZZ_FUZZ_H
#define WAVETUNE_TESTS_FUZZ_FUZZ_H

#include "common/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A refusal has a sentence and, where it has one, a JSON Pointer, both in UTF-8. */
static inline void check_refusal(const struct error *error) {
  cleanup_json json_t *message = json_string(error->message),
                      *pointer = json_string(error->pointer);
  ALWAYS(message && pointer && error->message[0] &&
         (!error->pointer[0] || error->pointer[0] == '/'));
}

/* The next line as a string of its own, so that a sanitizer detects a read of one byte too many. */
static inline char *line_next(const char **at, const char *end) {
  const char *stop = memchr(*at, '\n', (size_t)(end - *at));
  char *line = xstrndup(*at, (size_t)((stop ? stop : end) - *at));
  *at = stop ? stop + 1 : end;
  return line;
}

/* Whether a server accepts the body of POST /v1/leases/ID/results (results_taken.c). */
must_check bool results_taken(const json_t *body, struct error *error);

#endif
