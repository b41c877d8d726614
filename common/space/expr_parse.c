/* From the text of an expression to its code: tokens, and a recursive descent with one function for
 * each level of precedence, which emits the code that leaves one value on the stack.
 *
 * Memory: the expr owns its names and the strings of its literals. Threads: one for each expr. */
#include <ctype.h>

#include "common/base/error.h"
#include "common/space/expr_code.h"

#define ARGUMENTS_MAX 16

/* Tokens */

/* A mark of one character is that character. */
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
  TOKEN_POWER,
  TOKEN_FLOOR_DIVIDE,
};
#define MARKS "<>+-*%()[],.:"
_Static_assert(TOKEN_FLOOR_DIVIDE < '%', "no kind is a mark");

struct token {
  int kind; /* enum token_kind or a mark */
  unsigned column;
  const char *start;
  size_t length;
  uint64_t magnitude; /* TOKEN_INTEGER: 0 to 2^63, which is valid only after a minus */
  const char *string; /* TOKEN_STRING: owned by the expr */
};

struct parser {
  const char *at;     /* the text after the token */
  unsigned column;    /* of `at`, in characters, 1-based */
  struct token token; /* the next one, not consumed yet */
  struct expr *expr;
  unsigned depth;        /* of nesting */
  size_t waiting;        /* values on the stack when the code so far has run */
  struct token argument; /* of the lambda; length 0: there is none */
  struct error *error;
};

static const struct spelling {
  const char *text;
  enum token_kind kind;
} words[] = {{"and", TOKEN_AND},      {"or", TOKEN_OR},       {"not", TOKEN_NOT},
             {"in", TOKEN_IN},        {"if", TOKEN_IF},       {"else", TOKEN_ELSE},
             {"True", TOKEN_TRUE},    {"False", TOKEN_FALSE}, {"None", TOKEN_NONE},
             {"lambda", TOKEN_LAMBDA}},
  long_marks[] = {{"==", TOKEN_EQUAL},         {"!=", TOKEN_NOT_EQUAL}, {"<=", TOKEN_LESS_EQUAL},
                  {">=", TOKEN_GREATER_EQUAL}, {"**", TOKEN_POWER},     {"//", TOKEN_FLOOR_DIVIDE}};

static bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool continues_name(char c) { return starts_name(c) || is_digit(c); }

static bool text_is(const char *start, size_t length, const char *text) {
  return length == strlen(text) && memcmp(start, text, length) == 0;
}

static enum token_kind word_kind(const char *start, size_t length) {
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
    if (text_is(start, length, words[i].text))
      return words[i].kind;
  return TOKEN_NAME;
}

bool expr_can_name(const char *name) {
  size_t length = 0;
  while (continues_name(name[length]))
    length++;
  return starts_name(name[0]) && name[length] == '\0' && word_kind(name, length) == TOKEN_NAME;
}

static int digit_value(char c, unsigned base) {
  int value = is_digit(c)                  ? c - '0'
              : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                           : -1;
  return value < (int)base ? value : -1;
}

/* Python's integer literals: decimal without leading zeros, or 0x; one underscore between
 * digits. */
static bool integer_read(struct token *token, struct error *error) {
  const char *c = token->start;
  unsigned base = 10;

  if (c[0] == '0' && (c[1] == 'x' || c[1] == 'X')) {
    base = 16;
    c += 2;
    c += *c == '_';
  }

  const char *digits = c;
  uint64_t magnitude = 0;
  bool overflows = false, nonzero = false;
  for (; digit_value(*c, base) >= 0 ||
         (*c == '_' && c > digits && c[-1] != '_' && digit_value(c[1], base) >= 0);
       c++) {
    if (*c == '_')
      continue;
    nonzero |= *c != '0';
    overflows |= __builtin_mul_overflow(magnitude, (uint64_t)base, &magnitude);
    overflows |= __builtin_add_overflow(magnitude, (uint64_t)digit_value(*c, base), &magnitude);
  }

  if (*c == '.' || (base == 10 && (*c == 'e' || *c == 'E')))
    return EXPR_ERROR(error, token->column,
                      "expressions have no floats; write integers, and // for division");
  if (c == digits || continues_name(*c))
    return EXPR_ERROR(error, token->column,
                      "not an integer: write decimal or 0x digits, with single _ between them");
  if (base == 10 && *digits == '0' && nonzero)
    return EXPR_ERROR(error, token->column, "a decimal integer has no leading zeros");
  if (overflows || magnitude > (uint64_t)INT64_MAX + 1)
    return EXPR_ERROR(error, token->column, "the integer does not fit in 64 bits");

  token->kind = TOKEN_INTEGER;
  token->magnitude = magnitude;
  token->length = (size_t)(c - token->start);
  return true;
}

