/* Binding recorded tuning keys. Memory: what the header says. Threads: any; pure functions. */
#include "common/cache/tuning_key.h"

#include "common/cache/python_text.h"

static bool bind_part(const char *text, const char *const *names, size_t n_names,
                      struct tuning_key_part *ret, struct error *error) {
  for (size_t i = 0; i < n_names; i++) {
    if (strcmp(text, names[i]) == 0) {
      *ret = (struct tuning_key_part){.member = i};
      return true;
    }
  }
  cleanup_expr struct expr *expr = NULL;
  if (!expr_parse(text, &expr, error) || !expr_bind(expr, names, n_names, error))
    return false;
  *ret = (struct tuning_key_part){.expr = TAKE(expr)};
  return true;
}

static const char *argument_value(const struct kernel *kernel, const char *name) {
  for (size_t i = 0; kernel && i < kernel->n_arguments; i++) {
    if (strcmp(kernel->arguments[i].name, name) == 0)
      return kernel->arguments[i].value;
  }
  return NULL;
}

static void take_dtypes(const struct function_record *record, const struct kernel *kernel,
                        struct tuning_key *key) {
  key->dtypes = xcalloc(record->n_dtypes + KERNEL_ARGUMENTS_MAX, sizeof(char *));
  for (size_t i = 0; i < record->n_dtypes; i++)
    key->dtypes[key->n_dtypes++] = xstrdup(record->dtypes[i]);
  for (size_t i = 0; kernel && !record->n_dtypes && i < kernel->n_arguments; i++) {
    if (kernel->arguments[i].is_buffer)
      key->dtypes[key->n_dtypes++] = xasprintf("torch.%s", dtype_name(kernel->arguments[i].dtype));
  }
}

bool tuning_key_bind(const struct function_record *record, const struct kernel *kernel,
                     const char *const *key_names, size_t n_key_names, struct tuning_key *ret,
                     struct error *error) {
  __attribute__((cleanup(tuning_key_release))) struct tuning_key key = {
      .parts = xcalloc(record->n_key_names + 1, sizeof *key.parts)};
  for (size_t i = 0; i < record->n_key_names; i++) {
    struct tuning_key_part *part = &key.parts[key.n++];
    const char *value = argument_value(kernel, record->key_names[i]);
    if (!bind_part(record->tuning_key[i], key_names, n_key_names, part, error) &&
        !(value && bind_part(value, key_names, n_key_names, part, error)))
      return error_prefix(
          error, "the value of \"%.60s\" in the function's tuning key: ", record->key_names[i]);
  }
  take_dtypes(record, kernel, &key);
  *ret = key;
  key = (struct tuning_key){0};
  return true;
}

void tuning_key_release(struct tuning_key *key) {
  for (size_t i = 0; i < key->n; i++) {
    if (key->parts[i].expr)
      expr_free(key->parts[i].expr);
  }
  free(key->parts);
  strings_free(key->dtypes, key->n_dtypes);
  *key = (struct tuning_key){0};
}
