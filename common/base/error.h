/* What was wrong with an input, where, and what to do: one sentence for a person and a JSON Pointer
 * for a program.
 *
 * Convention of the whole tree: a function that can refuse its input returns `bool`, takes `struct
 * error *error` last, writes its `ret_` parameters only on success and fills *error only on
 * failure. It does not log. Memory: plain value, no ownership. Text that does not fit is cut, never
 * overrun; bytes that are not UTF-8 become '?', so that an error always travels as JSON. */
#ifndef WAVETUNE_COMMON_BASE_ERROR_H
#define WAVETUNE_COMMON_BASE_ERROR_H

#include "common/base/base.h"

/* What a caller may do about it. It is the only thing that tells failures apart: the HTTP status
 * and the exit code of a program follow from it (common/program/error_codes.h). */
enum error_kind {
  ERROR_INVALID,         /* the input is wrong: what error_set and error_at say */
  ERROR_MISSING,         /* what it refers to is not there */
  ERROR_CONFLICT,        /* something else has that place already */
  ERROR_PRECONDITION,    /* it is not as the caller said that it is */
  ERROR_UNAUTHENTICATED, /* the caller is not authenticated */
  ERROR_FORBIDDEN,       /* not by this caller */
  ERROR_TOO_LARGE,       /* beyond a limit */
  ERROR_RATE,            /* too often; later it may do */
  ERROR_CONTENTION,      /* another transaction was in the way: the same once more may do */
  ERROR_UNAVAILABLE,     /* what is needed is away; later it may do */
  ERROR_DEADLINE,        /* it was not done in time, and may or may not have been done since */
  ERROR_DAMAGED,         /* something stored is not as it was written: for the operator */
  ERROR_INTERNAL,        /* a bug, or a database that is not as its migrations say */

  /* Of a statement, for the function that wrote it to say what they mean; elsewhere they are
   * bugs. */
  ERROR_UNIQUE,    /* a unique index has that row already */
  ERROR_REFERENCE, /* a row refers to one that is not there, or others refer to it */

  /* Why what a server sent was not taken. */
  ERROR_TRUNCATED, /* the connection ended in the middle of an answer */
  ERROR_TAMPERED,  /* other bytes than their digest says, or for something else than its entry
                      says */
  ERROR_REPLAYED,  /* an older channel entry than one that was seen */
  ERROR_EXPIRED,   /* past its time */
  ERROR_UNTRUSTED, /* no valid signature by a trusted key, or not what was asked for */
  ERROR_UNUSABLE,  /* as it should be, and of no use here */

  ERROR_KINDS /* how many there are */
};

struct error {
  enum error_kind kind;
  char pointer[192]; /* RFC 6901, "" for the whole document or where none applies */
  char message[640]; /* one sentence: what was wrong, where, what to do */
};

/* Fills *error (pointer "") and returns false, so that `return error_set(error, "…");` reads
 * well. */
bool error_set(struct error *error, const char *format, ...) printf_like(2, 3);

/* The same, of another kind than ERROR_INVALID. */
bool error_of(struct error *error, enum error_kind kind, const char *format, ...) printf_like(3, 4);

/* As error_set, with a JSON Pointer. */
bool error_at(struct error *error, const char *pointer, const char *format, ...) printf_like(3, 4);

/* Both. */
bool error_of_at(struct error *error, enum error_kind kind, const char *pointer, const char *format,
                 ...) printf_like(4, 5);

/* Makes it one of another kind; sentence and pointer stay. Returns false. */
bool error_become(struct error *error, enum error_kind kind);

/* Puts `prefix` before the message that is there: context that only the caller knows. The kind
 * stays. Returns false. */
bool error_prefix(struct error *error, const char *format, ...) printf_like(2, 3);

/* Puts `prefix` (a JSON Pointer) before the pointer that is there. Returns false. */
bool error_pointer_prefix(struct error *error, const char *prefix);

/* The bytes of the valid UTF-8 character at `text`, of which there are `length` > 0 (SIZE_MAX: up
 * to a NUL); 0: none. */
size_t utf8_character_size(const char *text, size_t length);

#endif
