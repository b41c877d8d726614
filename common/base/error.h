/* An error: one sentence for a person about what was wrong, where, and what to do, and a JSON
 * Pointer for a program. Functions for UTF-8 characters and for names in messages.
 *
 * Convention of the whole tree: a function that can refuse its input returns `bool`, takes `struct
 * error *error` last, writes its `ret_` parameters only on success and fills *error only on
 * failure. It does not log. Text that does not fit is cut; bytes that are not UTF-8 become '?', so
 * that JSON can hold every error.
 *
 * Memory: an error is a plain value; names in results are borrowed from the arguments, unless
 * stated otherwise. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_ERROR_H
#define WAVETUNE_COMMON_BASE_ERROR_H

#include "common/base/base.h"

/* What a caller may do about it. The HTTP status and the exit code of a program follow from the
 * kind alone (common/program/error_codes.h). */
enum error_kind {
  ERROR_INVALID,         /* the input is wrong; the kind of error_set and error_at */
  ERROR_MISSING,         /* what the input refers to does not exist */
  ERROR_CONFLICT,        /* an existing object is in the way */
  ERROR_PRECONDITION,    /* the state is not the one that the caller stated */
  ERROR_UNAUTHENTICATED, /* the caller is not authenticated */
  ERROR_FORBIDDEN,       /* this caller may not do it */
  ERROR_TOO_LARGE,       /* larger than a limit */
  ERROR_RATE,            /* too many requests; try again later */
  ERROR_CONTENTION,      /* another transaction interfered; try again */
  ERROR_UNAVAILABLE,     /* a service that is needed does not answer; try again later */
  ERROR_DEADLINE,        /* it was not done in time; it may still be done later */
  ERROR_DAMAGED,         /* stored data is not as it was written; the operator must act */
  ERROR_INTERNAL,        /* a bug, or a database that differs from its migrations */

  /* Of an SQL statement. The function that runs it changes them to another kind; anywhere else they
   * are bugs. */
  ERROR_UNIQUE,    /* the row exists already, by a unique index */
  ERROR_REFERENCE, /* a row refers to one that does not exist, or others refer to it */

  /* Why a client refuses what a server sent. */
  ERROR_TRUNCATED, /* the connection ended in the middle of an answer */
  ERROR_TAMPERED,  /* bytes do not match their digest, or an entry is for something else */
  ERROR_REPLAYED,  /* a channel entry is older than one seen before */
  ERROR_EXPIRED,   /* its time has passed */
  ERROR_UNTRUSTED, /* no valid signature by a trusted key, or not what was requested */
  ERROR_UNUSABLE,  /* valid, but this client cannot use it */

  ERROR_KINDS /* how many there are */
};

struct error {
  enum error_kind kind;
  char pointer[192]; /* RFC 6901, "" for the whole document or where none applies */
  char message[640]; /* one sentence */
};

/* Fills *error and returns false, for `return error_set(error, "…");`. The pointer is "" and the
 * kind ERROR_INVALID where a macro does not take them. */
bool error_of_at(struct error *error, enum error_kind kind, const char *pointer, const char *format,
                 ...) printf_like(4, 5);
#define error_of(error, kind, ...) error_of_at((error), (kind), "", __VA_ARGS__)
#define error_at(error, pointer, ...) error_of_at((error), ERROR_INVALID, (pointer), __VA_ARGS__)
#define error_set(error, ...) error_of_at((error), ERROR_INVALID, "", __VA_ARGS__)

/* Changes the kind only. Returns false. */
bool error_become(struct error *error, enum error_kind kind);

/* Add context that only the caller has: before the message, behind it, or before the pointer.
 * Return false. */
bool error_prefix(struct error *error, const char *format, ...) printf_like(2, 3);
bool error_append(struct error *error, const char *format, ...) printf_like(2, 3);
bool error_pointer_prefix(struct error *error, const char *prefix);

/* Characters */

/* The size of the UTF-8 character at `text`, 0 when it is not valid. `length` is the number of
 * bytes that may be read, at least 1, or SIZE_MAX for a text that ends with a NUL. */
size_t utf8_character_size(const char *text, size_t length);

/* Whether the valid character controls terminals (C0, DEL, C1) or ends a line in some programs
 * (U+2028, U+2029). */
bool utf8_is_control(const char *text, size_t size);

/* How many of `length` bytes to keep so that at most `most` are left and no character is split. */
size_t utf8_cut(const char *text, size_t length, size_t most);

/* Names in messages */

/* Copies at most 60 bytes of `name` to `text`, as whole UTF-8 characters, with "..." behind them if
 * it is longer. Returns text. */
#define NAME_TEXT_SIZE 64
char *name_cut(const char *name, size_t length, char text[NAME_TEXT_SIZE]);
/* The same in memory of the block that has the expression. */
#define NAME_CUT_OF(name, length) name_cut((name), (length), (char[NAME_TEXT_SIZE]){0})
#define NAME_CUT(name) NAME_CUT_OF((name), strlen(name))

/* A copy of a text from a file, for messages and JSON: each byte that is not printable ASCII
 * becomes '?'. Owned by the caller. */
must_check char *name_plain(const char *text, size_t length);

/* The one of `names` with the fewest edits from `name` (a change of case counts half); NULL if each
 * differs by more than a typing error. */
const char *name_nearest(const char *name, const char *const *names, size_t n_names);

/* Adds the nearest name to the message of *error or, where there is none, the first of `names`. */
void error_suggest(struct error *error, const char *name, const char *const *names, size_t n_names);

#endif
