/* Segments of buffers, evaluated. */
#include "common/kernel/segments.h"

/* Adds the distinct values of the argument's member, in the order of the space. */
static bool values_find(const struct argument *argument, const struct space *space,
                        struct segments *segments, struct error *error) {
  size_t column = space_parameter(space, argument->segments);
  if (column == space->n_parameters)
    return error_set(error, "argument \"%s\": the space has no parameter \"%.64s\"", argument->name,
                     argument->segments);

  size_t n = space->is_list ? space->raw_count : space->parameters[column].n_values;
  for (size_t i = 0; i < n; i++) {
    struct value value = space->is_list ? space->list[i * space->n_parameters + column]
                                        : space->parameters[column].values[i];
    size_t k = 0;
    while (k < segments->n && !value_equal(segments->all[k].value, value))
      k++;
    if (k < segments->n)
      continue;
    if (k == SEGMENTS_MAX)
      return error_set(error, "argument \"%s\": \"%s\" has more than %d values in the space",
                       argument->name, argument->segments, SEGMENTS_MAX);
    APPEND(segments->all, segments->n)->value = value;
  }
  return true;
}

/* An expression of a routed fill. */
static bool number_evaluate(const char *text, const struct scope *scope, int64_t most, int64_t *ret,
                            const char **ret_text, struct error *error) {
  *ret_text = text;
  return expr_int_in_scope(text, scope, 1, most, ret, error) ||
         error_prefix(error, "%.80s: ", text);
}

static bool by_row_evaluate(const char *text, const struct scope *scope, bool *ret,
                            const char **ret_text, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  struct value value;
  if (!text)
    return true;
  *ret_text = text;
  if (!expr_parse(text, &expr, error) || !expr_bind(expr, scope->names, scope->n, error) ||
      !expr_eval(expr, scope->values, &value, error))
    return error_prefix(error, "%.80s: ", text);
  *ret = value_is_true(value);
  return true;
}

static bool routing_evaluate(const struct argument *argument, const struct scope *scope,
                             struct segment *segment, const char **ret_text, struct error *error) {
  const struct routed *routed = &argument->fill.routed;
  struct routing *routing = &segment->routing;
  *routing = (struct routing){.what = routed->what, .skew = routed->skew};
  if (!number_evaluate(routed->tokens, scope, INT32_MAX, &routing->tokens, ret_text, error) ||
      !number_evaluate(routed->experts, scope, ROUTED_EXPERTS_MAX, &routing->experts, ret_text,
                       error) ||
      !number_evaluate(routed->top_k, scope, ROUTED_TOP_K_MAX, &routing->top_k, ret_text, error) ||
      !number_evaluate(routed->block, scope, 1 << 20, &routing->block, ret_text, error) ||
      !by_row_evaluate(routed->by_row, scope, &routing->by_row, ret_text, error))
    return false;

  *ret_text = routed->top_k;
  if (routing->top_k > routing->experts)
    return error_set(error, "a token cannot go to %lld of %lld experts", (long long)routing->top_k,
                     (long long)routing->experts);

  *ret_text = routed->tokens;
  int64_t rows = routing->tokens * routing->top_k, ids = rows * routing->block,
          shared = rows + routing->experts * (routing->block - 1); /* none overflows */
  if (rows > ROUTED_ROWS_MAX)
    return error_set(error, "%lld tokens for %lld experts each are more than %d rows",
                     (long long)routing->tokens, (long long)routing->top_k, ROUTED_ROWS_MAX);
  if (!routing->by_row && shared < ids)
    ids = shared;
  if (argument->dtype == DTYPE_INT32 && ids > INT32_MAX)
    return error_set(error, "%lld ids are more than int32 counts", (long long)ids);

  int64_t needed = routed->what == ROUTED_COUNT     ? 1
                   : routed->what == ROUTED_EXPERTS ? (ids + routing->block - 1) / routing->block
                                                    : ids;
  *ret_text = argument->shape[0];
  return segment->elements >= needed ||
         error_set(error,
                   "it has %lld elements, and %lld tokens for %lld of %lld experts each in blocks "
                   "of %lld may need %lld",
                   (long long)segment->elements, (long long)routing->tokens,
                   (long long)routing->top_k, (long long)routing->experts,
                   (long long)routing->block, (long long)needed);
}

static bool segment_evaluate(const struct argument *argument, const struct scope *scope,
                             struct segment *segment, const char **ret_text, struct error *error) {
  if (argument_elements(argument, scope, &segment->elements, error)) {
    if (argument->fill.kind != FILL_ROUTED ||
        routing_evaluate(argument, scope, segment, ret_text, error))
      return true;
    return error_prefix(error, "argument \"%s\": ", argument->name);
  }

  /* Where each extent is good, there are too many elements. */
  struct error of_extent;
  int64_t extent;
  size_t bad = 0;
  while (bad < argument->n_dimensions &&
         expr_int_in_scope(argument->shape[bad], scope, 1, ELEMENTS_MAX, &extent, &of_extent))
    bad++;
  if (argument->n_dimensions)
    *ret_text = argument->shape[bad < argument->n_dimensions ? bad : 0];
  return false;
}

bool segments_find(const struct argument *argument, const struct space *space,
                   const struct space_facts *facts, struct segments *ret_segments,
                   const char **ret_text, struct error *error) {
  cleanup_segments struct segments segments = {0};
  struct scope scope = {0};
  size_t size = dtype_size(argument->dtype), offset = 0;
  *ret_text = "";
  if (!facts_scope_add(facts, &scope, error))
    return false;
  if (!argument->segments)
    APPEND(segments.all, segments.n);
  else if (!values_find(argument, space, &segments, error))
    return false;

  array_foreach (segment, segments.all, segments.n) {
    segment->offset = (offset + SEGMENT_ALIGNMENT - 1) / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
    if (argument->segments && !scope_add(&scope, argument->segments, segment->value, error))
      return false;
    if (!segment_evaluate(argument, &scope, segment, ret_text, error)) {
      cleanup_free char *value = value_format(segment->value, true);
      return argument->segments ? error_prefix(error, "%s = %s: ", argument->segments, value)
                                : false;
    }
    offset = segment->offset + (size_t)segment->elements * size;
  }

  segments.elements = (int64_t)(offset / size);
  *ret_segments = segments;
  segments = (struct segments){0};
  return true;
}

void segments_release(struct segments *segments) {
  free(segments->all);
  *segments = (struct segments){0};
}

size_t segment_of(const struct argument *argument, const struct segments *segments,
                  const struct space *space, uint64_t config) {
  struct value values[SPACE_PARAMETERS_MAX];
  size_t i = 0;
  if (!argument->segments)
    return 0;
  ALWAYS(space_config(space, config, values));
  while (!value_equal(segments->all[i].value, values[space_parameter(space, argument->segments)]))
    i++;
  return i;
}
