/* Reading a kernel's manifest strictly: every member known, every expression parsable, a JSON Pointer to each error.
 *
 * Memory: a kernel owns everything. Threads: any; read-only after kernel_parse. */
#include <math.h>

#include "common/kernel/kernel_parse.h"

#define NAME_MAX_LENGTH 128
#define DEFINES_MAX 64
#define SAMPLES_DEFAULT 4096
#define SAMPLES_MAX ((int64_t)1 << 40)
/* numpy.allclose's, where the manifest states none. */
#define RTOL_DEFAULT 1e-5
#define ATOL_DEFAULT 1e-8

static const char *const language_names[] = {
    [LANGUAGE_HIP] = "hip", [LANGUAGE_TRITON] = "triton", [LANGUAGE_C] = "c", [LANGUAGE_EXTERNAL] = "external"};

const char *const kernel_fact_names[KERNEL_LAUNCH_FACTS] = {"gpu_name", "arch", "cus", "occupancy", "warp_size"};

const char *language_name(enum language language) { return language_names[language]; }

static const char letters_and_digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool identifier_is_valid(const char *text) {
  size_t length = strspn(text, letters_and_digits);
  return length > 0 && length <= IDENTIFIER_MAX && !text[length] && !(text[0] >= '0' && text[0] <= '9');
}

bool name_is_reserved(const char *name) {
  if (!expr_can_name(name))
    return true;
  for (size_t i = 0; i < KERNEL_LAUNCH_FACTS; i++) {
    if (string_equal(name, kernel_fact_names[i]))
      return true;
  }
  return false;
}

bool source_path_check(const char *path, const char *pointer, struct error *error) {
  size_t length = strlen(path);
  bool is_plain = length > 0 && length <= PATH_TEXT_MAX;
  for (const char *c = path; *c && is_plain; c++)
    is_plain = (unsigned char)*c >= 0x20 && *c != 0x7f;
  const char *component = path;
  while (is_plain) {
    size_t size = strcspn(component, "/");
    is_plain = size > 0 && strncmp(component, ".", size) != 0 && !(size == 2 && strncmp(component, "..", 2) == 0);
    if (!component[size])
      break;
    component += size + 1;
  }
  return is_plain || error_at(error, pointer,
                              "a path must be relative, without \"..\", \".\", empty parts and control characters, and "
                              "at most %d bytes long",
                              PATH_TEXT_MAX);
}

bool expression_take(const json_t *value, const char *pointer, char **ret_text, struct error *error) {
  cleanup_free char *text = NULL;
  if (json_is_string(value))
    text = xstrdup(json_string_value(value));
  else if (json_is_integer(value))
    text = xasprintf("%lld", (long long)json_integer_value(value));
  else
    return error_at(error, pointer, "an expression must be a string or an integer");
  cleanup_expr struct expr *expr = NULL;
  if (!expr_parse(text, &expr, error))
    return error_pointer_prefix(error, pointer);
  *ret_text = TAKE(text);
  return true;
}

bool expression_take_member(const json_t *object, const char *pointer, const char *name, char **ret_text,
                            struct error *error) {
  const json_t *value = json_object_get(object, name);
  if (!value)
    return true;
  char at[JSON_POINTER_SIZE];
  return expression_take(value, json_pointer_member(at, sizeof at, pointer, name), ret_text, error);
}

static bool parse_name(struct kernel *kernel, const json_t *manifest, struct error *error) {
  const char *name = NULL;
  if (!json_get_string(manifest, "", "name", JSON_REQUIRED, &name, error))
    return false;
  size_t length = strlen(name);
  for (const char *c = name; *c; c++) {
    if (!strchr(letters_and_digits, *c) && !strchr("./-", *c))
      return error_at(error, "/name", "a kernel's name has letters, digits and _ . / - only");
  }
  if (length < 1 || length > NAME_MAX_LENGTH)
    return error_at(error, "/name", "a kernel's name has 1 to %d characters", NAME_MAX_LENGTH);
  kernel->name = xstrdup(name);
  return true;
}

static bool parse_language(struct kernel *kernel, const json_t *manifest, struct error *error) {
  const char *language = NULL;
  if (!json_get_string(manifest, "", "language", JSON_REQUIRED, &language, error))
    return false;
  size_t i = 0;
  while (i < ARRAY_LENGTH(language_names) && !string_equal(language, language_names[i]))
    i++;
  if (i == ARRAY_LENGTH(language_names))
    return error_at(error, "/language",
                    "\"language\" must be \"hip\", \"triton\", \"c\" or \"external\", not \"%.40s\"", language);
  kernel->language = (enum language)i;
  return true;
}