static bool mark_read(struct token *token, struct error *error) {
  const char *at = token->start;
  for (size_t i = 0; i < ARRAY_LENGTH(long_marks); i++) {
    if (string_starts(at, long_marks[i].text)) {
      token->kind = long_marks[i].kind;
      token->length = 2;
      return true;
    }
  }

  if (strchr(MARKS, *at)) {
    token->kind = (unsigned char)*at;
    token->length = 1;
    return true;
  }

  if (*at == '/')
    return EXPR_ERROR(error, token->column, "'/' would make a float; use //");
  if (*at == '=')
    return EXPR_ERROR(error, token->column, "'=' assigns; compare with ==");
  if (strchr("&|^~", *at))
    return EXPR_ERROR(error, token->column, "'%c' is not an operator here; use and, or, not", *at);
  if (isprint((unsigned char)*at))
    return EXPR_ERROR(error, token->column, "unexpected character '%c'", *at);

  return EXPR_ERROR(error, token->column, "unexpected byte 0x%02x outside of a string",
                    (unsigned char)*at);
}

/* Columns count characters: UTF-8 continuation bytes are not counted. */
static void advance(struct parser *parser, size_t bytes) {
  for (; bytes > 0; bytes--)
    parser->column += ((unsigned char)*parser->at++ & 0xc0) != 0x80;
}

/* Reads the next token. */
static bool next(struct parser *parser) {
  struct expr *expr = parser->expr;
  while (*parser->at && strchr(" \t\n\r", *parser->at))
    advance(parser, 1);

  struct token token = {.kind = TOKEN_END, .column = parser->column, .start = parser->at};
  char c = *parser->at;
  if (starts_name(c)) {
    while (continues_name(parser->at[token.length]))
      token.length++;
    token.kind = word_kind(parser->at, token.length);
  } else if (is_digit(c) || (c == '.' && is_digit(parser->at[1]))) {
    if (!integer_read(&token, parser->error))
      return false;
  } else if (c == '\'' || c == '"') {
    char *string;
    if (!value_unquote(parser->at, &string, &token.length, parser->error))
      return error_prefix(parser->error, "column %u: ", token.column);
    GROW(expr->strings, expr->n_strings, expr->strings_capacity);
    expr->strings[expr->n_strings++] = string;
    token.kind = TOKEN_STRING;
    token.string = string;
  } else if (c != '\0' && !mark_read(&token, parser->error)) {
    return false;
  }

  advance(parser, token.length);
  parser->token = token;
  return true;
}

/* Parsing */

static bool parse_expression(struct parser *parser);
static bool parse_unary(struct parser *parser);

static bool expected(struct parser *parser, const char *what) {
  const struct token *token = &parser->token;
  char text[NAME_TEXT_SIZE] = "the end";
  if (token->kind != TOKEN_END)
    name_cut(token->start, token->length, text);
  return EXPR_ERROR(parser->error, token->column, "expected %s, found %s", what, text);
}

static bool accept(struct parser *parser, int kind, const char *what) {
  return parser->token.kind == kind ? next(parser) : expected(parser, what);
}

/* Appends an instruction and returns its index. */
static size_t emit(struct parser *parser, enum op op, unsigned column) {
  struct expr *expr = parser->expr;
  GROW(expr->code, expr->n_code, expr->code_capacity);
  expr->code[expr->n_code] = (struct instruction){.op = (uint8_t)op, .column = (uint16_t)column};
  parser->waiting += (size_t)op_change(op);
  ALWAYS(parser->waiting <= EXPR_STACK_MAX);
  return expr->n_code++;
}

static void emit_constant(struct parser *parser, unsigned column, struct value value) {
  size_t index = emit(parser, OP_CONSTANT, column);
  parser->expr->code[index].constant = value;
}

/* Makes the jump at `index` land after all code so far. */
static void land_here(struct parser *parser, size_t index) {
  parser->expr->code[index].operand = (uint32_t)(parser->expr->n_code - index - 1);
}

