/* Evaluation of a bound expression: Python's semantics over 64-bit integers, where what would
 * overflow or become a float is an error. Neither allocates nor recurses. Threads: any number may
 * evaluate one expression. */
#include "common/base/names.h"
#include "common/space/expr_code.h"

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

static const char *op_text(enum op op) {
  switch (op) {
  case OP_NEGATE:
  case OP_SUBTRACT:
    return "-";
  case OP_PLUS:
  case OP_ADD:
    return "+";
  case OP_MULTIPLY:
    return "*";
  case OP_FLOOR_DIVIDE:
    return "//";
  case OP_MODULO:
    return "%";
  case OP_POWER:
    return "**";
  case OP_LESS:
    return "<";
  case OP_LESS_EQUAL:
    return "<=";
  case OP_GREATER:
    return ">";
  case OP_GREATER_EQUAL:
    return ">=";
  case OP_MINIMUM:
    return "min";
  case OP_MAXIMUM:
    return "max";
  case OP_ABSOLUTE:
    return "abs";
  case OP_CEIL_DIVIDE:
    return "ceil_div";
  case OP_NEXT_POWER:
    return "next_pow2";
  case OP_LOG2:
    return "log2";
  default:
    return "in";
  }
}

static bool overflow(const struct instruction *at, int64_t a, int64_t b, struct error *error) {
  bool is_call = at->op == OP_CEIL_DIVIDE;
  return EXPR_ERROR(error, at->column, "%s%lld%s%s%s%lld%s does not fit in 64 bits",
                    is_call ? "ceil_div(" : "", (long long)a, is_call ? ", " : " ",
                    is_call ? "" : op_text(at->op), is_call ? "" : " ", (long long)b,
                    is_call ? ")" : "");
}

static bool order_refused(const struct instruction *at, struct value a, struct value b,
                          struct error *error) {
  return EXPR_ERROR(error, at->column, "%s cannot order %s and %s", op_text(at->op), type_name(a),
                    type_name(b));
}

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
  return order_refused(at, a, b, error);
}

static bool compare(const struct instruction *at, struct value a, struct value b, bool *ret,
                    struct error *error) {
  int sign = 0;
  switch (at->op) {
  case OP_EQUAL:
    *ret = equals(a, b);
    return true;
  case OP_NOT_EQUAL:
    *ret = !equals(a, b);
    return true;
  case OP_CONTAINED:
  case OP_NOT_CONTAINED:
    if (b.type != VALUE_STRING)
      return EXPR_ERROR(error, at->column,
                        "the right side of in must be a tuple, a list or a string, not %s",
                        type_name(b));
    if (a.type != VALUE_STRING)
      return EXPR_ERROR(error, at->column, "only a string can be in a string, not %s",
                        type_name(a));
    *ret = (strstr(b.string, a.string) != NULL) == (at->op == OP_CONTAINED);
    return true;
  default:
    break;
  }
  if (!order(at, a, b, &sign, error))
    return false;
  *ret = at->op == OP_LESS         ? sign < 0
         : at->op == OP_LESS_EQUAL ? sign <= 0
         : at->op == OP_GREATER    ? sign > 0
                                   : sign >= 0;
  return true;
}

static bool floor_divide(const struct instruction *at, int64_t a, int64_t b, int64_t *ret,
                         struct error *error) {
  if (b == 0)
    return EXPR_ERROR(error, at->column, "%s by zero", at->op == OP_MODULO ? "modulo" : "division");
  if (b == -1) { /* the processor traps on INT64_MIN / -1 and on its remainder */
    if (at->op == OP_MODULO)
      *ret = 0;
    else if (__builtin_sub_overflow(INT64_C(0), a, ret))
      return overflow(at, a, b, error);
    return true;
  }
  int64_t quotient = a / b, rest = a % b;
  bool differs = rest != 0 && (rest < 0) != (b < 0);
  if (at->op == OP_MODULO)
    *ret = differs ? rest + b : rest;
  else
    *ret = at->op == OP_CEIL_DIVIDE ? quotient + (rest != 0 && !differs) : quotient - differs;
  return true;
}

static bool power(const struct instruction *at, int64_t base, int64_t exponent, int64_t *ret,
                  struct error *error) {
  if (exponent < 0)
    return EXPR_ERROR(error, at->column, "%lld ** %lld would be a float: the exponent is negative",
                      (long long)base, (long long)exponent);
  int64_t result = 1, square = base;
  for (int64_t left = exponent;;) {
    if (left & 1 && __builtin_mul_overflow(result, square, &result))
      return overflow(at, base, exponent, error);
    left >>= 1;
    if (left == 0)
      break;
    if (__builtin_mul_overflow(square, square, &square))
      return overflow(at, base, exponent, error);
  }
  *ret = result;
  return true;
}

