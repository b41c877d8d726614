/* Whether a kernel, a key and a space go together, before anything is compiled or launched.
 *
 * Pointers are those of a job: "/key", "/space/…", "/kernel". Memory: borrows everything. Threads:
 * any. */
#include "common/kernel/kernel_parse.h"

#define NAMES_MAX (KEY_MEMBERS_MAX + SPACE_PARAMETERS_MAX + KERNEL_LAUNCH_FACTS)

/* What expressions may read. The facts come last, those for launches behind the others, so that a
 * prefix of the names is what a plain expression knows. */
struct names {
  size_t n_plain, n_launch;
  const char *names[NAMES_MAX];
};

static bool key_fits(const struct kernel *kernel, const struct key *key, struct error *error) {
  bool fits = key->n == kernel->n_key_names;
  for (size_t i = 0; fits && i < key->n; i++)
    fits = string_equal(key->names[i], kernel->key_names[i]);
  if (fits)
    return true;
  cleanup_free char *list = xstrdup("");
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    char *longer = xasprintf("%s%s%s", list, i ? ", " : "", kernel->key_names[i]);
    free(list);
    list = longer;
  }
  return error_at(error, "/key", "the key of kernel \"%s\" must have exactly the members %s",
                  kernel->name, list[0] ? list : "{}");
}

static bool parameter_fits(const struct kernel *kernel, const struct parameter *parameter,
                           struct error *error) {
  const char *name = parameter->name;
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, "/space/parameters", name);
  if (name_is_reserved(name))
    return error_at(error, at,
                    "parameter \"%s\" has a meaning in expressions already; name it otherwise",
                    name);
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    if (string_equal(name, kernel->key_names[i]))
      return error_at(error, at,
                      "\"%s\" is a parameter and a member of the key; name one of them otherwise",
                      name);
  }
  if (parameter->role == ROLE_OPTION && kernel->language == LANGUAGE_C)
    return error_at(error, json_pointer_member(at, sizeof at, "/space/roles", name),
                    "parameter \"%s\" has the role \"option\", which a kernel in c does not know; "
                    "use \"define\"",
                    name);
  if (parameter->role != ROLE_CONSTEXPR || kernel->language == LANGUAGE_TRITON)
    return true;
  /* It becomes a macro of the sources, where the prototype and the defines stand too. */
  for (size_t i = 0; i < kernel->n_defines; i++) {
    if (string_equal(name, kernel->defines[i].name))
      return error_at(error, at, "parameter \"%s\" is also a define of kernel \"%s\"", name,
                      kernel->name);
  }
  bool is_taken = string_equal(name, kernel->entry);
  for (size_t i = 0; i < kernel->n_arguments; i++)
    is_taken = is_taken || string_equal(name, kernel->arguments[i].name);
  return !is_taken ||
         error_at(error, at,
                  "parameter \"%s\" would replace the argument or entry point of that name", name);
}

/* An option's name is put in capitals before it becomes a definition. */
static bool parameter_is_plain(const struct parameter *parameter, struct error *error) {
  const char *name = parameter->name;
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, "/space/parameters", name);
  if (parameter->role == ROLE_ENV)
    return error_at(error, at,
                    "parameter \"%s\" of role env changes the compiler's environment, which nobody "
                    "signed; leave it out "
                    "of the space",
                    name);
  if (name[0] != '_' && (parameter->role == ROLE_OPTION ||
                         !name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")]))
    return true;
  return error_at(error, at,
                  "parameter \"%s\" could rename what the signed sources use, and nobody signed "
                  "the space; name it in "
                  "capitals, digits and _, a letter first",
                  name);
}

bool kernel_space_is_plain(const struct kernel *kernel, const struct space *space,
                           struct error *error) {
  for (size_t i = 0; kernel->language != LANGUAGE_TRITON && i < space->n_parameters; i++)
    if (!parameter_is_plain(&space->parameters[i], error))
      return false;
  return true;
}

static struct names names_of(const struct kernel *kernel, const struct space *space) {
  struct names names = {0};
  size_t n = 0;
  for (size_t i = 0; i < kernel->n_key_names; i++)
    names.names[n++] = kernel->key_names[i];
  for (size_t i = 0; i < space->n_parameters; i++)
    names.names[n++] = space->parameters[i].name;
  for (size_t i = 0; i < KERNEL_LAUNCH_FACTS; i++)
    names.names[n++] = kernel_fact_names[i];
  names.n_launch = n;
  names.n_plain = n - KERNEL_LAUNCH_FACTS + KERNEL_FACTS;
  return names;
}

static bool text_binds(const char *text, const struct names *names, size_t n, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error) && expr_bind(expr, names->names, n, error);
}

