/* What was wrong with an input, where, and what to do: one sentence for a person and a JSON Pointer
 * for a program.
 *
 * Convention of the whole tree: a function that can refuse its input returns `bool`, takes `struct
 * error *error` last, writes its `ret_` parameters only on success and fills *error only on
 * failure. It does not log. Text that does not fit is cut; bytes that are not UTF-8 become '?', so
 * that JSON can hold every error. Below are the parts of messages too: characters of UTF-8, and
 * names.
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
  ERROR_CONFLICT,        /* another object has that place already */
  ERROR_PRECONDITION,    /* the state is not the one that the caller stated */
  ERROR_UNAUTHENTICATED, /* the caller is not authenticated */
  ERROR_FORBIDDEN,       /* this caller may not do it */
  ERROR_TOO_LARGE,       /* beyond a limit */
  ERROR_RATE,            /* too many requests; try again later */
  ERROR_CONTENTION,      /* another transaction interfered; try again */
  ERROR_UNAVAILABLE,     /* a service that is needed does not answer; try again later */
  ERROR_DEADLINE,        /* it was not done in time, and may be done still */
  ERROR_DAMAGED,         /* stored data is not as it was written; the operator must act */
  ERROR_INTERNAL,        /* a bug, or a database that differs from its migrations */

  /* Of an SQL statement. The function that wrote it translates them; elsewhere they are bugs. */
  ERROR_UNIQUE,    /* a unique index has that row already */
  ERROR_REFERENCE, /* a row refers to one that does not exist, or others refer to it */

  /* Why a client refuses what a server sent. */
  ERROR_TRUNCATED, /* the connection ended in the middle of an answer */
  ERROR_TAMPERED,  /* bytes do not match their digest, or an entry is for something else */
  ERROR_REPLAYED,  /* a channel entry is older than one seen before */
  ERROR_EXPIRED,   /* its time has passed */
  ERROR_UNTRUSTED, /* no valid signature by a trusted key, or not what was requested */
  ERROR_UNUSABLE,  /* valid, but of no use here */

  ERROR_KINDS /* how many there are */
};

struct error {
  enum error_kind kind;
  char pointer[192]; /* RFC 6901, "" for the whole document or where none applies */
  char message[640]; /* one sentence */
};

/* Fills *error and returns false, so that `return error_set(error, "…");` reads well. Without a
 * pointer or a kind they are "" and ERROR_INVALID. */
bool error_of_at(struct error *error, enum error_kind kind, const char *pointer, const char *format,
                 ...) printf_like(4, 5);
#define error_of(error, kind, ...) error_of_at((error), (kind), "", __VA_ARGS__)
#define error_at(error, pointer, ...) error_of_at((error), ERROR_INVALID, (pointer), __VA_ARGS__)
#define error_set(error, ...) error_of_at((error), ERROR_INVALID, "", __VA_ARGS__)

/* Changes the kind; sentence and pointer stay. Returns false. */
bool error_become(struct error *error, enum error_kind kind);

/* Add context that only the caller knows before the message, behind it, or before the pointer. The
 * kind stays. Return false. */
bool error_prefix(struct error *error, const char *format, ...) printf_like(2, 3);
bool error_append(struct error *error, const char *format, ...) printf_like(2, 3);
bool error_pointer_prefix(struct error *error, const char *prefix);

/* Characters */

/* The size of the valid UTF-8 character that the `length` > 0 bytes at `text` begin with (SIZE_MAX:
 * the text ends with a NUL); 0: there is none. */
size_t utf8_character_size(const char *text, size_t length);

/* Whether the valid character drives terminals (C0, DEL, C1) or ends a line for some readers
 * (U+2028, U+2029). */
bool utf8_is_control(const char *text, size_t size);

/* How many of `length` bytes to keep so that at most `most` are left and no character is split. */
size_t utf8_cut(const char *text, size_t length, size_t most);

/* Names in messages */

/* Copies at most 60 bytes of `name` to `text`, never half of a UTF-8 character. Returns text. */
#define NAME_TEXT_SIZE 64
char *name_cut(const char *name, size_t length, char text[NAME_TEXT_SIZE]);

/* A copy of a file's text for messages and JSON: all but printable ASCII becomes '?'. Owned by the
 * caller. */
must_check char *name_plain(const char *text, size_t length);

/* The name nearest to `name` by edits (a change of case counts half), NULL when none is near enough
 * for a slip. */
const char *name_nearest(const char *name, const char *const *names, size_t n_names);

/* Adds to the message of *error the nearest name, else the first of those known. */
void error_suggest(struct error *error, const char *name, const char *const *names, size_t n_names);

#endif