static bool enter(struct parser *parser) {
  return ++parser->depth <= EXPR_DEPTH_MAX ||
         EXPR_ERROR(parser->error, parser->token.column,
                    "the expression nests deeper than %d levels", EXPR_DEPTH_MAX);
}

static void emit_load(struct parser *parser, unsigned column, const char *name, size_t length) {
  struct expr *expr = parser->expr;
  size_t i = 0;
  while (i < expr->n_names && !text_is(name, length, expr->names[i]))
    i++;
  if (i == expr->n_names) {
    GROW(expr->names, expr->n_names, expr->names_capacity);
    expr->names[expr->n_names++] = xstrndup(name, length);
  }

  size_t index = emit(parser, OP_LOAD, column);
  expr->code[index].constant = value_int((int64_t)i);
}

static const struct function {
  const char *name;
  enum op op;
  size_t min, max; /* arguments */
} functions[] = {
    {"min", OP_MINIMUM, 1, ARGUMENTS_MAX},
    {"max", OP_MAXIMUM, 1, ARGUMENTS_MAX},
    {"abs", OP_ABSOLUTE, 1, 1},
    {"ceil_div", OP_CEIL_DIVIDE, 2, 2},
    {"next_pow2", OP_NEXT_POWER, 1, 1},
    {"log2", OP_LOG2, 1, 1},
};

/* NAME ( expression, … ): the opening bracket is the next token. min and max fold their arguments
 * from the left. */
static bool parse_call(struct parser *parser, const struct token *name) {
  const char *known[ARRAY_LENGTH(functions)];
  const struct function *function = NULL;

  for (size_t i = 0; i < ARRAY_LENGTH(functions); i++) {
    known[i] = functions[i].name;
    if (text_is(name->start, name->length, known[i]))
      function = &functions[i];
  }

  if (!function) {
    const char *text = NAME_CUT_OF(name->start, name->length);
    EXPR_ERROR(parser->error, name->column, "unknown function \"%s\"", text);
    error_suggest(parser->error, text, known, ARRAY_LENGTH(known));
    return false;
  }

  if (!next(parser))
    return false;

  bool folds = function->max == ARGUMENTS_MAX;
  size_t n = 0;
  while (parser->token.kind != ')') {
    if (n == function->max)
      return EXPR_ERROR(parser->error, parser->token.column, "%s takes at most %zu argument%s",
                        function->name, function->max, function->max == 1 ? "" : "s");
    if (!parse_expression(parser))
      return false;
    n++;
    if (folds && n > 1)
      emit(parser, function->op, name->column);
    if (parser->token.kind == ')')
      break;
    if (!accept(parser, ',', "',' or ')'"))
      return false;
  }

  if (n < function->min)
    return EXPR_ERROR(parser->error, parser->token.column, "%s takes %s%zu argument%s, found %zu",
                      function->name, folds ? "at least " : "", function->min,
                      function->min == 1 ? "" : "s", n);
  if (!folds)
    emit(parser, function->op, name->column);
  return next(parser);
}

/* ['X'], or ('X') after get, of the lambda's argument or of its kwargs. */
static bool parse_lookup(struct parser *parser) {
  bool is_index = parser->token.kind == '[';
  if (!next(parser))
    return false;

  struct token member = parser->token;
  if (member.kind != TOKEN_STRING)
    return expected(parser, "the name of a parameter in quotes");

  emit_load(parser, member.column, member.string, strlen(member.string));
  return next(parser) && (is_index ? accept(parser, ']', "']'")
                                   : accept(parser, ')', "')' (get takes no default here)"));
}

/* What follows the lambda's argument: ['X'], .get('X'), .kwargs['X'], .kwargs.get('X') or .X */
static bool parse_argument_member(struct parser *parser) {
  bool is_kwargs = false;
  for (;;) {
    if (parser->token.kind == '[')
      return parse_lookup(parser);
    if (!accept(parser, '.', "a member of the lambda's argument, as in c['X'] or c.X"))
      return false;
    struct token member = parser->token;
    if (member.kind != TOKEN_NAME)
      return expected(parser, "the name of a member");
    if (!next(parser))
      return false;

    int kind = parser->token.kind;
    if (kind == '(' && text_is(member.start, member.length, "get"))
      return parse_lookup(parser);
    if (is_kwargs)
      return EXPR_ERROR(parser->error, member.column,
                        "kwargs is read as kwargs['X'] or kwargs.get('X')");
    is_kwargs = text_is(member.start, member.length, "kwargs") && (kind == '[' || kind == '.');
    if (!is_kwargs) {
      emit_load(parser, member.column, member.start, member.length);
      return true;
    }
  }
}

