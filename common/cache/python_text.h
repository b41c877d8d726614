/* Texts as CPython writes them, byte for byte: what the caches of Python's tools hold, and what
 * their hashes are made of.
 *
 * A text outside ASCII has no repr here: what Python escapes of it depends on the Unicode tables of
 * its version.
 *
 * Memory: results are the caller's. Threads: pure functions; a stream belongs to one thread. */
#ifndef WAVETUNE_COMMON_CACHE_PYTHON_TEXT_H
#define WAVETUNE_COMMON_CACHE_PYTHON_TEXT_H

#include "common/space/value.h"

/* str(): None, True, 64, 0.1, and a string as it is. The same as value_format(value, false). */
must_check char *python_str(struct value value);

/* repr(): a string quoted as Python quotes it. False for a string outside ASCII. */
must_check bool python_repr(struct value value, char **ret_text, struct error *error);

/* repr() of a tuple: "()", "(1,)", "(1, 'a')". */
must_check bool python_tuple_repr(const struct value *values, size_t n, char **ret_text,
                                  struct error *error);

/* The value whose str() is exactly `text`, when it is None, a bool, an int of 64 bits or a finite
 * float; else the text as a string, which is borrowed. So python_str(python_value(text)) is the
 * text, always. */
struct value python_value(const char *text);

/* The elements of a tuple of strings as its repr has them: "('16', 'torch.float16')". Anything else
 * is refused, with the column (1-based): other elements, other spacing, escapes that repr would not
 * write, more than n_max elements. *ret_elements is an array of *ret_n owned strings; free them
 * with strings_free. */
must_check bool python_string_tuple_parse(const char *text, size_t n_max, char ***ret_elements,
                                          size_t *ret_n, struct error *error);
void strings_free(char **strings, size_t n);

/* json.dump(value, indent=indent, ensure_ascii=True), members in the object's own order; indent 0
 * stands for None: ", " and
 * ": " between what stays on one line. */
void python_json_write(FILE *out, const json_t *value, unsigned indent);
must_check char *python_json(const json_t *value, unsigned indent, size_t *ret_size);

/* Pieces of the same, for what is not built as a tree: a quoted string with its escapes. */
void python_json_write_string(FILE *out, const char *text);

#endif
