/* Binding an expression to slots and evaluating it: Python's semantics over 64-bit integers, where
 * what would overflow or become a float is an error. Evaluation neither allocates nor recurses.
 *
 * Threads: one thread binds an expr; then any number may evaluate it. */
#include "common/base/error.h"
#include "common/space/expr_code.h"

_Static_assert(8 * sizeof(((struct expr *)0)->reads) == ARRAY_LENGTH(((struct scope *)0)->names),
               "one bit for each slot");

bool expr_bind(struct expr *expr, const char *const *names, size_t n_names, struct error *error) {
  ALWAYS(n_names <= 8 * sizeof expr->reads);
  memset(expr->reads, 0, sizeof expr->reads);
  expr->last_slot = -1;
  expr->is_bound = false;

  /* If a name occurs twice, the last one is used. */
  cleanup_free int *slots = xcalloc(expr->n_names, sizeof *slots);
  for (size_t i = 0; i < expr->n_names; i++) {
    slots[i] = (int)n_names - 1;
    while (slots[i] >= 0 && !string_equal(names[slots[i]], expr->names[i]))
      slots[i]--;
  }

  for (struct instruction *load = expr->code; load < expr->code + expr->n_code; load++) {
    if (load->op != OP_LOAD)
      continue;
    const char *name = expr->names[load->constant.integer];
    int slot = slots[load->constant.integer];
    if (slot < 0) {
      EXPR_ERROR(error, load->column, "unknown name \"%s\"", NAME_CUT(name));
      error_suggest(error, name, names, n_names);
      return false;
    }
    load->operand = (uint32_t)slot;
    expr->reads[slot / 64] |= UINT64_C(1) << (slot % 64);
    if (slot > expr->last_slot)
      expr->last_slot = slot;
  }

  expr->is_bound = true;
  return true;
}

bool expr_reads(const struct expr *expr, size_t index) {
  return index < 8 * sizeof expr->reads && (expr->reads[index / 64] >> (index % 64) & 1);
}

int expr_last_slot(const struct expr *expr) { return expr->last_slot; }

bool scope_add(struct scope *scope, const char *name, struct value value, struct error *error) {
  size_t i = 0;
  while (i < scope->n && !string_equal(scope->names[i], name))
    i++;

  if (i == ARRAY_LENGTH(scope->names)) {
    return error_set(error, "no room for \"%s\": expressions read at most %zu names",
                     NAME_CUT(name), ARRAY_LENGTH(scope->names));
  }

  scope->names[i] = name;
  scope->values[i] = value;
  scope->n += i == scope->n;
  return true;
}

bool expr_int_in_scope(const char *text, const struct scope *scope, int64_t min, int64_t max,
                       int64_t *ret, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error) && expr_bind(expr, scope->names, scope->n, error) &&
         expr_eval_int(expr, scope->values, min, max, ret, error);
}

static const char *type_name(struct value value) {
  static const char *const names[] = {"None", "a bool", "an integer", "a float", "a string"};
  return names[value.type];
}

bool value_is_true(struct value value) {
  switch (value.type) {
  case VALUE_NONE:
    return false;
  case VALUE_BOOL:
    return value.boolean;
  case VALUE_INT:
    return value.integer != 0;
  case VALUE_FLOAT:
    return value.real != 0;
  case VALUE_STRING:
    return value.string[0] != '\0';
  }

  die("value_is_true: type %d", (int)value.type);
}

static inline bool is_number(struct value value) {
  return value.type == VALUE_INT || value.type == VALUE_BOOL;
}
static inline int64_t number(struct value value) {
  return value.type == VALUE_BOOL ? value.boolean : value.integer;
}

/* Python's ==: bools are integers, other types never equal each other. */
static bool equals(struct value a, struct value b) {
  if (is_number(a) && is_number(b))
    return number(a) == number(b);
  return value_equal(a, b);
}

/* The operators as errors show them. */
static const char *const op_texts[] = {
    [OP_NEGATE] = "-",    [OP_PLUS] = "+",        [OP_ABSOLUTE] = "abs",
    [OP_LOG2] = "log2",   [OP_ADD] = "+",         [OP_NEXT_POWER] = "next_pow2",
    [OP_SUBTRACT] = "-",  [OP_MULTIPLY] = "*",    [OP_FLOOR_DIVIDE] = "//",
    [OP_MODULO] = "%",    [OP_POWER] = "**",      [OP_CEIL_DIVIDE] = "ceil_div",
    [OP_MINIMUM] = "min", [OP_MAXIMUM] = "max",   [OP_LESS] = "<",
    [OP_GREATER] = ">",   [OP_LESS_EQUAL] = "<=", [OP_GREATER_EQUAL] = ">=",
};

