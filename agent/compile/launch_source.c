/* C text and definitions for a compile. Memory: the caller owns what is returned. Threads: any. */
#include "agent/compile/launch_source.h"

#include <ctype.h>

static void type_write(FILE *out, const struct argument *argument) {
  fprintf(out, "%s%s%s", argument->is_buffer && argument->access == ACCESS_READ ? "const " : "",
          dtype_c_type(argument->dtype), argument->is_buffer ? " *" : "");
}

/* `first` opens the list: "" or "int64_t". */
static void parameter_types_write(FILE *out, const struct kernel *kernel, const char *first) {
  fputs(first, out);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    fputs(i || *first ? ", " : "", out);
    type_write(out, &kernel->arguments[i]);
  }
  fputs(kernel->n_arguments == 0 && !*first ? "void" : "", out);
}

static void values_write(FILE *out, const struct kernel *kernel, const char *first) {
  fputs(first, out);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    fprintf(out, "%s*(", i || *first ? ", " : "");
    type_write(out, &kernel->arguments[i]);
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
  parameter_types_write(out, kernel, "");
  fprintf(out,
          ");\nvoid wavetune_launch(void **arguments);\nvoid wavetune_launch(void **arguments) {\n "
          " %s(",
          kernel->entry);
  values_write(out, kernel, "");
  fputs(");\n  (void)arguments;\n}\n", out);
  ALWAYS(fclose(out) == 0);
  return text;
}

char *reference_source(const struct kernel *kernel) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fprintf(out, "#include \"%s\"\n#include <stdint.h>\n", kernel->reference.source.path);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    if (!kernel->arguments[i].reference_entry)
      continue;
    fprintf(out, "double %s(", kernel->arguments[i].reference_entry);
    parameter_types_write(out, kernel, "int64_t");
    fputs(");\n", out);
  }
  fputs("double wavetune_reference(int argument, int64_t index, void **arguments);\n"
        "double wavetune_reference(int argument, int64_t index, void **arguments) {\n  switch "
        "(argument) {\n",
        out);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    if (!kernel->arguments[i].reference_entry)
      continue;
    fprintf(out, "  case %zu:\n    return %s(", i, kernel->arguments[i].reference_entry);
    values_write(out, kernel, "index");
    fputs(");\n", out);
  }
  fputs("  }\n  (void)index, (void)arguments;\n  return __builtin_nan(\"\");\n}\n", out);
  ALWAYS(fclose(out) == 0);
  return text;
}

char *device_source(const struct kernel *kernel, const struct settings *defines) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputs(compile_prelude, out);
  for (size_t i = 0; i < defines->n; i++) {
    int length = (int)strcspn(defines->texts[i], "=");
    fprintf(out, "#define %.*s %s\n", length, defines->texts[i], defines->texts[i] + length + 1);
  }
  fprintf(out, "#include \"%s\"\nextern \"C\" __global__ void %s(", kernel->sources[0].path,
          kernel->entry);
  parameter_types_write(out, kernel, "");
  fputs(");\n", out);
  ALWAYS(fclose(out) == 0);
  return text;
}

static bool is_identifier(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_')
    return false;
  while (isalnum((unsigned char)*text) || *text == '_')
    text++;
  return *text == '\0';
}

static char *string_define(const char *name, const char *string) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fprintf(out, "%s=\"", name);
  for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
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

char *define_format(const char *name, struct value value) {
  if (value.type == VALUE_NONE)
    return NULL;
  if (value.type == VALUE_BOOL)
    return xasprintf("%s=%d", name, value.boolean);
  if (value.type == VALUE_STRING && !is_identifier(value.string))
    return string_define(name, value.string);
  cleanup_free char *text = value_format(value, false);
  return xasprintf("%s=%s", name, text);
}

void settings_add(struct settings *settings, char *text) {
  GROW(settings->texts, settings->n, settings->capacity);
  settings->texts[settings->n++] = text;
}

void settings_release(struct settings *settings) {
  for (size_t i = 0; i < settings->n; i++)
    free(settings->texts[i]);
  free(settings->texts);
  *settings = (struct settings){0};
}

