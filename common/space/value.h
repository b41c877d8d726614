/* A value of the expression language and of keys and configs: None, bool, 64-bit int, float (keys
 * only) or string.
 *
 * Memory: a value borrows its string. Threads: plain value. */
#ifndef WAVETUNE_COMMON_SPACE_VALUE_H
#define WAVETUNE_COMMON_SPACE_VALUE_H

#include "common/base/json.h"

enum value_type { VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_FLOAT, VALUE_STRING };

struct value {
  enum value_type type;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const char *string;
  };
};

static inline struct value value_none(void) { return (struct value){.type = VALUE_NONE}; }
static inline struct value value_bool(bool boolean) {
  return (struct value){VALUE_BOOL, {.boolean = boolean}};
}
static inline struct value value_int(int64_t integer) {
  return (struct value){VALUE_INT, {.integer = integer}};
}
static inline struct value value_float(double real) {
  return (struct value){VALUE_FLOAT, {.real = real}};
}
static inline struct value value_string(const char *string) {
  return (struct value){VALUE_STRING, {.string = string}};
}

/* An order by type, then by content: True is not 1 here, as it is in expressions. */
int value_compare(struct value a, struct value b);
bool value_equal(struct value a, struct value b);

/* Borrows the string from `json`. Arrays and objects are refused. */
must_check bool value_from_json(const json_t *json, struct value *ret, struct error *error);
must_check json_t *value_to_json(struct value value);

/* As Python prints it: None, True, 64, 0.1, 'text' when `quoted` else text. Owned by the caller.
 * What is printed quoted reads back as an expression (floats apart, which expressions do not
 * have). */
must_check char *value_format(struct value value, bool quoted);

/* Reads the quoted string that `text` begins with, as Python reads it: '…' or "…" with the escapes
 * \\ \' \" \n \r \t and \x01 to \x7f. *ret_string is owned by the caller; *ret_length is how many
 * bytes of `text` it took. */
must_check bool value_unquote(const char *text, char **ret_string, size_t *ret_length,
                              struct error *error);

#endif