/* Less than, equal, greater than as -1, 0, 1. Numbers order with numbers and strings with
 * strings. */
static inline bool order(const struct instruction *at, struct value a, struct value b, int *ret,
                         struct error *error) {
  if (is_number(a) && is_number(b)) {
    int64_t x = number(a), y = number(b);
    *ret = (x > y) - (x < y);
    return true;
  }

  if (a.type == VALUE_STRING && b.type == VALUE_STRING) {
    int sign = strcmp(a.string, b.string);
    *ret = (sign > 0) - (sign < 0);
    return true;
  }

  return EXPR_ERROR(error, at->column, "%s cannot order %s and %s", op_texts[at->op], type_name(a),
                    type_name(b));
}

static bool compare(const struct instruction *at, struct value a, struct value b, bool *ret,
                    struct error *error) {
  enum op op = at->op;
  if (op == OP_EQUAL || op == OP_NOT_EQUAL) {
    *ret = equals(a, b) == (op == OP_EQUAL);
    return true;
  }

  if (op == OP_CONTAINED || op == OP_NOT_CONTAINED) {
    if (b.type != VALUE_STRING)
      return EXPR_ERROR(error, at->column,
                        "the right side of in must be a tuple, a list or a string, not %s",
                        type_name(b));
    if (a.type != VALUE_STRING)
      return EXPR_ERROR(error, at->column, "only a string can be in a string, not %s",
                        type_name(a));
    *ret = (strstr(b.string, a.string) != NULL) == (op == OP_CONTAINED);
    return true;
  }

  int sign = 0;
  if (!order(at, a, b, &sign, error))
    return false;

  *ret = op == OP_LESS         ? sign < 0
         : op == OP_LESS_EQUAL ? sign <= 0
         : op == OP_GREATER    ? sign > 0
                               : sign >= 0;
  return true;
}

/* *ret = a ** b; true where it overflows. */
static bool power_overflows(int64_t a, int64_t b, int64_t *ret) {
  for (*ret = 1;;) {
    if (b & 1 && __builtin_mul_overflow(*ret, a, ret))
      return true;
    b >>= 1;
    if (b == 0)
      return false;
    if (__builtin_mul_overflow(a, a, &a))
      return true;
  }
}

/* a becomes a op b. */
static bool binary(const struct instruction *at, struct value *a, struct value b,
                   struct error *error) {
  enum op op = at->op;
  if (!is_number(*a) || !is_number(b))
    return EXPR_ERROR(error, at->column, "%s takes integers, not %s and %s", op_texts[op],
                      type_name(*a), type_name(b));

  int64_t x = number(*a), y = number(b), result = 0;
  bool overflows = false;
  switch (op) {
  case OP_ADD:
    overflows = __builtin_add_overflow(x, y, &result);
    break;
  case OP_SUBTRACT:
    overflows = __builtin_sub_overflow(x, y, &result);
    break;
  case OP_MULTIPLY:
    overflows = __builtin_mul_overflow(x, y, &result);
    break;
  case OP_POWER:
    if (y < 0)
      return EXPR_ERROR(error, at->column,
                        "%lld ** %lld would be a float: the exponent is negative", (long long)x,
                        (long long)y);
    overflows = power_overflows(x, y, &result);
    break;
  default:
    if (y == 0)
      return EXPR_ERROR(error, at->column, "%s by zero", op == OP_MODULO ? "modulo" : "division");
    if (y == -1) { /* the processor traps on INT64_MIN / -1 and on its remainder */
      overflows = op != OP_MODULO && __builtin_sub_overflow(INT64_C(0), x, &result);
    } else {
      int64_t quotient = x / y, rest = x % y;
      bool differs = rest != 0 && (rest < 0) != (y < 0);
      result = op == OP_MODULO        ? (differs ? rest + y : rest)
               : op == OP_CEIL_DIVIDE ? quotient + (rest != 0 && !differs)
                                      : quotient - differs;
    }
  }

  if (overflows && op == OP_CEIL_DIVIDE)
    return EXPR_ERROR(error, at->column, "ceil_div(%lld, %lld) does not fit in 64 bits",
                      (long long)x, (long long)y);
  if (overflows)
    return EXPR_ERROR(error, at->column, "%lld %s %lld does not fit in 64 bits", (long long)x,
                      op_texts[op], (long long)y);

  *a = value_int(result);
  return true;
}