static bool parse_name(struct parser *parser) {
  struct token name = parser->token;
  const struct token *argument = &parser->argument;

  if (!next(parser))
    return false;
  if (argument->length == name.length && memcmp(argument->start, name.start, name.length) == 0)
    return parse_argument_member(parser);
  if (parser->token.kind == '(')
    return parse_call(parser, &name);
  if (parser->token.kind == '.' || parser->token.kind == '[')
    return EXPR_ERROR(parser->error, parser->token.column,
                      "only the argument of a lambda has members");

  emit_load(parser, name.column, name.start, name.length);
  return true;
}

static bool tuple_is_misplaced(struct parser *parser, unsigned column) {
  return EXPR_ERROR(parser->error, column, "a tuple or list is allowed on the right of in only");
}

static bool parse_atom(struct parser *parser) {
  struct token token = parser->token;
  switch (token.kind) {
  case TOKEN_INTEGER:
    if (token.magnitude > INT64_MAX)
      return EXPR_ERROR(parser->error, token.column, "the integer does not fit in 64 bits");
    emit_constant(parser, token.column, value_int((int64_t)token.magnitude));
    return next(parser);
  case TOKEN_STRING:
    emit_constant(parser, token.column, value_string(token.string));
    return next(parser);
  case TOKEN_TRUE:
  case TOKEN_FALSE:
    emit_constant(parser, token.column, value_bool(token.kind == TOKEN_TRUE));
    return next(parser);
  case TOKEN_NONE:
    emit_constant(parser, token.column, value_none());
    return next(parser);
  case TOKEN_NAME:
    return parse_name(parser);
  case '(':
    if (!next(parser))
      return false;
    if (parser->token.kind == ')')
      return tuple_is_misplaced(parser, token.column);
    if (!parse_expression(parser))
      return false;
    if (parser->token.kind == ',')
      return tuple_is_misplaced(parser, token.column);
    return accept(parser, ')', "')'");
  case '[':
    return tuple_is_misplaced(parser, token.column);
  case TOKEN_LAMBDA:
    return EXPR_ERROR(parser->error, token.column, "a lambda can only be the whole expression");
  default:
    return expected(parser, "a value");
  }
}

static bool parse_power(struct parser *parser) {
  if (!parse_atom(parser))
    return false;
  if (parser->token.kind != TOKEN_POWER)
    return true;

  unsigned column = parser->token.column;
  if (!enter(parser) || !next(parser) || !parse_unary(parser))
    return false;

  parser->depth--;
  emit(parser, OP_POWER, column);
  return true;
}

static bool parse_unary(struct parser *parser) {
  struct token sign = parser->token;
  if (sign.kind != '-' && sign.kind != '+')
    return parse_power(parser);
  if (!enter(parser) || !next(parser))
    return false;

  struct token operand = parser->token;
  if (sign.kind == '-' && operand.kind == TOKEN_INTEGER && operand.magnitude > INT64_MAX) {
    /* -2**63 is the only value whose negation does not fit. As the base of a power, which binds
     * tighter than the minus, 2**63 would have to fit. */
    if (!next(parser))
      return false;
    if (parser->token.kind == TOKEN_POWER)
      return EXPR_ERROR(parser->error, operand.column, "the integer does not fit in 64 bits");
    emit_constant(parser, sign.column, value_int(INT64_MIN));
  } else {
    if (!parse_unary(parser))
      return false;
    emit(parser, sign.kind == '-' ? OP_NEGATE : OP_PLUS, sign.column);
  }

  parser->depth--;
  return true;
}

