/* Tokens of the expression language. Memory: string literals are handed to the expr. Threads: one
 * to a lexer. */
#include <ctype.h>

#include "common/base/names.h"
#include "common/space/expr_code.h"

static const struct {
  const char *text;
  enum token_kind kind;
} words[] = {
    {"and", TOKEN_AND},   {"or", TOKEN_OR},         {"not", TOKEN_NOT},   {"in", TOKEN_IN},
    {"if", TOKEN_IF},     {"else", TOKEN_ELSE},     {"True", TOKEN_TRUE}, {"False", TOKEN_FALSE},
    {"None", TOKEN_NONE}, {"lambda", TOKEN_LAMBDA},
};

/* Longer ones before their beginnings. */
static const struct {
  const char *text;
  enum token_kind kind;
} marks[] = {
    {"==", TOKEN_EQUAL},         {"!=", TOKEN_NOT_EQUAL}, {"<=", TOKEN_LESS_EQUAL},
    {">=", TOKEN_GREATER_EQUAL}, {"**", TOKEN_POWER},     {"//", TOKEN_FLOOR_DIVIDE},
    {"<", TOKEN_LESS},           {">", TOKEN_GREATER},    {"+", TOKEN_PLUS},
    {"-", TOKEN_MINUS},          {"*", TOKEN_TIMES},      {"%", TOKEN_MODULO},
    {"(", TOKEN_OPEN},           {")", TOKEN_CLOSE},      {"[", TOKEN_OPEN_LIST},
    {"]", TOKEN_CLOSE_LIST},     {",", TOKEN_COMMA},      {".", TOKEN_DOT},
    {":", TOKEN_COLON},
};

static bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool continues_name(char c) { return starts_name(c) || is_digit(c); }

static enum token_kind word_kind(const char *start, size_t length) {
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
    if (strlen(words[i].text) == length && memcmp(words[i].text, start, length) == 0)
      return words[i].kind;
  return TOKEN_NAME;
}

bool expr_can_name(const char *name) {
  size_t length = 0;
  if (!starts_name(name[0]))
    return false;
  while (continues_name(name[length]))
    length++;
  return name[length] == '\0' && word_kind(name, length) == TOKEN_NAME;
}

/* Columns count characters: a UTF-8 continuation byte has none of its own. */
static void advance(struct lexer *lexer, size_t bytes) {
  for (; bytes > 0; bytes--)
    lexer->column += ((unsigned char)*lexer->at++ & 0xc0) != 0x80;
}

static int digit_value(char c, unsigned base) {
  int value = is_digit(c)                  ? c - '0'
              : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                           : -1;
  return value < (int)base ? value : -1;
}

/* Python's integer literals: decimal without leading zeros, or 0x; one underscore between
 * digits. */
static bool integer_read(struct lexer *lexer, struct token *token, struct error *error) {
  const char *c = lexer->at;
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
    if (__builtin_mul_overflow(magnitude, (uint64_t)base, &magnitude) ||
        __builtin_add_overflow(magnitude, (uint64_t)digit_value(*c, base), &magnitude))
      overflows = true;
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
  token->length = (size_t)(c - lexer->at);
  return true;
}

static bool string_read(struct lexer *lexer, struct token *token, struct error *error) {
  struct expr *expr = lexer->expr;
  char *string;
  if (!value_unquote(lexer->at, &string, &token->length, error))
    return error_prefix(error, "column %u: ", token->column);
  GROW(expr->strings, expr->n_strings, expr->strings_capacity);
  expr->strings[expr->n_strings++] = string;
  token->kind = TOKEN_STRING;
  token->string = string;
  return true;
}

static bool mark_read(const struct lexer *lexer, struct token *token, struct error *error) {
  for (size_t i = 0; i < ARRAY_LENGTH(marks); i++) {
    if (string_starts(lexer->at, marks[i].text)) {
      token->kind = marks[i].kind;
      token->length = strlen(marks[i].text);
      return true;
    }
  }
  switch (*lexer->at) {
  case '/':
    return EXPR_ERROR(error, token->column, "'/' would make a float; use //");
  case '=':
    return EXPR_ERROR(error, token->column, "'=' assigns; compare with ==");
  case '&':
  case '|':
  case '^':
  case '~':
    return EXPR_ERROR(error, token->column, "'%c' is no operator here; use and, or, not",
                      *lexer->at);
  default:
    if (isprint((unsigned char)*lexer->at))
      return EXPR_ERROR(error, token->column, "unexpected character '%c'", *lexer->at);
    return EXPR_ERROR(error, token->column, "unexpected byte 0x%02x outside of a string",
                      (unsigned char)*lexer->at);
  }
}

bool lexer_next(struct lexer *lexer, struct token *ret_token, struct error *error) {
  while (*lexer->at == ' ' || *lexer->at == '\t' || *lexer->at == '\n' || *lexer->at == '\r')
    advance(lexer, 1);
  struct token token = {.kind = TOKEN_END, .column = lexer->column, .start = lexer->at};
  char c = *lexer->at;
  if (starts_name(c)) {
    while (continues_name(lexer->at[token.length]))
      token.length++;
    token.kind = word_kind(lexer->at, token.length);
  } else if (is_digit(c) || (c == '.' && is_digit(lexer->at[1]))) {
    if (!integer_read(lexer, &token, error))
      return false;
  } else if (c == '\'' || c == '"') {
    if (!string_read(lexer, &token, error))
      return false;
  } else if (c != '\0' && !mark_read(lexer, &token, error)) {
    return false;
  }
  advance(lexer, token.length);
  *ret_token = token;
  return true;
}
