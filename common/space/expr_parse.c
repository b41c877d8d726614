/* From the text of an expression to its code: recursive descent, one function for each level of
 * precedence.
 *
 * Each parse_ function emits the code that leaves one value on the stack.
 * Memory: what is parsed is owned by the expr. Threads: any, one to an expr. */
#include "common/base/names.h"
#include "common/space/expr_code.h"

#define ARGUMENTS_MAX 16

struct parser {
  struct lexer lexer;
  struct token token; /* the next one, not consumed yet */
  struct expr *expr;
  unsigned depth;        /* of nesting */
  size_t waiting;        /* values on the stack when the code so far has run */
  struct token argument; /* of the lambda; length 0: there is none */
  struct error *error;
};

static bool parse_expression(struct parser *parser);
static bool parse_unary(struct parser *parser);

static bool next(struct parser *parser) {
  return lexer_next(&parser->lexer, &parser->token, parser->error);
}

/* "')'" or "the end": what stands at the token, for messages. */
static char *token_text(const struct token *token, char text[NAME_TEXT_SIZE]) {
  if (token->kind == TOKEN_END)
    snprintf(text, NAME_TEXT_SIZE, "the end");
  else
    name_cut(token->start, token->length, text);
  return text;
}

static bool expected(struct parser *parser, const char *what) {
  char text[NAME_TEXT_SIZE];
  return EXPR_ERROR(parser->error, parser->token.column, "expected %s, found %s", what,
                    token_text(&parser->token, text));
}

static bool accept(struct parser *parser, enum token_kind kind, const char *what) {
  if (parser->token.kind != kind)
    return expected(parser, what);
  return next(parser);
}

/* Appends an instruction that leaves `change` more values on the stack, and returns its index. */
static size_t emit(struct parser *parser, enum op op, unsigned column, int change) {
  struct expr *expr = parser->expr;
  GROW(expr->code, expr->n_code, expr->code_capacity);
  expr->code[expr->n_code] = (struct instruction){.op = (uint8_t)op, .column = (uint16_t)column};
  parser->waiting += (size_t)change;
  ALWAYS(parser->waiting <= EXPR_STACK_MAX);
  return expr->n_code++;
}

static void emit_constant(struct parser *parser, unsigned column, struct value value) {
  size_t index = emit(parser, OP_CONSTANT, column, 1);
  parser->expr->code[index].constant = value;
}

/* Makes the jump at `index` land behind all code so far. */
static void land_here(struct parser *parser, size_t index) {
  parser->expr->code[index].operand = (uint32_t)(parser->expr->n_code - index - 1);
}

static bool enter(struct parser *parser) {
  if (++parser->depth > EXPR_DEPTH_MAX)
    return EXPR_ERROR(parser->error, parser->token.column,
                      "the expression nests deeper than %d levels", EXPR_DEPTH_MAX);
  return true;
}