/* a becomes op a. */
static bool unary(const struct instruction *at, struct value *a, struct error *error) {
  const char *text = op_texts[at->op];
  if (!is_number(*a))
    return EXPR_ERROR(error, at->column, "%s takes an integer, not %s", text, type_name(*a));

  int64_t x = number(*a), result = x;
  bool is_negation = at->op == OP_NEGATE || (at->op == OP_ABSOLUTE && x < 0);
  bool is_logarithm = at->op == OP_LOG2 || at->op == OP_NEXT_POWER;
  if (is_negation && __builtin_sub_overflow(INT64_C(0), x, &result))
    return EXPR_ERROR(error, at->column, "%s of %lld does not fit in 64 bits", text, (long long)x);
  if (is_logarithm && x < 1)
    return EXPR_ERROR(error, at->column, "%s(%lld): the argument must be at least 1", text,
                      (long long)x);
  if (at->op == OP_NEXT_POWER && x > INT64_C(1) << 62)
    return EXPR_ERROR(error, at->column, "next_pow2(%lld) does not fit in 64 bits", (long long)x);
  if (at->op == OP_LOG2)
    result = 63 - __builtin_clzll((unsigned long long)x);
  else if (at->op == OP_NEXT_POWER && x > 1)
    result = INT64_C(1) << (64 - __builtin_clzll((unsigned long long)x - 1));
  *a = value_int(result);
  return true;
}

bool expr_eval(const struct expr *expr, const struct value *slots, struct value *ret,
               struct error *error) {
  ALWAYS(expr->is_bound);
  struct value stack[EXPR_STACK_MAX];
  struct value *top = stack; /* the first free element */
  const struct instruction *end = expr->code + expr->n_code;
  for (const struct instruction *at = expr->code; at < end; at++) {
    enum op op = at->op;
    switch (op) {
    case OP_CONSTANT:
      *top++ = at->constant;
      break;
    case OP_LOAD:
      *top = slots[at->operand];
      if (top->type == VALUE_FLOAT) {
        const char *name = expr->names[at->constant.integer];
        return EXPR_ERROR(error, at->column, "\"%s\" is a float, which expressions cannot read",
                          NAME_CUT(name));
      }
      top++;
      break;
    case OP_AND:
    case OP_OR:
      if (value_is_true(top[-1]) == (op == OP_OR))
        at += at->operand;
      else
        top--;
      break;
    case OP_BRANCH:
      top--;
      if (!value_is_true(*top))
        at += at->operand;
      break;
    case OP_JUMP:
      at += at->operand;
      break;
    case OP_NOT:
      top[-1] = value_bool(!value_is_true(top[-1]));
      break;
    case OP_NEGATE:
    case OP_PLUS:
    case OP_ABSOLUTE:
    case OP_NEXT_POWER:
    case OP_LOG2:
      if (!unary(at, &top[-1], error))
        return false;
      break;
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_FLOOR_DIVIDE:
    case OP_CEIL_DIVIDE:
    case OP_MODULO:
    case OP_POWER:
      top--;
      if (!binary(at, &top[-1], top[0], error))
        return false;
      break;
    case OP_MINIMUM:
    case OP_MAXIMUM: {
      int sign = 0;
      top--;
      if (!order(at, top[0], top[-1], &sign, error))
        return false;
      if (op == OP_MINIMUM ? sign < 0 : sign > 0)
        top[-1] = top[0];
      break;
    }
    case OP_EQUAL:
    case OP_NOT_EQUAL:
    case OP_LESS:
    case OP_LESS_EQUAL:
    case OP_GREATER:
    case OP_GREATER_EQUAL:
    case OP_CONTAINED:
    case OP_NOT_CONTAINED: {
      bool result = false;
      top--;
      if (!compare(at, top[-1], top[0], &result, error))
        return false;
      top[-1] = at->operand && result ? top[0] : value_bool(result);
      if (!result)
        at += at->operand;
      break;
    }
    case OP_IN_BEGIN:
      *top++ = value_bool(false);
      break;
    case OP_IN_ELEMENT:
      top--;
      top[-1].boolean |= equals(top[-2], top[0]);
      break;
    case OP_IN_END:
    case OP_NOT_IN_END:
      top--;
      top[-1] = value_bool(top[0].boolean == (op == OP_IN_END));
      break;
    }
  }

  *ret = stack[0];
  return true;
}

bool expr_eval_int(const struct expr *expr, const struct value *slots, int64_t min, int64_t max,
                   int64_t *ret, struct error *error) {
  struct value value;
  if (!expr_eval(expr, slots, &value, error))
    return false;
  if (value.type != VALUE_INT)
    return error_set(error, "the expression gives %s; it must give an integer", type_name(value));
  if (value.integer < min || value.integer > max)
    return error_set(error, "the expression gives %lld; it must give %lld to %lld",
                     (long long)value.integer, (long long)min, (long long)max);

  *ret = value.integer;
  return true;
}
