/* C text and definitions for a compile. */
#include "agent/compile/launch_source.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdarg.h>

/* Writes the list of parameters, or with `are_values` their values from `arguments`. `first` opens
 * the list: "" or "int64_t". */
static void parameters_write(FILE *out, const struct kernel *kernel, const char *first,
                             bool are_values) {
  fputs(kernel->n_arguments == 0 && !*first && !are_values ? "void" : first, out);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    fprintf(out, "%s%s%s%s%s", i || *first ? ", " : "", are_values ? "*(" : "",
            argument->is_buffer && argument->access == ACCESS_READ ? "const " : "",
            dtype_c_type(argument->dtype), argument->is_buffer ? " *" : "");
    if (are_values)
      fprintf(out, " *)arguments[%zu]", i);
  }
}

char *launch_source(const struct kernel *kernel) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);

  ALWAYS(out != NULL);
  fprintf(out, "#include \"%s\"\n#include <stdint.h>\nvoid %s(", kernel->sources[0].path,
          kernel->entry);
  parameters_write(out, kernel, "", false);
  fprintf(out,
          ");\nvoid wavetune_launch(void **arguments);\nvoid wavetune_launch(void **arguments) {\n "
          " %s(",
          kernel->entry);
  parameters_write(out, kernel, "", true);
  fputs(");\n  (void)arguments;\n}\n", out);
  ALWAYS(fclose(out) == 0);

  return text;
}

char *reference_source(const struct kernel *kernel) {
  char *text = NULL, *cases = NULL;
  size_t size = 0, cases_size = 0;
  FILE *out = open_memstream(&text, &size), *switched = open_memstream(&cases, &cases_size);

  ALWAYS(out && switched);
  fprintf(out, "#include \"%s\"\n#include <stdint.h>\n", kernel->reference.source.path);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const char *entry = kernel->arguments[i].reference_entry;
    if (!entry)
      continue;
    /* Which pointers of a captured kernel are const is the reference's own choice. */
    if (!kernel->is_captured) {
      fprintf(out, "double %s(", entry);
      parameters_write(out, kernel, "int64_t", false);
      fputs(");\n", out);
    }
    fprintf(switched, "  case %zu:\n    return %s(", i, entry);
    parameters_write(switched, kernel, "index", true);
    fputs(");\n", switched);
  }

  ALWAYS(fclose(switched) == 0);
  fprintf(out,
          "double wavetune_reference(int argument, int64_t index, void **arguments);\n"
          "double wavetune_reference(int argument, int64_t index, void **arguments) {\n"
          "  switch (argument) {\n%s  }\n"
          "  (void)index, (void)arguments;\n  return __builtin_nan(\"\");\n}\n",
          cases);
  ALWAYS(fclose(out) == 0);
  free(cases);

  return text;
}

char *device_source(const struct kernel *kernel, const struct settings *defines) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);

  ALWAYS(out != NULL);
  fputs(compile_prelude, out);
  array_foreach (define, defines->texts, defines->n) {
    int length = (int)strcspn(*define, "=");
    fprintf(out, "#define %.*s %s\n", length, *define, *define + length + 1);
  }

  fprintf(out, "#include \"%s\"\nextern \"C\" __global__ void %s(", kernel->sources[0].path,
          kernel->entry);
  parameters_write(out, kernel, "", false);
  fputs(");\n", out);
  ALWAYS(fclose(out) == 0);

  return text;
}

char *define_format(const char *name, struct value value) {
  if (value.type == VALUE_NONE)
    return NULL;
  if (value.type == VALUE_BOOL)
    return xasprintf("%s=%d", name, value.boolean);
  if (value.type != VALUE_STRING) {
    cleanup_free char *number = value_format(value, false);
    return xasprintf("%s=%s", name, number);
  }

  bool is_identifier = isalpha((unsigned char)value.string[0]) || value.string[0] == '_';
  for (const char *c = value.string; *c; c++)
    is_identifier &= isalnum((unsigned char)*c) || *c == '_';
  if (is_identifier)
    return xasprintf("%s=%s", name, value.string);

  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fprintf(out, "%s=\"", name);

  for (const unsigned char *c = (const unsigned char *)value.string; *c; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == 0x7f || *c == '?')
      fprintf(out, "\\%03o", *c);
    else
      fputc(*c, out);
  }

  fputc('"', out);
  ALWAYS(fclose(out) == 0);
  return text;
}

void settings_add(struct settings *settings, char *text) {
  *APPEND(settings->texts, settings->n) = text;
}

void settings_print(struct settings *settings, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ALWAYS(vasprintf(APPEND(settings->texts, settings->n), format, arguments) >= 0);
  va_end(arguments);
}

void settings_copy(struct settings *settings, const char *const *texts) {
  for (; *texts; texts++)
    settings_add(settings, xstrdup(*texts));
}

void settings_release(struct settings *settings) {
  array_foreach (text, settings->texts, settings->n)
    free(*text);
  free(settings->texts);
  *settings = (struct settings){0};
}

/* Variables that decide which programs and libraries run, and where they look for files: a config
 * may not set them. */