static bool manifest_defines_add(const struct kernel *kernel, const struct scope *scope,
                                 struct settings *defines, struct error *error) {
  for (size_t i = 0; i < kernel->n_defines; i++) {
    cleanup_expr struct expr *expr = NULL;
    struct value value;
    if (!expr_parse(kernel->defines[i].value, &expr, error) ||
        !expr_bind(expr, scope->names, scope->n, error) ||
        !expr_eval(expr, scope->values, &value, error))
      return error_prefix(error, "the define %s: ", kernel->defines[i].name);
    char *text = define_format(kernel->defines[i].name, value);
    if (text)
      settings_add(defines, text);
  }
  return true;
}

/* Which programs and libraries run, and where they look for files, is not a config's to say. */
static bool variable_is_allowed(const char *name) {
  static const char *const prefixes[] = {"LD_",  "COLLECT_", "DYLD_", "BASH_",   "CCC_",
                                         "GCC_", "CLANG_",   "HSA_",  "MALLOC_", "WAVETUNE_"};
  static const char *const names[] = {
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
      "GCONV_PATH", /* the C library loads what lies there */
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
  for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++) {
    if (string_starts(name, prefixes[i]))
      return false;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    if (string_equal(name, names[i]))
      return false;
  }
  return true;
}

static bool variable_add(const char *name, struct value value, struct settings *environment,
                         struct error *error) {
  if (!variable_is_allowed(name))
    return error_set(
        error,
        "the parameter %s of role env would change which compiler runs or what it reads; leave it "
        "out of the space",
        name);
  if (value.type == VALUE_NONE)
    return true;
  cleanup_free char *text =
      value.type == VALUE_BOOL ? xstrdup(value.boolean ? "1" : "0") : value_format(value, false);
  settings_add(environment, xasprintf("%s=%s", name, text));
  return true;
}

/* An option of other languages is a definition in capitals: waves_per_eu is WAVES_PER_EU. */
static char *option_format(const char *name, struct value value) {
  cleanup_free char *capitals = xstrdup(name);
  for (char *c = capitals; *c; c++)
    *c = (char)toupper((unsigned char)*c);
  return define_format(capitals, value);
}

/* Compilers take the last of two definitions of one name, or none: neither is what the space
 * says. */
static bool defines_differ(const struct settings *defines, struct error *error) {
  for (size_t i = 0; i < defines->n; i++) {
    size_t length = strcspn(defines->texts[i], "=") + 1;
    for (size_t k = 0; k < i; k++) {
      if (strncmp(defines->texts[i], defines->texts[k], length) == 0)
        return error_set(
            error,
            "%.*s is defined twice, as an option in capitals and by its name; rename one of them",
            (int)length - 1, defines->texts[i]);
    }
  }
  return true;
}

bool settings_of_config(const struct compile_request *request, struct settings *defines,
                        struct settings *environment, struct error *error) {
  const struct space *space = request->space;
  struct scope scope = {0};
  struct value values[SPACE_PARAMETERS_MAX];
  if (!space_config(space, request->config, values))
    return error_set(error, "config %llu is outside of the space, which has %llu points",
                     (unsigned long long)request->config, (unsigned long long)space->raw_count);
  if (!key_scope_add(request->key, &scope, error) ||
      !space_scope_add(space, request->config, &scope, error) ||
      !scope_add(&scope, "gpu_name", value_string(request->gpu_name ? request->gpu_name : ""),
                 error) ||
      !scope_add(&scope, "arch", value_string(request->arch ? request->arch : ""), error))
    return false;
  for (size_t i = 0; i < space->n_parameters; i++) {
    const struct parameter *parameter = &space->parameters[i];
    cleanup_free char *text = NULL;
    if (parameter->role == ROLE_ENV &&
        !variable_add(parameter->name, values[i], environment, error))
      return false;
    if (parameter->role == ROLE_CONSTEXPR)
      text = define_format(parameter->name, values[i]);
    else if (parameter->role == ROLE_OPTION)
      text = option_format(parameter->name, values[i]);
    if (text)
      settings_add(defines, TAKE(text));
  }
  return manifest_defines_add(request->kernel, &scope, defines, error) &&
         defines_differ(defines, error);
}