static bool parse_entry(struct kernel *kernel, const json_t *manifest, struct error *error) {
  const char *entry = NULL;
  if (!json_get_string(manifest, "", "entry", JSON_REQUIRED, &entry, error))
    return false;
  if (!identifier_is_valid(entry))
    return error_at(error, "/entry", "the entry point must be a C identifier, not \"%.40s\"", entry);
  kernel->entry = xstrdup(entry);
  return true;
}

static bool parse_source(struct source *source, const json_t *json, const char *pointer, struct error *error) {
  static const char *const members[] = {"path", "digest", NULL};
  const char *path = NULL;
  char at[JSON_POINTER_SIZE];
  if (!json_only_members(json, pointer, members, error) ||
      !json_get_string(json, pointer, "path", JSON_REQUIRED, &path, error) ||
      !source_path_check(path, json_pointer_member(at, sizeof at, pointer, "path"), error) ||
      !json_get_digest(json, pointer, "digest", JSON_REQUIRED, &source->digest, error))
    return false;
  source->path = xstrdup(path);
  return true;
}

static bool parse_sources(struct kernel *kernel, const json_t *manifest, struct error *error) {
  json_t *array = NULL, *json;
  if (!json_get_array(manifest, "", "sources", JSON_REQUIRED, &array, error))
    return false;
  size_t n = json_array_size(array), i;
  if (n < 1 || n > KERNEL_SOURCES_MAX)
    return error_at(error, "/sources", "a kernel has 1 to %d sources, the compiled one first", KERNEL_SOURCES_MAX);
  kernel->sources = xcalloc(n, sizeof *kernel->sources);
  kernel->n_sources = n;
  json_array_foreach (array, i, json) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/sources", i);
    if (!parse_source(&kernel->sources[i], json, at, error))
      return false;
    for (size_t j = 0; j < i; j++) {
      if (string_equal(kernel->sources[i].path, kernel->sources[j].path))
        return error_at(error, at, "two sources have the path \"%s\"", kernel->sources[i].path);
    }
  }
  return true;
}

static bool parse_key_names(struct kernel *kernel, const json_t *manifest, struct error *error) {
  json_t *array = NULL, *json;
  if (!json_get_array(manifest, "", "key", JSON_REQUIRED, &array, error))
    return false;
  size_t n = json_array_size(array), i;
  if (n > KEY_MEMBERS_MAX)
    return error_at(error, "/key", "a key has at most %d names", KEY_MEMBERS_MAX);
  kernel->key_names = xcalloc(n, sizeof *kernel->key_names);
  kernel->n_key_names = n;
  json_array_foreach (array, i, json) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/key", i);
    const char *name = json_string_value(json);
    if (!name || !identifier_is_valid(name))
      return error_at(error, at, "a name of the key must be a string that is an identifier");
    if (name_is_reserved(name))
      return error_at(error, at, "\"%s\" has a meaning in expressions already; name the key's member otherwise", name);
    for (size_t j = 0; j < i; j++) {
      if (string_equal(name, kernel->key_names[j]))
        return error_at(error, at, "\"%s\" stands in the key twice", name);
    }
    kernel->key_names[i] = xstrdup(name);
  }
  return true;
}

static bool parse_defines(struct kernel *kernel, const json_t *manifest, struct error *error) {
  json_t *object = NULL, *value;
  const char *name;
  if (!json_get_object(manifest, "", "defines", JSON_OPTIONAL, &object, error))
    return false;
  if (json_object_size(object) > DEFINES_MAX)
    return error_at(error, "/defines", "a kernel has at most %d defines", DEFINES_MAX);
  kernel->defines = xcalloc(json_object_size(object), sizeof *kernel->defines);
  json_object_foreach (object, name, value) {
    char at[JSON_POINTER_SIZE];
    json_pointer_member(at, sizeof at, "/defines", name);
    if (!identifier_is_valid(name))
      return error_at(error, at, "the name of a define must be a C identifier, not \"%.40s\"", name);
    struct define *define = &kernel->defines[kernel->n_defines++];
    define->name = xstrdup(name);
    if (!expression_take(value, at, &define->value, error))
      return false;
  }
  return true;
}

