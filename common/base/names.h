/* Names in messages: cut to a length that fits, without characters that drive terminals, and the
 * known name nearest to a mistyped one.
 *
 * Memory: results are borrowed from the arguments, unless stated otherwise. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_NAMES_H
#define WAVETUNE_COMMON_BASE_NAMES_H

#include "common/base/error.h"

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