static const struct binary_operator {
  int token;
  enum op op;
  enum level { LEVEL_COMPARISON, LEVEL_SUM, LEVEL_PRODUCT } level;
} binary_operators[] = {
    {TOKEN_EQUAL, OP_EQUAL, LEVEL_COMPARISON},
    {TOKEN_NOT_EQUAL, OP_NOT_EQUAL, LEVEL_COMPARISON},
    {'<', OP_LESS, LEVEL_COMPARISON},
    {TOKEN_LESS_EQUAL, OP_LESS_EQUAL, LEVEL_COMPARISON},
    {'>', OP_GREATER, LEVEL_COMPARISON},
    {TOKEN_GREATER_EQUAL, OP_GREATER_EQUAL, LEVEL_COMPARISON},
    {TOKEN_IN, OP_CONTAINED, LEVEL_COMPARISON},
    {TOKEN_NOT, OP_NOT_CONTAINED, LEVEL_COMPARISON},
    {'+', OP_ADD, LEVEL_SUM},
    {'-', OP_SUBTRACT, LEVEL_SUM},
    {'*', OP_MULTIPLY, LEVEL_PRODUCT},
    {TOKEN_FLOOR_DIVIDE, OP_FLOOR_DIVIDE, LEVEL_PRODUCT},
    {'%', OP_MODULO, LEVEL_PRODUCT},
};

/* The binary operator in the next token, if it is of this level, else NULL. */
static const struct binary_operator *operator_find(const struct parser *parser, enum level level) {
  for (size_t i = 0; i < ARRAY_LENGTH(binary_operators); i++)
    if (binary_operators[i].token == parser->token.kind && binary_operators[i].level == level)
      return &binary_operators[i];
  return NULL;
}

/* A sum of products, or a product. */
static bool parse_arithmetic(struct parser *parser, enum level level) {
  const struct binary_operator *binary = NULL;
  unsigned column = 0;
  do {
    if (!(level == LEVEL_SUM ? parse_arithmetic(parser, LEVEL_PRODUCT) : parse_unary(parser)))
      return false;
    if (binary)
      emit(parser, binary->op, column);
    column = parser->token.column;
    binary = operator_find(parser, level);
  } while (binary && next(parser));

  return !binary;
}

/* The right side of in: a list, a tuple, or a value that must be a string. No arithmetic returns a
 * string, so a value in brackets is the whole right side. */
static bool parse_container(struct parser *parser, enum op op, unsigned column,
                            bool *ret_is_tuple) {
  struct expr *expr = parser->expr;
  int open = parser->token.kind;
  int close = open == '(' ? ')' : ']';

  *ret_is_tuple = false;
  if (open != '(' && open != '[')
    return parse_arithmetic(parser, LEVEL_SUM);

  size_t begin = emit(parser, OP_IN_BEGIN, column);
  if (!next(parser))
    return false;

  for (bool is_first = true; parser->token.kind != close; is_first = false) {
    if (!parse_expression(parser))
      return false;
    if (is_first && open == '(' && parser->token.kind != ',') {
      /* Not a tuple: remove its OP_IN_BEGIN. */
      struct instruction *code = expr->code + begin;
      memmove(code, code + 1, (--expr->n_code - begin) * sizeof *code);
      parser->waiting--;
      return accept(parser, ')', "')'");
    }
    emit(parser, OP_IN_ELEMENT, column);
    if (parser->token.kind == close)
      break;
    if (!accept(parser, ',', open == '(' ? "',' or ')'" : "',' or ']'"))
      return false;
  }

  *ret_is_tuple = true;
  emit(parser, op == OP_CONTAINED ? OP_IN_END : OP_NOT_IN_END, column);
  return next(parser);
}

/* A comparison, or a chain of them: a < b <= c. */
static bool parse_comparison(struct parser *parser) {
  if (!parse_arithmetic(parser, LEVEL_SUM))
    return false;

  /* Until the end of the chain is known, each link has the index of the one before it, plus one. */
  struct expr *expr = parser->expr;
  size_t last_link = 0, index = SIZE_MAX;
  unsigned tuple_column = 0; /* 0: there is none */
  for (const struct binary_operator *binary; (binary = operator_find(parser, LEVEL_COMPARISON));) {
    unsigned column = parser->token.column;
    if (!next(parser) ||
        (binary->token == TOKEN_NOT && !accept(parser, TOKEN_IN, "in (after not)")))
      return false;
    if (tuple_column)
      return tuple_is_misplaced(parser, tuple_column);
    if (index != SIZE_MAX) {
      expr->code[index].operand = (uint32_t)last_link;
      last_link = index + 1;
    }

    unsigned right = parser->token.column;
    bool is_tuple = false, is_container = binary->token == TOKEN_IN || binary->token == TOKEN_NOT;
    if (is_container ? !parse_container(parser, binary->op, column, &is_tuple)
                     : !parse_arithmetic(parser, LEVEL_SUM))
      return false;
    if (is_tuple)
      tuple_column = right;
    else
      index = emit(parser, binary->op, column);
  }

  while (last_link > 0) {
    size_t link = last_link - 1;
    last_link = expr->code[link].operand;
    land_here(parser, link);
  }

  return true;
}