static bool parse_dimensions(const json_t *launch, const char *name, size_t *ret_n, char *texts[3],
                             struct error *error) {
  json_t *array = NULL, *json;
  char at[JSON_POINTER_SIZE];
  size_t i;
  if (!json_get_array(launch, "/launch", name, JSON_REQUIRED, &array, error))
    return false;
  json_pointer_member(at, sizeof at, "/launch", name);
  if (json_array_size(array) < 1 || json_array_size(array) > 3)
    return error_at(error, at, "\"%s\" must have 1 to 3 dimensions", name);
  json_array_foreach (array, i, json) {
    char element_at[JSON_POINTER_SIZE];
    if (!expression_take(json, json_pointer_index(element_at, sizeof element_at, at, i), &texts[i], error))
      return false;
    *ret_n = i + 1;
  }
  return true;
}

/* A Triton program's block is num_warps × warp_size and its shared memory is in the object's metadata, so both are
 * demanded of hip only. */
static bool parse_launch(struct kernel *kernel, const json_t *manifest, struct error *error) {
  static const char *const members[] = {"grid", "block", "shared_bytes", NULL};
  if (kernel->language == LANGUAGE_C)
    return !json_object_get(manifest, "launch") ||
           error_at(error, "/launch", "a kernel in c is a plain function and has no launch");
  json_t *launch = NULL;
  if (!json_get_object(manifest, "", "launch", JSON_REQUIRED, &launch, error) ||
      !json_only_members(launch, "/launch", members, error) ||
      !parse_dimensions(launch, "grid", &kernel->n_grid, kernel->grid, error))
    return false;
  bool has_block = kernel->language == LANGUAGE_HIP || json_object_get(launch, "block");
  return (!has_block || parse_dimensions(launch, "block", &kernel->n_block, kernel->block, error)) &&
         expression_take_member(launch, "/launch", "shared_bytes", &kernel->shared_bytes, error);
}

static bool parse_tolerance(const json_t *reference, const char *name, double *ret, struct error *error) {
  if (!json_get_number(reference, "/reference", name, JSON_OPTIONAL, ret, error))
    return false;
  char at[JSON_POINTER_SIZE];
  return (*ret >= 0 && isfinite(*ret)) || error_at(error, json_pointer_member(at, sizeof at, "/reference", name),
                                                   "\"%s\" must be a number that is not negative", name);
}

static bool parse_reference(struct kernel *kernel, const json_t *manifest, struct error *error) {
  static const char *const members[] = {"source", "outputs", "rtol", "atol", "samples", NULL};
  kernel->rtol = RTOL_DEFAULT;
  kernel->atol = ATOL_DEFAULT;
  kernel->reference_samples = SAMPLES_DEFAULT;
  json_t *reference = NULL, *source = NULL, *outputs = NULL;
  enum json_presence presence = kernel->language == LANGUAGE_C ? JSON_REQUIRED : JSON_OPTIONAL;
  if (!json_get_object(manifest, "", "reference", presence, &reference, error))
    return false;
  if (!reference)
    return true;
  if (!json_only_members(reference, "/reference", members, error) ||
      !json_get_object(reference, "/reference", "source", JSON_REQUIRED, &source, error) ||
      !parse_source(&kernel->reference, source, "/reference/source", error) ||
      !json_get_object(reference, "/reference", "outputs", JSON_REQUIRED, &outputs, error) ||
      !kernel_parse_outputs(kernel, outputs, error) || !parse_tolerance(reference, "rtol", &kernel->rtol, error) ||
      !parse_tolerance(reference, "atol", &kernel->atol, error) ||
      !json_get_integer(reference, "/reference", "samples", JSON_OPTIONAL, 0, SAMPLES_MAX, &kernel->reference_samples,
                        error))
    return false;
  for (size_t i = 0; i < kernel->n_sources; i++) {
    if (string_equal(kernel->sources[i].path, kernel->reference.path) &&
        !digest_equal(&kernel->sources[i].digest, &kernel->reference.digest))
      return error_at(error, "/reference/source/digest", "\"%s\" is also a source, with another digest",
                      kernel->reference.path);
  }
  return true;
}

/* A kernel in c is tuned where its author is: nothing excuses an output that nobody checks. */
static bool check_outputs(const struct kernel *kernel, struct error *error) {
  size_t written = 0;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (!argument->is_buffer || argument->access == ACCESS_READ)
      continue;
    written++;
    if (!argument->reference_entry)
      return error_at(error, "/reference/outputs",
                      "the kernel writes \"%s\", so \"outputs\" must name the function that computes it",
                      argument->name);
  }
  return written > 0 || error_at(error, "/arguments", "a kernel must write at least one buffer");
}