static bool arithmetic(const struct instruction *at, struct value a, struct value b, int64_t *ret,
                       struct error *error) {
  if (!is_number(a) || !is_number(b))
    return EXPR_ERROR(error, at->column, "%s takes integers, not %s and %s", op_text(at->op),
                      type_name(a), type_name(b));
  int64_t x = number(a), y = number(b);
  bool overflows;
  switch (at->op) {
  case OP_ADD:
    overflows = __builtin_add_overflow(x, y, ret);
    break;
  case OP_SUBTRACT:
    overflows = __builtin_sub_overflow(x, y, ret);
    break;
  case OP_MULTIPLY:
    overflows = __builtin_mul_overflow(x, y, ret);
    break;
  case OP_POWER:
    return power(at, x, y, ret, error);
  default:
    return floor_divide(at, x, y, ret, error);
  }
  return !overflows || overflow(at, x, y, error);
}

static bool unary(const struct instruction *at, struct value a, int64_t *ret, struct error *error) {
  if (!is_number(a))
    return EXPR_ERROR(error, at->column, "%s takes an integer, not %s", op_text(at->op),
                      type_name(a));
  int64_t x = number(a);
  switch (at->op) {
  case OP_NEGATE:
  case OP_ABSOLUTE:
    if (x == INT64_MIN)
      return EXPR_ERROR(error, at->column, "%s of %lld does not fit in 64 bits", op_text(at->op),
                        (long long)x);
    *ret = at->op == OP_NEGATE || x < 0 ? -x : x;
    return true;
  case OP_NEXT_POWER:
  case OP_LOG2:
    if (x < 1)
      return EXPR_ERROR(error, at->column, "%s(%lld): the argument must be at least 1",
                        op_text(at->op), (long long)x);
    if (at->op == OP_LOG2) {
      *ret = 63 - __builtin_clzll((unsigned long long)x);
      return true;
    }
    if (x > INT64_C(1) << 62)
      return EXPR_ERROR(error, at->column, "next_pow2(%lld) does not fit in 64 bits", (long long)x);
    *ret = x == 1 ? 1 : INT64_C(1) << (64 - __builtin_clzll((unsigned long long)x - 1));
    return true;
  default:
    *ret = x;
    return true;
  }
}

static bool float_refused(const struct instruction *at, const char *name, struct error *error) {
  char text[NAME_TEXT_SIZE];
  return EXPR_ERROR(error, at->column, "\"%s\" is a float, which expressions cannot read",
                    name_cut(name, strlen(name), text));
}

bool expr_eval(const struct expr *expr, const struct value *slots, struct value *ret,
               struct error *error) {
  ALWAYS(expr->is_bound);
  struct value stack[EXPR_STACK_MAX];
  struct value *top = stack; /* the first free one */
  const struct instruction *end = expr->code + expr->n_code;
  for (const struct instruction *at = expr->code; at < end; at++) {
    switch ((enum op)at->op) {
    case OP_CONSTANT:
      *top++ = at->constant;
      break;
    case OP_LOAD:
      *top = slots[at->operand];
      if (top->type == VALUE_FLOAT)
        return float_refused(at, expr->names[at->constant.integer], error);
      top++;
      break;
    case OP_AND:
    case OP_OR:
      if (value_is_true(top[-1]) == (at->op == OP_OR))
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
    case OP_LOG2: {
      int64_t result = 0;
      if (!unary(at, top[-1], &result, error))
        return false;
      top[-1] = value_int(result);
      break;
    }
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_FLOOR_DIVIDE:
    case OP_MODULO:
    case OP_POWER:
    case OP_CEIL_DIVIDE: {
      int64_t result = 0;
      top--;
      if (!arithmetic(at, top[-1], top[0], &result, error))
        return false;
      top[-1] = value_int(result);
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
      if (at->operand && result) {
        top[-1] = top[0];
      } else {
        top[-1] = value_bool(result);
        at += at->operand;
      }
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
      top[-1] = value_bool(top[0].boolean == (at->op == OP_IN_END));
      break;
    case OP_MINIMUM:
    case OP_MAXIMUM: {
      int sign = 0;
      top--;
      if (!order(at, top[0], top[-1], &sign, error))
        return false;
      if (at->op == OP_MINIMUM ? sign < 0 : sign > 0)
        top[-1] = top[0];
      break;
    }
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
