/* The code that expr_parse.c compiles an expression to and expr_eval.c binds and evaluates. Private
 * to them.
 *
 * An expression becomes a flat list of instructions for a small stack machine: evaluation neither
 * recurses nor allocates. Jumps are forward and relative, so that a finished block can be moved (`x
 * if c else y` is evaluated in another order than it is written). */
#ifndef WAVETUNE_COMMON_SPACE_EXPR_CODE_H
#define WAVETUNE_COMMON_SPACE_EXPR_CODE_H

#include "common/space/expr.h"

/* A level of nesting keeps at most five operands on the stack (of a comparison, a sum, a product
 * and a power, and while it is parsed the value that a condition chooses). */
#define EXPR_STACK_MAX (5 * EXPR_DEPTH_MAX + 8)

/* The effect of each instruction on the stack: before → after. op_change() depends on their order.
 */
enum op {
  /* One value more. */
  OP_CONSTANT, /* → constant */
  OP_LOAD,     /* → slots[operand]; constant.integer is the index of the name */
  OP_IN_BEGIN, /* a → a False */

  /* As many values as before: a → result */
  OP_NOT,
  OP_NEGATE,
  OP_PLUS,
  OP_ABSOLUTE,
  OP_NEXT_POWER,
  OP_LOG2,

  /* One value less. */
  OP_AND,    /* a → a and jump when a is false, else nothing */
  OP_OR,     /* a → a and jump when a is true, else nothing */
  OP_BRANCH, /* c → and jump when c is false */
  OP_JUMP,   /* x → x and jump; the value that is evaluated in its place comes next */
  OP_ADD,    /* a b → result, and those below */
  OP_SUBTRACT,
  OP_MULTIPLY,
  OP_FLOOR_DIVIDE,
  OP_CEIL_DIVIDE,
  OP_MODULO,
  OP_POWER,
  OP_MINIMUM,
  OP_MAXIMUM,
  /* a b → bool. With an operand it is a link of a chain: a false one leaves False and jumps, a true
     one leaves b. */
  OP_EQUAL,
  OP_NOT_EQUAL,
  OP_LESS,
  OP_LESS_EQUAL,
  OP_GREATER,
  OP_GREATER_EQUAL,
  OP_CONTAINED, /* strings: whether a occurs in b */
  OP_NOT_CONTAINED,
  OP_IN_ELEMENT, /* a found e → a (found or a == e) */
  OP_IN_END,     /* a found → found */
  OP_NOT_IN_END, /* a found → not found */
};

static inline int op_change(enum op op) { return op <= OP_IN_BEGIN ? 1 : op <= OP_LOG2 ? 0 : -1; }

struct instruction {
  uint8_t op;
  uint16_t column;  /* of the operator, name or literal, for errors */
  uint32_t operand; /* slot of OP_LOAD; how many instructions a jump skips */
  struct value constant;
};

struct expr {
  struct instruction *code;
  size_t n_code, code_capacity;
  char **names; /* distinct, in order of appearance */
  size_t n_names, names_capacity;
  char **strings; /* of the literals */
  size_t n_strings, strings_capacity;
  bool is_bound;
  int last_slot;
  uint64_t reads[4]; /* one bit for each slot */
};

/* Sets "column N: …" and returns false. */
#define EXPR_ERROR(error, column, format, ...)                                                     \
  error_set(error, "column %u: " format, (unsigned)(column), ##__VA_ARGS__)

#endif