static bool parse_not(struct parser *parser) {
  if (parser->token.kind != TOKEN_NOT)
    return parse_comparison(parser);
  unsigned column = parser->token.column;
  if (!enter(parser) || !next(parser) || !parse_not(parser))
    return false;
  parser->depth--;
  emit(parser, OP_NOT, column);
  return true;
}

/* Operands of `or`, each of which has operands of `and`. */
static bool parse_logical(struct parser *parser, enum op op) {
  size_t jump = SIZE_MAX;
  for (;;) {
    if (!(op == OP_OR ? parse_logical(parser, OP_AND) : parse_not(parser)))
      return false;
    if (jump != SIZE_MAX)
      land_here(parser, jump);
    if (parser->token.kind != (op == OP_OR ? TOKEN_OR : TOKEN_AND))
      return true;
    jump = emit(parser, op, parser->token.column);
    if (!next(parser))
      return false;
  }
}

/* x [if c else y]. Written x c y, evaluated c x y: c BRANCH x JUMP y. */
static bool parse_expression(struct parser *parser) {
  struct expr *expr = parser->expr;
  size_t chosen = expr->n_code;
  if (!enter(parser) || !parse_logical(parser, OP_OR))
    return false;

  if (parser->token.kind == TOKEN_IF) {
    size_t condition = expr->n_code;
    unsigned column = parser->token.column;
    if (!next(parser) || !parse_logical(parser, OP_OR))
      return false;
    size_t branch = emit(parser, OP_BRANCH, column) - condition + chosen;

    /* Swap the block of the chosen value with that of the condition. */
    size_t n = condition - chosen, m = expr->n_code - condition;
    struct instruction *code = expr->code + chosen;
    cleanup_free struct instruction *kept = xmemdup(code, n * sizeof *code);
    memmove(code, code + n, m * sizeof *code);
    memcpy(code + m, kept, n * sizeof *code);

    size_t jump = emit(parser, OP_JUMP, column);
    land_here(parser, branch);
    if (!accept(parser, TOKEN_ELSE, "else") || !parse_expression(parser))
      return false;
    land_here(parser, jump);
  }

  parser->depth--;
  return true;
}

bool expr_parse(const char *text, struct expr **ret_expr, struct error *error) {
  if (strnlen(text, EXPR_TEXT_MAX + 1) > EXPR_TEXT_MAX)
    return error_set(error, "the expression is longer than %d bytes", EXPR_TEXT_MAX);
  if (!json_can_hold(text))
    return error_set(error, "the expression is not UTF-8");

  cleanup_expr struct expr *expr = xcalloc(1, sizeof *expr);
  struct parser parser = {.at = text, .column = 1, .expr = expr, .error = error};
  if (!next(&parser))
    return false;
  if (parser.token.kind == TOKEN_LAMBDA) {
    if (!next(&parser))
      return false;
    if (parser.token.kind != TOKEN_NAME)
      return expected(&parser, "the one argument of the lambda");
    parser.argument = parser.token;
    if (!next(&parser) || !accept(&parser, ':', "':' after the one argument of the lambda"))
      return false;
  }

  if (!parse_expression(&parser))
    return false;
  if (parser.token.kind == ',')
    return tuple_is_misplaced(&parser, parser.token.column);
  if (parser.token.kind != TOKEN_END)
    return expected(&parser, "an operator or the end");

  expr->last_slot = -1;
  expr->is_bound = expr->n_names == 0;

  *ret_expr = TAKE(expr);
  return true;
}

void expr_free(struct expr *expr) {
  if (!expr)
    return;
  for (size_t i = 0; i < expr->n_names; i++)
    free(expr->names[i]);
  for (size_t i = 0; i < expr->n_strings; i++)
    free(expr->strings[i]);

  free(expr->names);
  free(expr->strings);
  free(expr->code);
  free(expr);
}