/* `text` may be NULL: nothing to bind. `place` is where in the manifest it stands. */
static bool kernel_text_binds(const struct kernel *kernel, const char *place, const char *text,
                              const struct names *names, size_t n, struct error *error) {
  if (!text || text_binds(text, names, n, error))
    return true;
  snprintf(error->pointer, sizeof error->pointer, "/kernel");
  return error_prefix(error, "%s of kernel \"%s\": ", place, kernel->name);
}

static bool arguments_bind(const struct kernel *kernel, const struct names *names,
                           struct error *error) {
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    cleanup_free char *place = xasprintf("argument \"%s\"", argument->name);
    if (!kernel_text_binds(kernel, place, argument->value, names, names->n_plain, error))
      return false;
    for (size_t j = 0; j < argument->n_dimensions; j++) {
      if (!kernel_text_binds(kernel, place, argument->shape[j], names, names->n_plain, error))
        return false;
    }
  }
  return true;
}

static bool launch_binds(const struct kernel *kernel, const struct names *names,
                         struct error *error) {
  for (size_t i = 0; i < kernel->launch.n_grid; i++) {
    if (!kernel_text_binds(kernel, "the grid", kernel->launch.grid[i], names, names->n_launch,
                           error))
      return false;
  }
  for (size_t i = 0; i < kernel->launch.n_block; i++) {
    if (!kernel_text_binds(kernel, "the block", kernel->launch.block[i], names, names->n_launch,
                           error))
      return false;
  }
  return kernel_text_binds(kernel, "\"shared_bytes\"", kernel->launch.shared_bytes, names,
                           names->n_launch, error);
}

static bool kernel_binds(const struct kernel *kernel, const struct names *names,
                         struct error *error) {
  for (size_t i = 0; i < kernel->n_defines; i++) {
    cleanup_free char *place = xasprintf("define \"%s\"", kernel->defines[i].name);
    if (!kernel_text_binds(kernel, place, kernel->defines[i].value, names, names->n_plain, error))
      return false;
  }
  return arguments_bind(kernel, names, error) && launch_binds(kernel, names, error) &&
         kernel_text_binds(kernel, "\"flops\"", kernel->flops, names, names->n_plain, error) &&
         kernel_text_binds(kernel, "\"bytes\"", kernel->bytes, names, names->n_plain, error);
}

bool kernel_accepts(const struct kernel *kernel, const struct key *key, const struct space *space,
                    struct error *error) {
  if (kernel->language == LANGUAGE_EXTERNAL)
    return error_at(error, "/kernel",
                    "kernel \"%s\" is known by name only, from an imported table: register the "
                    "kernel itself to tune it",
                    kernel->name);
  if (!key_fits(kernel, key, error))
    return false;
  for (size_t i = 0; i < space->n_parameters; i++) {
    if (!parameter_fits(kernel, &space->parameters[i], error))
      return false;
  }
  struct names names = names_of(kernel, space);
  if (!kernel_binds(kernel, &names, error))
    return false;
  for (size_t i = 0; i < space->n_conditions; i++) {
    char at[JSON_POINTER_SIZE];
    if (!text_binds(space->conditions[i], &names, names.n_plain, error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/space/conditions", i));
  }
  return true;
}