static void emit_load(struct parser *parser, unsigned column, const char *name, size_t length) {
  struct expr *expr = parser->expr;
  size_t i = 0;
  while (i < expr->n_names &&
         (strncmp(expr->names[i], name, length) != 0 || expr->names[i][length] != '\0'))
    i++;
  if (i == expr->n_names) {
    GROW(expr->names, expr->n_names, expr->names_capacity);
    expr->names[expr->n_names++] = xstrndup(name, length);
  }
  size_t index = emit(parser, OP_LOAD, column, 1);
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

static bool function_find(struct parser *parser, const struct token *name,
                          const struct function **ret) {
  const char *known[ARRAY_LENGTH(functions)];
  for (size_t i = 0; i < ARRAY_LENGTH(functions); i++) {
    known[i] = functions[i].name;
    if (strlen(known[i]) == name->length && memcmp(known[i], name->start, name->length) == 0) {
      *ret = &functions[i];
      return true;
    }
  }
  char text[NAME_TEXT_SIZE];
  name_cut(name->start, name->length, text);
  EXPR_ERROR(parser->error, name->column, "unknown function \"%s\"", text);
  error_suggest(parser->error, text, known, ARRAY_LENGTH(known));
  return false;
}

/* NAME ( expression, … ): the opening bracket is the next token. min and max fold their arguments
 * from the left. */
static bool parse_call(struct parser *parser, const struct token *name) {
  const struct function *function;
  if (!function_find(parser, name, &function) || !next(parser))
    return false;
  bool folds = function->max == ARGUMENTS_MAX;
  size_t n = 0;
  while (parser->token.kind != TOKEN_CLOSE) {
    if (n == function->max)
      return EXPR_ERROR(parser->error, parser->token.column, "%s takes at most %zu argument%s",
                        function->name, function->max, function->max == 1 ? "" : "s");
    if (!parse_expression(parser))
      return false;
    n++;
    if (folds && n > 1)
      emit(parser, function->op, name->column, -1);
    if (parser->token.kind == TOKEN_CLOSE)
      break;
    if (!accept(parser, TOKEN_COMMA, "',' or ')'"))
      return false;
  }
  if (n < function->min)
    return EXPR_ERROR(parser->error, parser->token.column, "%s takes %s%zu argument%s, found %zu",
                      function->name, folds ? "at least " : "", function->min,
                      function->min == 1 ? "" : "s", n);
  if (!folds)
    emit(parser, function->op, name->column, function->min == 2 ? -1 : 0);
  return next(parser);
}

/* 'NAME' and the closing bracket: what is read of the lambda's argument. */
static bool parse_member_text(struct parser *parser, enum token_kind close,
                              const char *close_text) {
  struct token member = parser->token;
  if (member.kind != TOKEN_STRING)
    return expected(parser, "the name of a parameter in quotes");
  emit_load(parser, member.column, member.string, strlen(member.string));
  return next(parser) && accept(parser, close, close_text);
}

static bool token_is(const struct token *token, const char *text) {
  return token->length == strlen(text) && memcmp(token->start, text, token->length) == 0;
}

/* ['X'] or .get('X'), of the lambda's argument or of its kwargs. */
static bool parse_lookup(struct parser *parser) {
  if (parser->token.kind == TOKEN_OPEN_LIST)
    return next(parser) && parse_member_text(parser, TOKEN_CLOSE_LIST, "']'");
  return next(parser) && parse_member_text(parser, TOKEN_CLOSE, "')' (get takes no default here)");
}

/* What follows the lambda's argument: ['X'], .get('X'), .kwargs['X'], .kwargs.get('X') or .X */
static bool parse_argument_member(struct parser *parser) {
  bool is_kwargs = false;
  for (;;) {
    if (parser->token.kind == TOKEN_OPEN_LIST)
      return parse_lookup(parser);
    if (!accept(parser, TOKEN_DOT, "a member of the lambda's argument, as in c['X'] or c.X"))
      return false;
    struct token member = parser->token;
    if (member.kind != TOKEN_NAME)
      return expected(parser, "the name of a member");
    if (!next(parser))
      return false;
    if (token_is(&member, "get") && parser->token.kind == TOKEN_OPEN)
      return parse_lookup(parser);
    if (is_kwargs)
      return EXPR_ERROR(parser->error, member.column,
                        "kwargs is read as kwargs['X'] or kwargs.get('X')");
    is_kwargs = token_is(&member, "kwargs") &&
                (parser->token.kind == TOKEN_OPEN_LIST || parser->token.kind == TOKEN_DOT);
    if (!is_kwargs) {
      emit_load(parser, member.column, member.start, member.length);
      return true;
    }
  }
}

static bool parse_name(struct parser *parser) {
  struct token name = parser->token;
  if (!next(parser))
    return false;
  const struct token *argument = &parser->argument;
  if (argument->length == name.length && memcmp(argument->start, name.start, name.length) == 0)
    return parse_argument_member(parser);
  if (parser->token.kind == TOKEN_OPEN)
    return parse_call(parser, &name);
  if (parser->token.kind == TOKEN_DOT || parser->token.kind == TOKEN_OPEN_LIST)
    return EXPR_ERROR(parser->error, parser->token.column,
                      "only the argument of a lambda has members");
  emit_load(parser, name.column, name.start, name.length);
  return true;
}

static bool tuple_is_misplaced(struct parser *parser, unsigned column) {
  return EXPR_ERROR(parser->error, column, "a tuple or list can only stand on the right of in");
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
  case TOKEN_OPEN:
    if (!next(parser))
      return false;
    if (parser->token.kind == TOKEN_CLOSE)
      return tuple_is_misplaced(parser, token.column);
    if (!parse_expression(parser))
      return false;
    if (parser->token.kind == TOKEN_COMMA)
      return tuple_is_misplaced(parser, token.column);
    return accept(parser, TOKEN_CLOSE, "')'");
  case TOKEN_OPEN_LIST:
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
  emit(parser, OP_POWER, column, -1);
  return true;
}

static bool parse_unary(struct parser *parser) {
  struct token sign = parser->token;
  if (sign.kind != TOKEN_MINUS && sign.kind != TOKEN_PLUS)
    return parse_power(parser);
  if (!enter(parser) || !next(parser))
    return false;
  struct token operand = parser->token;
  if (sign.kind == TOKEN_MINUS && operand.kind == TOKEN_INTEGER && operand.magnitude > INT64_MAX) {
    /* -2**63 written out is the one value whose positive does not fit; under a power it would have
     * to. */
    if (!next(parser))
      return false;
    if (parser->token.kind == TOKEN_POWER)
      return EXPR_ERROR(parser->error, operand.column, "the integer does not fit in 64 bits");
    emit_constant(parser, sign.column, value_int(INT64_MIN));
  } else {
    if (!parse_unary(parser))
      return false;
    emit(parser, sign.kind == TOKEN_MINUS ? OP_NEGATE : OP_PLUS, sign.column, 0);
  }
  parser->depth--;
  return true;
}

static bool parse_product(struct parser *parser) {
  if (!parse_unary(parser))
    return false;
  for (;;) {
    struct token token = parser->token;
    enum op op;
    if (token.kind == TOKEN_TIMES)
      op = OP_MULTIPLY;
    else if (token.kind == TOKEN_FLOOR_DIVIDE)
      op = OP_FLOOR_DIVIDE;
    else if (token.kind == TOKEN_MODULO)
      op = OP_MODULO;
    else
      return true;
    if (!next(parser) || !parse_unary(parser))
      return false;
    emit(parser, op, token.column, -1);
  }
}

static bool parse_sum(struct parser *parser) {
  if (!parse_product(parser))
    return false;
  while (parser->token.kind == TOKEN_PLUS || parser->token.kind == TOKEN_MINUS) {
    struct token token = parser->token;
    if (!next(parser) || !parse_product(parser))
      return false;
    emit(parser, token.kind == TOKEN_PLUS ? OP_ADD : OP_SUBTRACT, token.column, -1);
  }
  return true;
}

/* The comparison that begins at the token, consumed; *ret_found is false when there is none. */
static bool comparison_read(struct parser *parser, bool *ret_found, enum op *ret_op) {
  *ret_found = true;
  switch (parser->token.kind) {
  case TOKEN_EQUAL:
    *ret_op = OP_EQUAL;
    break;
  case TOKEN_NOT_EQUAL:
    *ret_op = OP_NOT_EQUAL;
    break;
  case TOKEN_LESS:
    *ret_op = OP_LESS;
    break;
  case TOKEN_LESS_EQUAL:
    *ret_op = OP_LESS_EQUAL;
    break;
  case TOKEN_GREATER:
    *ret_op = OP_GREATER;
    break;
  case TOKEN_GREATER_EQUAL:
    *ret_op = OP_GREATER_EQUAL;
    break;
  case TOKEN_IN:
    *ret_op = OP_CONTAINED;
    break;
  case TOKEN_NOT:
    *ret_op = OP_NOT_CONTAINED;
    if (!next(parser))
      return false;
    return accept(parser, TOKEN_IN, "in (after not)");
  default:
    *ret_found = false;
    return true;
  }
  return next(parser);
}

/* Elements up to `close`; the first one when `n` is 1 has been evaluated and waits on the stack. */
static bool parse_elements(struct parser *parser, enum token_kind close, enum op op,
                           unsigned column, size_t n) {
  if (n)
    emit(parser, OP_IN_ELEMENT, column, -1);
  while (parser->token.kind != close) {
    if (!parse_expression(parser))
      return false;
    emit(parser, OP_IN_ELEMENT, column, -1);
    if (parser->token.kind == close)
      break;
    if (!accept(parser, TOKEN_COMMA, close == TOKEN_CLOSE ? "',' or ')'" : "',' or ']'"))
      return false;
  }
  emit(parser, op == OP_CONTAINED ? OP_IN_END : OP_NOT_IN_END, column, -1);
  return next(parser);
}

/* The right side of in: a list, a tuple, or a value that must be a string. No arithmetic makes a
 * string, so what stands in brackets is the whole of it. */
static bool parse_container(struct parser *parser, enum op op, unsigned column,
                            bool *ret_is_tuple) {
  enum token_kind open = parser->token.kind;
  *ret_is_tuple = open == TOKEN_OPEN_LIST;
  if (open == TOKEN_OPEN_LIST) {
    emit(parser, OP_IN_BEGIN, column, 1);
    return next(parser) && parse_elements(parser, TOKEN_CLOSE_LIST, op, column, 0);
  }
  if (open != TOKEN_OPEN)
    return parse_sum(parser);
  size_t begin = emit(parser, OP_IN_BEGIN, column, 1);
  if (!next(parser))
    return false;
  if (parser->token.kind != TOKEN_CLOSE) {
    if (!parse_expression(parser))
      return false;
    if (parser->token.kind != TOKEN_COMMA) {
      /* A value in brackets after all: what a tuple would have begun with goes. */
      struct instruction *code = parser->expr->code;
      memmove(code + begin, code + begin + 1, (parser->expr->n_code - begin - 1) * sizeof *code);
      parser->expr->n_code--;
      parser->waiting--;
      return accept(parser, TOKEN_CLOSE, "')'");
    }
    *ret_is_tuple = true;
    return next(parser) && parse_elements(parser, TOKEN_CLOSE, op, column, 1);
  }
  *ret_is_tuple = true;
  return parse_elements(parser, TOKEN_CLOSE, op, column, 0);
}

static bool parse_comparison(struct parser *parser) {
  if (!parse_sum(parser))
    return false;
  struct expr *expr = parser->expr;
  unsigned column = parser->token.column;
  enum op op;
  bool found;
  if (!comparison_read(parser, &found, &op))
    return false;
  /* Until the end of the chain is known, each link holds the index of the one before it, plus
   * one. */
  size_t last_link = 0;
  while (found) {
    bool is_tuple = false;
    unsigned right = parser->token.column;
    if (op == OP_CONTAINED || op == OP_NOT_CONTAINED
            ? !parse_container(parser, op, column, &is_tuple)
            : !parse_sum(parser))
      return false;
    unsigned next_column = parser->token.column;
    enum op next_op;
    if (!comparison_read(parser, &found, &next_op))
      return false;
    if (is_tuple) {
      if (found)
        return tuple_is_misplaced(parser, right);
      break;
    }
    size_t index = emit(parser, op, column, -1);
    if (found) {
      expr->code[index].operand = (uint32_t)last_link;
      last_link = index + 1;
      op = next_op;
      column = next_column;
    }
  }
  while (last_link > 0) {
    size_t index = last_link - 1;
    last_link = expr->code[index].operand;
    land_here(parser, index);
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
  emit(parser, OP_NOT, column, 0);
  return true;
}

static bool parse_and(struct parser *parser) {
  if (!parse_not(parser))
    return false;
  while (parser->token.kind == TOKEN_AND) {
    size_t jump = emit(parser, OP_AND, parser->token.column, -1);
    if (!next(parser) || !parse_not(parser))
      return false;
    land_here(parser, jump);
  }
  return true;
}

static bool parse_or(struct parser *parser) {
  if (!parse_and(parser))
    return false;
  while (parser->token.kind == TOKEN_OR) {
    size_t jump = emit(parser, OP_OR, parser->token.column, -1);
    if (!next(parser) || !parse_and(parser))
      return false;
    land_here(parser, jump);
  }
  return true;
}

/* Swaps the adjacent blocks [first, second) and [second, end) of the code. */
static void swap_blocks(struct expr *expr, size_t first, size_t second) {
  size_t n = second - first, m = expr->n_code - second;
  struct instruction *code = expr->code + first;
  cleanup_free struct instruction *kept = xmemdup(code, n * sizeof *code);
  memmove(code, code + n, m * sizeof *code);
  memcpy(code + m, kept, n * sizeof *code);
}

/* x [if c else y]. Written x c y, evaluated c x y: c BRANCH x JUMP y. */
static bool parse_expression(struct parser *parser) {
  if (!enter(parser))
    return false;
  struct expr *expr = parser->expr;
  size_t chosen = expr->n_code;
  if (!parse_or(parser))
    return false;
  if (parser->token.kind == TOKEN_IF) {
    size_t condition = expr->n_code;
    unsigned column = parser->token.column;
    if (!next(parser) || !parse_or(parser))
      return false;
    emit(parser, OP_BRANCH, column, -1);
    size_t branch = chosen + (expr->n_code - 1 - condition);
    swap_blocks(expr, chosen, condition);
    size_t jump = emit(parser, OP_JUMP, column, -1);
    land_here(parser, branch);
    if (!accept(parser, TOKEN_ELSE, "else") || !parse_expression(parser))
      return false;
    land_here(parser, jump);
  }
  parser->depth--;
  return true;
}

/* lambda NAME: */
static bool parse_lambda_head(struct parser *parser) {
  if (!next(parser))
    return false;
  if (parser->token.kind != TOKEN_NAME)
    return expected(parser, "the one argument of the lambda");
  parser->argument = parser->token;
  return next(parser) && accept(parser, TOKEN_COLON, "':' after the one argument of the lambda");
}

bool expr_parse(const char *text, struct expr **ret_expr, struct error *error) {
  size_t length = strnlen(text, EXPR_TEXT_MAX + 1);
  if (length > EXPR_TEXT_MAX)
    return error_set(error, "the expression is longer than %d bytes", EXPR_TEXT_MAX);
  cleanup_json json_t *as_utf8 = json_stringn(text, length);
  if (!as_utf8)
    return error_set(error, "the expression is not UTF-8");
  cleanup_expr struct expr *expr = xcalloc(1, sizeof *expr);
  struct parser parser = {
      .lexer = {.at = text, .column = 1, .expr = expr}, .expr = expr, .error = error};
  if (!next(&parser))
    return false;
  if (parser.token.kind == TOKEN_LAMBDA && !parse_lambda_head(&parser))
    return false;
  if (!parse_expression(&parser))
    return false;
  if (parser.token.kind == TOKEN_COMMA)
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