/* Which members a format needs is the business of its renderer. */
static bool check_exports(const json_t *manifest, enum json_presence presence, struct error *error) {
  json_t *exports = NULL, *mapping;
  const char *format;
  if (!json_get_object(manifest, "", "exports", presence, &exports, error))
    return false;
  json_object_foreach (exports, format, mapping) {
    char at[JSON_POINTER_SIZE];
    if (!json_is_object(mapping))
      return error_at(error, json_pointer_member(at, sizeof at, "/exports", format),
                      "an export must be an object: how the key maps to the format");
  }
  return true;
}

/* Nothing but a name stands for the code: what a format wrote down is all that tells two such kernels apart. */
static bool parse_external(const json_t *manifest, struct error *error) {
  static const char *const members[] = {"name", "language", "key", "exports", NULL};
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)manifest, name, value) {
    char at[JSON_POINTER_SIZE];
    size_t i = 0;
    while (members[i] && !string_equal(members[i], name))
      i++;
    if (!members[i])
      return error_at(error, json_pointer_member(at, sizeof at, "", name),
                      "an external kernel is known by name only and has no \"%.40s\"", name);
  }
  if (!check_exports(manifest, JSON_REQUIRED, error))
    return false;
  return json_object_size(json_object_get(manifest, "exports")) > 0 ||
         error_at(error, "/exports", "an external kernel has at least one export, of the format that it was read from");
}

static bool parse_code(struct kernel *kernel, const json_t *manifest, struct error *error) {
  if (!parse_entry(kernel, manifest, error) || !parse_sources(kernel, manifest, error) ||
      !kernel_parse_arguments(kernel, manifest, error) || !parse_defines(kernel, manifest, error) ||
      !parse_launch(kernel, manifest, error) || !parse_reference(kernel, manifest, error) ||
      !expression_take_member(manifest, "", "flops", &kernel->flops, error) ||
      !expression_take_member(manifest, "", "bytes", &kernel->bytes, error) ||
      !check_exports(manifest, JSON_OPTIONAL, error))
    return false;
  return kernel->language != LANGUAGE_C || check_outputs(kernel, error);
}

bool kernel_parse(const json_t *manifest, struct kernel **ret_kernel, struct error *error) {
  static const char *const members[] = {"name",   "language",  "entry", "sources", "key",     "arguments", "defines",
                                        "launch", "reference", "flops", "bytes",   "exports", NULL};
  if (!json_only_members(manifest, "", members, error))
    return false;
  cleanup_kernel struct kernel *kernel = xcalloc(1, sizeof *kernel);
  if (!parse_name(kernel, manifest, error) || !parse_language(kernel, manifest, error) ||
      !parse_key_names(kernel, manifest, error) ||
      !(kernel->language == LANGUAGE_EXTERNAL ? parse_external(manifest, error) : parse_code(kernel, manifest, error)))
    return false;
  kernel->json = json_deep_copy(manifest);
  ALWAYS(kernel->json != NULL);
  kernel->hash = json_digest(manifest);
  *ret_kernel = TAKE(kernel);
  return true;
}

void kernel_free(struct kernel *kernel) {
  free(kernel->name);
  free(kernel->entry);
  for (size_t i = 0; i < kernel->n_sources; i++)
    free(kernel->sources[i].path);
  free(kernel->sources);
  for (size_t i = 0; i < kernel->n_key_names; i++)
    free(kernel->key_names[i]);
  free(kernel->key_names);
  for (size_t i = 0; i < kernel->n_arguments; i++)
    argument_release(&kernel->arguments[i]);
  free(kernel->arguments);
  for (size_t i = 0; i < kernel->n_defines; i++) {
    free(kernel->defines[i].name);
    free(kernel->defines[i].value);
  }
  free(kernel->defines);
  for (size_t i = 0; i < kernel->n_grid; i++)
    free(kernel->grid[i]);
  for (size_t i = 0; i < kernel->n_block; i++)
    free(kernel->block[i]);
  free(kernel->shared_bytes);
  free(kernel->reference.path);
  free(kernel->flops);
  free(kernel->bytes);
  json_decref(kernel->json);
  free(kernel);
}