static bool variable_is_reserved(const char *name) {
  static const char *const patterns[] = {
      "LD_*",
      "COLLECT_*",
      "DYLD_*",
      "BASH_*",
      "CCC_*",
      "GCC_*",
      "CLANG_*",
      "HSA_*",
      "MALLOC_*",
      "WAVETUNE_*",
      "PATH",
      "TMPDIR",
      "TMP",
      "TEMP",
      "HOME",
      "ENV",
      "IFS",
      "COMPILER_PATH",
      "CPATH",
      "LIBRARY_PATH",
      "C_INCLUDE_PATH",
      "CPLUS_INCLUDE_PATH",
      "OBJC_INCLUDE_PATH",
      "LC_ALL",
      "GCONV_PATH", /* the C library loads modules from there */
      "GLIBC_TUNABLES",
      "LOCPATH",
      "NLSPATH",
      "AMD_COMGR_CACHE",
      "AMD_COMGR_CACHE_DIR",
      "DEPENDENCIES_OUTPUT",
      "SUNPRO_DEPENDENCIES",
      "CUDA_PATH",
      "CUDA_HOME",
      "ROCM_PATH",
      "HIP_PATH",
      "HIP_CLANG_PATH",
      "DEVICE_LIB_PATH",
      "HIP_DEVICE_LIB_PATH",
      "LLVM_PATH",
  };

  list_foreach (pattern, patterns)
    if (fnmatch(*pattern, name, 0) == 0)
      return true;
  return false;
}

/* Adds a definition, unless the value is None. */
static void define_add(struct settings *defines, const char *name, struct value value) {
  char *text = define_format(name, value);
  if (text)
    settings_add(defines, text);
}

/* Adds the definition or variable of a parameter. */
static bool parameter_add(const struct parameter *parameter, struct value value,
                          struct settings *defines, struct settings *environment,
                          struct error *error) {
  cleanup_free char *name = xstrdup(parameter->name);
  switch (parameter->role) {
  case ROLE_ENV:
    if (variable_is_reserved(name))
      return error_set(error,
                       "the parameter %s of role env would change which compiler runs or what it "
                       "reads; leave it out of the space",
                       name);
    if (value.type != VALUE_NONE) {
      cleanup_free char *text = value.type == VALUE_BOOL ? xstrdup(value.boolean ? "1" : "0")
                                                         : value_format(value, false);
      settings_print(environment, "%s=%s", name, text);
    }
    return true;
  case ROLE_OPTION: /* of other languages: waves_per_eu is WAVES_PER_EU */
    for (char *c = name; *c; c++)
      *c = (char)toupper((unsigned char)*c);
    break;
  case ROLE_CONSTEXPR:
    break;
  }

  define_add(defines, name, value);
  return true;
}

static bool values_of_request(const struct compile_request *request, struct value *values,
                              struct error *error) {
  return space_config(request->space, request->config, values) ||
         error_set(error, "config %llu is outside of the space, which has %llu configs",
                   (unsigned long long)request->config,
                   (unsigned long long)request->space->raw_count);
}

static bool scope_of_request(const struct compile_request *request, struct scope *scope,
                             struct error *error) {
  struct space_facts facts = {request->key, request->gpu_name ? request->gpu_name : "",
                              request->arch ? request->arch : ""};
  return facts_scope_add(&facts, scope, error) &&
         space_scope_add(request->space, request->config, scope, error);
}

static bool defines_evaluate(const struct kernel *kernel, const struct scope *scope,
                             struct settings *defines, struct error *error) {
  array_foreach (define_at, kernel->defines, kernel->n_defines) {
    const char *name = define_at->name;
    cleanup_expr struct expr *expr = NULL;
    struct value value;
    if (!expr_parse(define_at->value, &expr, error) ||
        !expr_bind(expr, scope->names, scope->n, error) ||
        !expr_eval(expr, scope->values, &value, error))
      return error_prefix(error, "the define %s: ", name);
    define_add(defines, name, value);
  }
  return true;
}

/* Of two definitions of one name a compiler uses the last one or none, which is not what the
 * space states. */
static bool defines_differ(const struct settings *defines, struct error *error) {
  for (size_t i = 0; i < defines->n; i++) {
    size_t length = strcspn(defines->texts[i], "=") + 1;
    for (size_t k = 0; k < i; k++)
      if (strncmp(defines->texts[i], defines->texts[k], length) == 0)
        return error_set(
            error,
            "%.*s is defined twice, as an option in capitals and by its name; rename one of them",
            (int)length - 1, defines->texts[i]);
  }
  return true;
}

bool settings_of_config(const struct compile_request *request, struct settings *defines,
                        struct settings *environment, struct error *error) {
  const struct space *space = request->space;
  struct scope scope = {0};
  struct value values[SPACE_PARAMETERS_MAX];

  if (!values_of_request(request, values, error) || !scope_of_request(request, &scope, error))
    return false;

  for (size_t i = 0; i < space->n_parameters; i++)
    if (!parameter_add(&space->parameters[i], values[i], defines, environment, error))
      return false;

  return defines_evaluate(request->kernel, &scope, defines, error) &&
         defines_differ(defines, error);
}

bool settings_of_reference(const struct compile_request *request, struct settings *defines,
                           struct error *error) {
  const struct kernel *kernel = request->kernel;
  const struct space *space = request->space;
  struct scope scope = {0};
  struct value values[SPACE_PARAMETERS_MAX];
  bool is_named[SPACE_PARAMETERS_MAX + 1] = {false}, is_any = kernel->n_defines > 0;
  array_foreach (argument, kernel->arguments, kernel->n_arguments)
    if (argument->segments)
      is_any = is_named[space_parameter(space, argument->segments)] = true;
  if (!is_any)
    return true;

  if (!values_of_request(request, values, error) || !scope_of_request(request, &scope, error))
    return false;
  for (size_t i = 0; i < space->n_parameters; i++)
    if (is_named[i])
      define_add(defines, space->parameters[i].name, values[i]);
  return defines_evaluate(kernel, &scope, defines, error);
}
