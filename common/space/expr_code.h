/* What an expression is compiled to, shared by expr_lex.c, expr_parse.c, expr_bind.c and
 * expr_eval.c and by nobody else.
 *
 * An expression becomes a flat list of instructions for a small stack machine: evaluation neither
 * recurses nor allocates. Jumps are forward and relative, so that a finished block can be moved (`x
 * if c else y` is evaluated in another order than it is written). */
#ifndef WAVETUNE_COMMON_SPACE_EXPR_CODE_H
#define WAVETUNE_COMMON_SPACE_EXPR_CODE_H

#include "common/space/expr.h"

/* A level of nesting keeps at most five operands waiting (comparison, sum, product, base of a
 * power, and while it is parsed the value that a condition chooses). */
#define EXPR_STACK_MAX (5 * EXPR_DEPTH_MAX + 8)

enum op {
  OP_CONSTANT, /* → constant */
  OP_LOAD,     /* → slots[operand]; constant.integer is the index of the name */
  OP_AND,      /* a → a and jump when a is false, else nothing */
  OP_OR,       /* a → a and jump when a is true, else nothing */
  OP_BRANCH,   /* c → and jump when c is false */
  OP_JUMP,
  OP_NOT,
  OP_NEGATE,
  OP_PLUS,
  OP_ADD,
  OP_SUBTRACT,
  OP_MULTIPLY,
  OP_FLOOR_DIVIDE,
  OP_MODULO,
  OP_POWER,
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
  OP_IN_BEGIN,   /* a → a False */
  OP_IN_ELEMENT, /* a found e → a (found or a == e) */
  OP_IN_END,     /* a found → found */
  OP_NOT_IN_END, /* a found → not found */
  OP_MINIMUM,
  OP_MAXIMUM,
  OP_ABSOLUTE,
  OP_CEIL_DIVIDE,
  OP_NEXT_POWER,
  OP_LOG2,
};

struct instruction {
  uint8_t op;
  uint16_t column;  /* of the operator, name or literal: where an error is */
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
  uint64_t reads[4]; /* one bit a slot */
};

enum token_kind {
  TOKEN_END,
  TOKEN_INTEGER,
  TOKEN_STRING,
  TOKEN_NAME,
  TOKEN_AND,
  TOKEN_OR,
  TOKEN_NOT,
  TOKEN_IN,
  TOKEN_IF,
  TOKEN_ELSE,
  TOKEN_LAMBDA,
  TOKEN_TRUE,
  TOKEN_FALSE,
  TOKEN_NONE,
  TOKEN_EQUAL,
  TOKEN_NOT_EQUAL,
  TOKEN_LESS_EQUAL,
  TOKEN_GREATER_EQUAL,
  TOKEN_LESS,
  TOKEN_GREATER,
  TOKEN_PLUS,
  TOKEN_MINUS,
  TOKEN_POWER,
  TOKEN_TIMES,
  TOKEN_FLOOR_DIVIDE,
  TOKEN_MODULO,
  TOKEN_OPEN,
  TOKEN_CLOSE,
  TOKEN_OPEN_LIST,
  TOKEN_CLOSE_LIST,
  TOKEN_COMMA,
  TOKEN_DOT,
  TOKEN_COLON,
};

struct token {
  enum token_kind kind;
  unsigned column;
  const char *start;
  size_t length;
  uint64_t magnitude; /* TOKEN_INTEGER: 0 to 2^63 (only a minus before it makes 2^63 a value) */
  const char *string; /* TOKEN_STRING: owned by the expr */
};

struct lexer {
  const char *at;
  unsigned column; /* of `at`, in characters, 1-based */
  struct expr *expr;
};

/* Reads the next token. A string literal's text is handed to the expr. */
must_check bool lexer_next(struct lexer *lexer, struct token *ret_token, struct error *error);

/* Sets "column N: …" and returns false. */
#define EXPR_ERROR(error, column, ...)                                                             \
  expr_error_column((error_set((error), __VA_ARGS__), (error)), (column))
static inline bool expr_error_column(struct error *error, unsigned column) {
  error_prefix(error, "column %u: ", column);
  return false;
}

#endif
