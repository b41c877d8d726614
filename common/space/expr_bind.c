/* Names of expressions: binding them to slots, and scopes, which are lists of named values.
 *
 * Threads: binding writes to the expr; one thread then. */
#include "common/base/names.h"
#include "common/space/expr_code.h"

_Static_assert(8 * sizeof(((struct expr *)0)->reads) == ARRAY_LENGTH(((struct scope *)0)->names),
               "one bit a slot");

/* The index of the last of equal names, -1 when there is none. */
static int slot_find(const char *name, const char *const *names, size_t n_names) {
  for (size_t i = n_names; i-- > 0;)
    if (strcmp(names[i], name) == 0)
      return (int)i;
  return -1;
}

static bool name_is_unknown(unsigned column, const char *name, const char *const *names,
                            size_t n_names, struct error *error) {
  char text[NAME_TEXT_SIZE];
  EXPR_ERROR(error, column, "unknown name \"%s\"", name_cut(name, strlen(name), text));
  error_suggest(error, name, names, n_names);
  return false;
}

bool expr_bind(struct expr *expr, const char *const *names, size_t n_names, struct error *error) {
  ALWAYS(n_names <= 8 * sizeof expr->reads);
  memset(expr->reads, 0, sizeof expr->reads);
  expr->last_slot = -1;
  expr->is_bound = false;
  cleanup_free int *slots = xcalloc(expr->n_names, sizeof *slots);
  for (size_t i = 0; i < expr->n_names; i++)
    slots[i] = slot_find(expr->names[i], names, n_names);
  for (size_t i = 0; i < expr->n_code; i++) {
    struct instruction *load = &expr->code[i];
    if (load->op != OP_LOAD)
      continue;
    size_t name = (size_t)load->constant.integer;
    int slot = slots[name];
    if (slot < 0)
      return name_is_unknown(load->column, expr->names[name], names, n_names, error);
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
  while (i < scope->n && strcmp(scope->names[i], name) != 0)
    i++;
  if (i == ARRAY_LENGTH(scope->names)) {
    char text[NAME_TEXT_SIZE];
    return error_set(error, "no room for \"%s\": expressions read at most %zu names",
                     name_cut(name, strlen(name), text), ARRAY_LENGTH(scope->names));
  }
  scope->names[i] = name;
  scope->values[i] = value;
  if (i == scope->n)
    scope->n++;
  return true;
}

bool expr_int_in_scope(const char *text, const struct scope *scope, int64_t min, int64_t max,
                       int64_t *ret, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error) && expr_bind(expr, scope->names, scope->n, error) &&
         expr_eval_int(expr, scope->values, min, max, ret, error);
}
