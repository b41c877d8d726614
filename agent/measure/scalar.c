/* Scalar arguments. Memory: none kept. Threads: any. */
#include "agent/measure/scalar.h"

#include "agent/measure/element.h"

static void scalar_range(enum dtype dtype, int64_t *min, int64_t *max) {
  *min = INT64_MIN;
  *max = INT64_MAX;
  if (dtype_is_floating(dtype)) {
    *max = (int64_t)1 << 53;
    *min = -*max;
  } else if (dtype == DTYPE_BOOL || dtype == DTYPE_UINT8 || dtype == DTYPE_UINT16 ||
             dtype == DTYPE_UINT32) {
    *min = 0;
    *max = dtype == DTYPE_BOOL ? 1 : ((int64_t)1 << 8 * dtype_size(dtype)) - 1;
  } else if (dtype == DTYPE_UINT64) {
    *min = 0;
  } else if (dtype != DTYPE_INT64) {
    *max = ((int64_t)1 << (8 * dtype_size(dtype) - 1)) - 1;
    *min = -*max - 1;
  }
}

bool scalar_fits(enum dtype dtype, int64_t value) {
  int64_t min, max;
  scalar_range(dtype, &min, &max);
  return value >= min && value <= max;
}

bool scalar_evaluate(const struct argument *argument, const struct scope *scope, int64_t *ret,
                     struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  struct value value;
  if (!expr_parse(argument->value, &expr, error) ||
      !expr_bind(expr, scope->names, scope->n, error) ||
      !expr_eval(expr, scope->values, &value, error))
    return error_prefix(error, "argument \"%s\": ", argument->name);
  int64_t integer = value.type == VALUE_BOOL  ? value.boolean
                    : value.type == VALUE_INT ? value.integer
                                              : 0;
  if ((value.type != VALUE_BOOL && value.type != VALUE_INT) ||
      !scalar_fits(argument->dtype, integer))
    return error_set(error, "argument \"%s\": %.80s does not give a value of %s", argument->name,
                     argument->value, dtype_name(argument->dtype));
  *ret = integer;
  return true;
}

/* Written as the argument's type: candidates and problems come from malloc, which has no type of
 * its own. */
bool scalar_store(const struct argument *argument, const struct scope *scope, uint64_t *ret_scalar,
                  struct error *error) {
  int64_t integer;
  if (!scalar_evaluate(argument, scope, &integer, error))
    return false;
  *ret_scalar = 0;
  if (dtype_size(argument->dtype) == 8 && !dtype_is_floating(argument->dtype))
    *ret_scalar = (uint64_t)integer;
  else
    element_set(argument->dtype, ret_scalar, 0, (double)integer);
  return true;
}
