/* Values, and expressions over them: a safe subset of Python for conditions, shapes, launch
 * geometry, flops and bytes.
 *
 * Values: int (64-bit, every operation checked), bool (an int in arithmetic, as in Python), string,
 * None; keys have floats too. Operators, from loosest: `x if c else y`; or; and; not; `==`, `!=`,
 * `<`, `<=`, `>`, `>=`, in, not in (chained as in Python); `+`, `-`; `*`, `//`, `%`; unary `+`,
 * `-`; `**`. `and`/`or` return an operand and evaluate the right one only when needed. `//`, `%`
 * round as Python's (towards minus infinity). Functions: min max (1 to 16 arguments) abs ceil_div
 * (towards plus infinity) next_pow2 (x >= 1) log2 (floor; x >= 1). Tuples and lists are allowed on
 * the right of `in` only; a string there is searched for the string on its left, as in Python
 * ('MI300' in gpu_name). Literals: decimal and 0x integers, with _, 'text' and "text" (escapes:
 * value_unquote), True False None. Strings are compared, never added or multiplied. The lambda
 * forms of triton-dejavu are accepted: `lambda kwarg: kwarg['BLOCK_M'] >= kwarg['BLOCK_N']`, and
 * `lambda config: config.num_warps == 4 or config.kwargs['BLOCK_M'] > 64`; the argument's members
 * are the names. Overflow, division by zero, a shift of type, a float name, an unknown name: errors
 * with the column (1-based), never a wrong number. Text is at most 4,096 bytes, nesting at most 64.
 *
 * Memory: a value borrows its string. An expr owns its tree and its strings; a string value that it
 * returns is borrowed from it or from the slots. Threads: after expr_bind an expr is read-only: any
 * number of threads may evaluate it. */
#ifndef WAVETUNE_COMMON_SPACE_EXPR_H
#define WAVETUNE_COMMON_SPACE_EXPR_H

#include "common/base/json.h"

/* A value of expressions, keys and configs. Only keys have floats. */
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

/* Python's truth of a value: None, False, 0 and '' are false. */
bool value_is_true(struct value value);

/* Borrows the string from `json`. Arrays and objects are refused. */
must_check bool value_from_json(const json_t *json, struct value *ret, struct error *error);
must_check json_t *value_to_json(struct value value);

/* As Python prints it: None, True, 64, 0.1, 'text' when `quoted` else text. Owned by the caller.
 * A quoted text parses as an expression of the same value, except for floats, which expressions do
 * not have. */
must_check char *value_format(struct value value, bool quoted);

/* Reads the quoted string that `text` begins with, as Python reads it: '…' or "…" with the escapes
 * \\ \' \" \n \r \t and \x01 to \x7f. *ret_string is owned by the caller; *ret_length is the number
 * of bytes that were read. */
must_check bool value_unquote(const char *text, char **ret_string, size_t *ret_length,
                              struct error *error);

/* Expressions */

#define EXPR_TEXT_MAX 4096
#define EXPR_DEPTH_MAX 64

struct expr;

/* Whether an expression can read a value of this name: an ASCII identifier that is not a keyword.
 */
bool expr_can_name(const char *name);

must_check bool expr_parse(const char *text, struct expr **ret_expr, struct error *error);
void expr_free(struct expr *expr);
DEFINE_CLEANUP(struct expr *, cleanup_expr_free, expr_free)
#define cleanup_expr cleanup_by(cleanup_expr_free)

/* Resolves every name of the expression to its index in `names` (at most 256); an unknown one is an
 * error with its column and the nearest known name. If a name occurs twice, the later one is used.
 * May be called again with other names, also after a failure. The names are not kept. */
must_check bool expr_bind(struct expr *expr, const char *const *names, size_t n_names,
                          struct error *error);

/* After expr_bind: whether the expression reads slots[index], and the largest index it reads (-1:
 * none). */
bool expr_reads(const struct expr *expr, size_t index);
int expr_last_slot(const struct expr *expr);

/* Evaluates with slots[i] the value of names[i]. Slots that the expression does not read may be
 * uninitialised. */
must_check bool expr_eval(const struct expr *expr, const struct value *slots, struct value *ret,
                          struct error *error);

/* Evaluates and demands an integer (bool refused) in [min, max]. */
must_check bool expr_eval_int(const struct expr *expr, const struct value *slots, int64_t min,
                              int64_t max, int64_t *ret, struct error *error);

/* A list of names and values that expressions are bound to and evaluated in: key members, config
 * parameters, facts of the device. Names and strings are borrowed. A name added twice has the later
 * value. */
struct scope {
  size_t n;
  const char *names[256];
  struct value values[256];
};
must_check bool scope_add(struct scope *scope, const char *name, struct value value,
                          struct error *error);

/* Parses, binds and evaluates an expression that is needed once. Integers only: a string result
 * could belong to the expression, which is freed here. */
must_check bool expr_int_in_scope(const char *text, const struct scope *scope, int64_t min,
                                  int64_t max, int64_t *ret, struct error *error);

#endif
