/* What was wrong with an input, where, and what to do: one sentence for a person and a JSON Pointer for a program.
 *
 * Convention of the whole tree: a function that can refuse its input returns `bool`, takes `struct error *error` last,
 * writes its `ret_` parameters only on success and fills *error only on failure. It does not log.
 * Memory: plain value, no ownership. Text that does not fit is cut, never overrun; bytes
 * that are not UTF-8 become '?', so that an error always travels as JSON. */
#ifndef WAVETUNE_COMMON_BASE_ERROR_H
#define WAVETUNE_COMMON_BASE_ERROR_H

#include "common/base/base.h"

struct error {
  char pointer[192]; /* RFC 6901, "" for the whole document or where none applies */
  char message[640]; /* one sentence: what was wrong, where, what to do */
};

/* Fills *error (pointer "") and returns false, so that `return error_set(error, "…");` reads well. */
bool error_set(struct error *error, const char *format, ...) printf_like(2, 3);

/* The same with a JSON Pointer. */
bool error_at(struct error *error, const char *pointer, const char *format, ...) printf_like(3, 4);

/* Puts `prefix` before the message that is there: context that only the caller knows. Returns false. */
bool error_prefix(struct error *error, const char *format, ...) printf_like(2, 3);

/* Puts `prefix` (a JSON Pointer) before the pointer that is there. Returns false. */
bool error_pointer_prefix(struct error *error, const char *prefix);

#endif
