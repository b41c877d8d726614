/* A manifest's expressions with the values of a key and of a config. */
#include "common/kernel/segments.h"

#define OCCUPANCY_MAX 64 /* more workgroups than a compute unit of any target holds */

bool facts_scope_add(const struct space_facts *facts, struct scope *scope, struct error *error) {
  return key_scope_add(facts->key, scope, error) &&
         scope_add(scope, "gpu_name", value_string(facts->gpu_name), error) &&
         scope_add(scope, "arch", value_string(facts->arch), error);
}

bool argument_elements(const struct argument *argument, const struct scope *scope,
                       int64_t *ret_elements, struct error *error) {
  ALWAYS(argument->is_buffer);
  int64_t elements = 1;
  if (!argument->n_dimensions)
    return error_set(error, "the kernel is captured: a build's case states how large \"%s\" is",
                     argument->name);
  for (size_t i = 0; i < argument->n_dimensions; i++) {
    int64_t extent;
    if (!expr_int_in_scope(argument->shape[i], scope, 1, ELEMENTS_MAX, &extent, error))
      return error_prefix(error, "extent %zu of argument \"%s\", %.80s: ", i, argument->name,
                          argument->shape[i]);
    if (extent > ELEMENTS_MAX / elements)
      return error_set(error, "argument \"%s\" would have more than 2^40 elements", argument->name);
    elements *= extent;
  }

  *ret_elements = elements;
  return true;
}

bool scalar_evaluate(const struct argument *argument, const struct scope *scope, struct value *ret,
                     struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  struct value value;
  if (argument->literal.type != VALUE_NONE) { /* kernel_of_case has checked it */
    *ret = argument->literal;
    return true;
  }
  if (!expr_parse(argument->value, &expr, error) ||
      !expr_bind(expr, scope->names, scope->n, error) ||
      !expr_eval(expr, scope->values, &value, error))
    return error_prefix(error, "argument \"%s\": ", argument->name);

  int64_t integer = value.type == VALUE_BOOL  ? value.boolean
                    : value.type == VALUE_INT ? value.integer
                                              : 0;
  if ((value.type != VALUE_BOOL && value.type != VALUE_INT) ||
      !dtype_holds(argument->dtype, integer))
    return error_set(error, "argument \"%s\": %.80s does not give a value of %s", argument->name,
                     argument->value, dtype_name(argument->dtype));

  *ret = value_int(integer);
  return true;
}

/* Says that `text`, an expression of the kernel, has no value that can be used, and points to what
 * is at fault. The first slots of a scope are the key's. Returns false. */
static bool expression_error(const char *text, const struct scope *scope, const struct key *key,
                             struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  struct error no_reads;
  const char *name = NULL;
  size_t n = 0;
  bool is_bound =
      expr_parse(text, &expr, &no_reads) && expr_bind(expr, scope->names, scope->n, &no_reads);
  for (size_t i = 0; i < key->n && is_bound; i++)
    if (expr_reads(expr, i)) {
      name = key->names[i];
      n++;
    }

  if (n == 1)
    json_pointer_member(error->pointer, sizeof error->pointer, "/key", name);
  else
    snprintf(error->pointer, sizeof error->pointer, n ? "/key" : "/kernel");
  return error_prefix(error, "the kernel cannot be launched with this key: ");
}

bool kernel_takes_key(const struct kernel *kernel, const struct space *space,
                      const struct launch_facts *facts, struct error *error) {
  struct scope scope = {0};
  if (kernel->is_captured) /* a build's case states what is passed */
    return true;
  if (!facts_scope_add(&facts->facts, &scope, error))
    return false;

  array_foreach (argument, kernel->arguments, kernel->n_arguments) {
    cleanup_segments struct segments segments = {0};
    const char *text;
    if (!argument->is_buffer ||
        segments_find(argument, space, &facts->facts, &segments, &text, error))
      continue;
    struct error ignored;
    if (argument->segments)
      ALWAYS(scope_add(&scope, argument->segments, value_none(), &ignored));
    return expression_error(text, &scope, facts->facts.key, error);
  }
  return true;
}

/* Whether an extent of the launch has a value for any occupancy. */
static bool extent_has_value(const char *text, int64_t min, struct scope *scope,
                             struct error *error) {
  struct error first;
  for (int64_t occupancy = 1; occupancy <= OCCUPANCY_MAX; occupancy++) {
    int64_t extent;
    if (!scope_add(scope, "occupancy", value_int(occupancy), error))
      return false;
    if (expr_int_in_scope(text, scope, min, LAUNCH_EXTENT_MAX, &extent, error))
      return true;
    if (occupancy == 1)
      first = *error;
  }

  *error = first;
  return false;
}

static bool launch_has_values(const struct launch *launch, const struct key *key,
                              struct scope *scope, struct error *error) {
  const struct {
    const char *what;
    char *const *texts;
    size_t n;
    int64_t min;
  } parts[] = {{"the block", launch->block, launch->n_block, 1},
               {"\"shared_bytes\"", &launch->shared_bytes, launch->shared_bytes != NULL, 0},
               {"the grid", launch->grid, launch->n_grid, 0}};
  for (size_t p = 0; p < ARRAY_LENGTH(parts); p++)
    for (size_t i = 0; i < parts[p].n; i++)
      if (!extent_has_value(parts[p].texts[i], parts[p].min, scope, error)) {
        error_prefix(error, "%s, %.80s: ", parts[p].what, parts[p].texts[i]);
        return expression_error(parts[p].texts[i], scope, key, error);
      }
  return true;
}

bool kernel_takes_config(const struct kernel *kernel, const struct space *space, uint64_t config,
                         const struct launch_facts *facts, struct error *error) {
  const struct key *key = facts->facts.key;
  struct scope scope = {0};
  struct value value;
  if (kernel->is_captured)
    return true;
  if (!facts_scope_add(&facts->facts, &scope, error) ||
      !space_scope_add(space, config, &scope, error))
    return false;

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (!argument->is_buffer && !scalar_evaluate(argument, &scope, &value, error))
      return expression_error(argument->value, &scope, key, error);
  }

  for (size_t i = 0; i < kernel->n_defines; i++) {
    const struct define *define = &kernel->defines[i];
    cleanup_expr struct expr *expr = NULL;
    if (expr_parse(define->value, &expr, error) && expr_bind(expr, scope.names, scope.n, error) &&
        expr_eval(expr, scope.values, &value, error))
      continue;
    error_prefix(error, "the define %s, %.80s: ", define->name, define->value);
    return expression_error(define->value, &scope, key, error);
  }

  if (facts->cus < 1 || facts->warp_size < 1)
    return true;
  return scope_add(&scope, "cus", value_int(facts->cus), error) &&
         scope_add(&scope, "warp_size", value_int(facts->warp_size), error) &&
         launch_has_values(&kernel->launch, key, &scope, error);
}
