/* Kernels' manifests, read strictly: every member known, every expression parsable, a JSON Pointer
 * to each error; and whether a kernel, a key and a space fit together. */
#include "common/kernel/kernel.h"

#include <math.h>

#define DEFINES_MAX 64
#define SAMPLES_DEFAULT 4096
#define SAMPLES_MAX ((int64_t)1 << 40)
/* The defaults of numpy.allclose. */
#define RTOL_DEFAULT 1e-5
#define ATOL_DEFAULT 1e-8

/* Facts of the device. Every expression may use the first FACTS, launches may use all. */
#define FACTS 2
#define LAUNCH_FACTS 5
static const char *const fact_names[LAUNCH_FACTS] = {"gpu_name", "arch", "cus", "occupancy",
                                                     "warp_size"};

static const char *const language_names[] = {[LANGUAGE_HIP] = "hip",
                                             [LANGUAGE_TRITON] = "triton",
                                             [LANGUAGE_C] = "c",
                                             [LANGUAGE_EXTERNAL] = "external",
                                             NULL};

const char *language_name(enum language language) { return language_names[language]; }

static const char letters_and_digits[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool identifier_is_valid(const char *text) {
  size_t length = strspn(text, letters_and_digits);
  return length > 0 && length <= IDENTIFIER_MAX && !text[length] &&
         !(text[0] >= '0' && text[0] <= '9');
}

bool name_is_reserved(const char *name) {
  if (!expr_can_name(name))
    return true;
  for (size_t i = 0; i < LAUNCH_FACTS; i++)
    if (string_equal(name, fact_names[i]))
      return true;
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
    is_plain = size > 0 && strncmp(component, ".", size) != 0 &&
               !(size == 2 && strncmp(component, "..", 2) == 0);
    if (!component[size])
      break;
    component += size + 1;
  }

  return is_plain || error_at(error, pointer,
                              "a path must be relative, without \"..\", \".\", empty parts and "
                              "control characters, and at most %d bytes long",
                              PATH_TEXT_MAX);
}

static bool identifier_check(const char *text, struct error *error) {
  return identifier_is_valid(text) ||
         error_set(
             error,
             "\"%.40s\" is no C identifier: letters, digits and _, no digit first, at most %d",
             text, IDENTIFIER_MAX);
}

static bool expression_check(const char *text, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error);
}

static bool path_check(const char *text, struct error *error) {
  return source_path_check(text, "", error);
}

static bool kernel_name_check(const char *name, struct error *error) {
  for (const char *c = name; *c; c++)
    if (!strchr(letters_and_digits, *c) && !strchr("./-", *c))
      return error_set(error, "a kernel's name has letters, digits and _ . / - only");
  return true;
}

static bool key_name_check(const char *name, struct error *error) {
  if (!identifier_is_valid(name))
    return error_set(error, "a name of the key must be an identifier");
  return !name_is_reserved(name) ||
         error_set(error, "\"%s\" has a meaning in expressions already; rename the key's member",
                   name);
}

static const char *const access_names[] = {"read", "write", "readwrite", NULL};
static const char *const kind_names[] = {"buffer", "scalar", NULL};
static const char *const cases_names[] = {"build", NULL};

#define IDENTIFIER(object, member, flags)                                                          \
  RECORD_FIELD(TEXT, object, member, flags, .check = identifier_check)
#define EXPRESSION(object, member, ...)                                                            \
  RECORD_FIELD(TEXT, object, member, FIELD_NOT_NULL | FIELD_OR_INTEGER, .check = expression_check, \
               __VA_ARGS__)
#define EXPRESSIONS(name, object, count, flags, n_max, ...)                                        \
  RECORD_FIELD_AS(name, TEXTS, object, count, FIELD_OR_INTEGER | (flags), .least = 1,              \
                  .most = n_max, .check = expression_check, __VA_ARGS__)

PRIVATE_RECORD(
    argument, struct argument, IDENTIFIER(struct argument, name, FIELD_REQUIRED),
    RECORD_FIELD(ENUM, struct argument, dtype, FIELD_REQUIRED, .names = dtype_names),
    EXPRESSIONS("shape", struct argument, n_dimensions, FIELD_NOT_NULL, KERNEL_DIMENSIONS_MAX,
                .about = "of a buffer: its extents"),
    RECORD_FIELD(ENUM, struct argument, access, FIELD_NOT_NULL, .names = access_names,
                 .about = "of a buffer"),
    RECORD_FIELD(CUSTOM, struct argument, fill, FIELD_NOT_NULL | FIELD_REQUEST,
                 .custom = &fill_custom, .about = "of a buffer that is read"),
    RECORD_FIELD(TEXT, struct argument, segments, FIELD_NOT_NULL,
                 .about = "of a buffer that is only read: the member of the config on which its "
                          "shape and its fill depend"),
    EXPRESSION(struct argument, value, .about = "of a scalar: an expression"),
    RECORD_FIELD(ENUM, struct argument, kind, FIELD_NOT_NULL, .names = kind_names,
                 .about = "of a captured kernel, in place of shape, access, fill and value"));

PRIVATE_RECORD(source, struct source,
               RECORD_FIELD(TEXT, struct source, path, FIELD_REQUIRED, .check = path_check),
               RECORD_FIELD(DIGEST, struct source, digest, FIELD_REQUIRED));

PRIVATE_RECORD(define, struct define, IDENTIFIER(struct define, name, 0),
               EXPRESSION(struct define, value));

PRIVATE_RECORD(launch, struct launch, EXPRESSIONS("grid", struct launch, n_grid, FIELD_REQUIRED, 3),
               EXPRESSIONS("block", struct launch, n_block, FIELD_NOT_NULL, 3),
               EXPRESSION(struct launch, shared_bytes));

PRIVATE_RECORD(output, struct output, RECORD_FIELD(TEXT, struct output, argument),
               IDENTIFIER(struct output, entry, FIELD_NOT_NULL));

PRIVATE_RECORD(reference, struct kernel_reference,
               RECORD_FIELD(RECORD, struct kernel_reference, source, FIELD_REQUIRED,
                            .of = &source_record),
               RECORD_FIELD_AS("outputs", MAP, struct kernel_reference, n_outputs, FIELD_REQUIRED,
                               .of = &output_record,
                               .about = "each with the function that computes an element"),
               RECORD_FIELD(NUMBER, struct kernel_reference, rtol, .most_number = HUGE_VAL),
               RECORD_FIELD(NUMBER, struct kernel_reference, atol, .most_number = HUGE_VAL),
               RECORD_FIELD(INTEGER, struct kernel_reference, samples, .most = SAMPLES_MAX));

PRIVATE_RECORD(export, struct export, RECORD_FIELD(TEXT, struct export, format),
               RECORD_FIELD(JSON, struct export, mapping, FIELD_NOT_NULL | FIELD_OBJECT));

/* The fields of every manifest. */
#define MANIFEST_FIELDS                                                                            \
  RECORD_FIELD(TEXT, struct kernel, name, FIELD_REQUIRED, .least = 1, .most = 128,                 \
               .check = kernel_name_check),                                                        \
      RECORD_FIELD(ENUM, struct kernel, language, FIELD_REQUIRED, .names = language_names),        \
      RECORD_FIELD_AS("key", TEXTS, struct kernel, n_key_names, FIELD_REQUIRED,                    \
                      .most = KEY_MEMBERS_MAX, .check = key_name_check)

static const struct field manifest_fields[] = {
    MANIFEST_FIELDS,
    IDENTIFIER(struct kernel, entry, FIELD_REQUIRED),
    RECORD_FIELD_AS("sources", RECORDS, struct kernel, n_sources, FIELD_REQUIRED, .least = 1,
                    .most = KERNEL_SOURCES_MAX, .of = &source_record,
                    .about = "the first one is compiled and includes the others"),
    RECORD_FIELD_AS("arguments", RECORDS, struct kernel, n_arguments, FIELD_REQUIRED,
                    .most = KERNEL_ARGUMENTS_MAX, .of = &argument_record),
    RECORD_FIELD_AS("defines", MAP, struct kernel, n_defines, .most = DEFINES_MAX,
                    .of = &define_record, .about = "constants that follow from key and config"),
    RECORD_FIELD(RECORD, struct kernel, launch, FIELD_NOT_NULL, .of = &launch_record,
                 .about = "of all languages but c, unless it is captured"),
    RECORD_FIELD(ENUM, struct kernel, cases, FIELD_NOT_NULL, .names = cases_names,
                 .about = "of a captured kernel: its builds state what is passed"),
    RECORD_FIELD(RECORD, struct kernel, reference, .of = &reference_record,
                 .about = "which c must have"),
    EXPRESSION(struct kernel, flops),
    EXPRESSION(struct kernel, bytes),
    RECORD_FIELD_AS("exports", MAP, struct kernel, n_exports, .of = &export_record,
                    .about = "by format, how the key maps to it"),
};
const struct record manifest_record = RECORD("CodeManifest", struct kernel, manifest_fields);

/* There is no code: only the exports of a format distinguish two such kernels. */
static const struct field external_fields[] = {
    MANIFEST_FIELDS,
    RECORD_FIELD_AS("exports", MAP, struct kernel, n_exports, FIELD_REQUIRED, .least = 1,
                    .of = &export_record, .about = "of the format that it was read from"),
};
const struct record external_manifest_record =
    RECORD("ExternalManifest", struct kernel, external_fields);

static bool member_is_missing(const char *pointer, struct error *error) {
  return error_at(error, pointer, "member \"%s\" is missing", strrchr(pointer, '/') + 1);
}

/* Refuses an array of `n` structs of `stride` bytes, each of which begins with a text, if two texts
 * are equal. `member` is the pointer of the text relative to its struct. */
static bool texts_differ(const void *texts, size_t n, size_t stride, const char *pointer,
                         const char *member, struct error *error) {
  for (size_t i = 1; i < n; i++) {
    const char *text = *(char *const *)((const char *)texts + i * stride);
    for (size_t j = 0; j < i; j++) {
      if (!string_equal(text, *(char *const *)((const char *)texts + j * stride)))
        continue;
      return error_at(error, POINTER("%s/%zu%s", pointer, i, member), "\"%.64s\" occurs twice",
                      text);
    }
  }
  return true;
}

/* An argument of a captured kernel. A case states what is read and written. */
static bool captured_argument_settle(struct argument *argument, struct error *error) {
  static const char what[] = "is stated by a build's case, as the kernel is captured";
  if ((int)argument->kind < 0)
    return member_is_missing("/kind", error);
  if (argument->shape)
    return error_at(error, "/shape", "\"shape\" %s", what);
  if ((int)argument->access >= 0)
    return error_at(error, "/access", "\"access\" %s", what);
  if (argument->fill.is_stated)
    return error_at(error, "/fill", "\"fill\" %s", what);
  if (argument->value)
    return error_at(error, "/value", "\"value\" %s", what);
  if (argument->segments)
    return error_at(error, "/segments", "\"segments\" %s", what);

  argument->is_buffer = argument->kind == KIND_BUFFER;
  argument->access = argument->is_buffer ? ACCESS_READWRITE : ACCESS_READ;
  return true;
}

static bool argument_settle(struct argument *argument, struct error *error) {
  const struct fill *fill = &argument->fill;
  argument->is_buffer = argument->shape != NULL;
  if ((int)argument->kind >= 0)
    return error_at(error, "/kind",
                    "only an argument of a captured kernel, which has \"cases\", has a \"kind\"");

  if (!argument->is_buffer) {
    if (!argument->value)
      return error_set(error, "an argument needs a \"shape\" (a buffer) or a \"value\" (a scalar)");
    if ((int)argument->access >= 0)
      return error_at(error, "/access",
                      "a scalar has no \"access\"; give it a \"shape\" to make it a buffer");

    argument->access = ACCESS_READ;
    if (argument->segments)
      return error_at(
          error, "/segments",
          "a scalar has no \"segments\": its value may read every member of the config");
    return !fill->is_stated ||
           error_at(error, "/fill",
                    "a scalar has no \"fill\"; give it a \"shape\" to make it a buffer");
  }

  if (argument->value)
    return error_at(error, "/value",
                    "a buffer has no \"value\"; take out its \"shape\" to make it a scalar");
  if ((int)argument->access < 0)
    return member_is_missing("/access", error);
  if (argument->segments && argument->access != ACCESS_READ)
    return error_at(error, "/segments",
                    "a buffer that is written has no segments: all configs must write the same");
  if (argument->access == ACCESS_WRITE) {
    argument->fill.kind = FILL_ZEROS;
    return !fill->is_stated ||
           error_at(error, "/fill", "a buffer that is only written has no fill");
  }

  if (fill->kind == FILL_BLOB)
    return error_at(error, "/fill/blob", "only a case of a captured kernel has bytes");
  return fill_fits(fill, argument->dtype, error);
}

/* Only hip must state a block: that of a Triton program is num_warps × warp_size. */
static bool launch_fits(const struct kernel *kernel, struct error *error) {
  bool has_launch = kernel->launch.grid != NULL;
  if (kernel->is_captured) {
    if (kernel->language != LANGUAGE_TRITON)
      return error_at(error, "/cases", "only a kernel in triton is captured");
    if (kernel->n_defines)
      return error_at(error, "/defines", "a captured kernel has no defines: they are compiled in");
    return !has_launch ||
           error_at(error, "/launch", "the objects of a captured kernel's builds state the grid");
  }
  if (kernel->language == LANGUAGE_C)
    return !has_launch ||
           error_at(error, "/launch", "a kernel in c is a plain function and has no launch");
  if (!has_launch)
    return member_is_missing("/launch", error);
  return kernel->language != LANGUAGE_HIP || kernel->launch.block ||
         member_is_missing("/launch/block", error);
}

/* Finds the arguments of the outputs. A kernel in c must have a reference for each output. */
static bool reference_settle(struct kernel *kernel, struct error *error) {
  const struct kernel_reference *reference = &kernel->reference;
  if (!reference->source.path)
    return kernel->language != LANGUAGE_C || member_is_missing("/reference", error);

  for (size_t i = 0; i < kernel->n_sources; i++)
    if (string_equal(kernel->sources[i].path, reference->source.path) &&
        !digest_equal(&kernel->sources[i].digest, &reference->source.digest))
      return error_at(error, "/reference/source/digest",
                      "\"%s\" is also a source, with another digest", reference->source.path);

  for (size_t i = 0; i < reference->n_outputs; i++) {
    const char *name = reference->outputs[i].argument;
    char at[JSON_POINTER_SIZE];
    struct argument *output = NULL;
    for (size_t j = 0; j < kernel->n_arguments; j++) {
      struct argument *argument = &kernel->arguments[j];
      if (string_equal(argument->name, name) && argument->is_buffer &&
          argument->access != ACCESS_READ)
        output = argument;
    }

    if (!output)
      return error_at(error, json_pointer_member(at, sizeof at, "/reference/outputs", name),
                      "\"%.64s\" is not a buffer that the kernel writes", name);
    output->reference_entry = reference->outputs[i].entry;
  }

  size_t written = 0;
  for (size_t i = 0; kernel->language == LANGUAGE_C && i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (!argument->is_buffer || argument->access == ACCESS_READ)
      continue;
    written++;
    if (!argument->reference_entry)
      return error_at(
          error, "/reference/outputs",
          "the kernel writes \"%s\", so \"outputs\" must name the function that computes it",
          argument->name);
  }

  return kernel->language != LANGUAGE_C || written > 0 ||
         error_at(error, "/arguments", "a kernel must write at least one buffer");
}

bool kernel_parse(const json_t *manifest, struct kernel **ret_kernel, struct error *error) {
  const char *language = json_text(manifest, "language");
  bool is_external = string_equal(language, language_names[LANGUAGE_EXTERNAL]);
  cleanup_kernel struct kernel *kernel = xcalloc(1, sizeof *kernel);
  record_init(&manifest_record, kernel);
  kernel->reference.rtol = RTOL_DEFAULT;
  kernel->reference.atol = ATOL_DEFAULT;
  kernel->reference.samples = SAMPLES_DEFAULT;

  kernel->json = json_deep_copy(manifest); /* the fields refer to this copy */
  if (!record_read(is_external ? &external_manifest_record : &manifest_record, kernel->json, "",
                   kernel, error))
    return is_external ? error_prefix(error, "an external kernel, which is known by name only: ")
                       : false;

  if (!texts_differ(kernel->key_names, kernel->n_key_names, sizeof *kernel->key_names, "/key", "",
                    error) ||
      !texts_differ(kernel->sources, kernel->n_sources, sizeof *kernel->sources, "/sources", "",
                    error))
    return false;

  kernel->is_captured = kernel->cases == CASES_BUILD;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    struct argument *argument = &kernel->arguments[i];
    if (!(kernel->is_captured ? captured_argument_settle : argument_settle)(argument, error))
      return error_pointer_prefix(error, POINTER_INDEX("/arguments", i));
  }

  if (!is_external && (!texts_differ(kernel->arguments, kernel->n_arguments,
                                     sizeof *kernel->arguments, "/arguments", "/name", error) ||
                       !launch_fits(kernel, error) || !reference_settle(kernel, error)))
    return false;

  cleanup_json json_t *identity = json_copy((json_t *)manifest);
  if (kernel->is_captured)
    json_object_del(identity, "reference");
  kernel->hash = json_digest(identity);
  *ret_kernel = TAKE(kernel);
  return true;
}

void kernel_free(struct kernel *kernel) {
  json_decref(kernel->json);
  record_release(&manifest_record, kernel);
  free(kernel);
}

static bool parameter_fits(const struct kernel *kernel, const struct parameter *parameter,
                           struct error *error) {
  const char *name = parameter->name;
  const char *at = POINTER_MEMBER("/space/parameters", name);

  if (name_is_reserved(name))
    return error_at(error, at, "parameter \"%s\" has a meaning in expressions already; rename it",
                    name);

  for (size_t i = 0; i < kernel->n_key_names; i++)
    if (string_equal(name, kernel->key_names[i]))
      return error_at(error, at,
                      "\"%s\" is a parameter and a member of the key; rename one of them", name);

  if (parameter->role == ROLE_OPTION && kernel->language == LANGUAGE_C)
    return error_at(error, POINTER_MEMBER("/space/roles", name),
                    "parameter \"%s\" has the role \"option\", which a kernel in c cannot have; "
                    "use \"define\"",
                    name);

  if (parameter->role != ROLE_CONSTEXPR || kernel->language == LANGUAGE_TRITON)
    return true;

  /* The parameter becomes a macro in the sources, as the defines do. They contain the prototype. */
  for (size_t i = 0; i < kernel->n_defines; i++)
    if (string_equal(name, kernel->defines[i].name))
      return error_at(error, at, "parameter \"%s\" is also a define of kernel \"%s\"", name,
                      kernel->name);

  bool is_taken = string_equal(name, kernel->entry);
  for (size_t i = 0; i < kernel->n_arguments; i++)
    is_taken = is_taken || string_equal(name, kernel->arguments[i].name);
  return !is_taken ||
         error_at(error, at,
                  "parameter \"%s\" would replace the argument or entry point of that name", name);
}

bool kernel_space_is_plain(const struct kernel *kernel, const struct space *space,
                           struct error *error) {
  for (size_t i = 0; kernel->language != LANGUAGE_TRITON && i < space->n_parameters; i++) {
    const struct parameter *parameter = &space->parameters[i];
    const char *name = parameter->name;
    const char *at = POINTER_MEMBER("/space/parameters", name);

    if (parameter->role == ROLE_ENV)
      return error_at(error, at,
                      "parameter \"%s\" of role env changes the compiler's environment, which "
                      "no trusted key signed; leave it out of the space",
                      name);

    /* An option's name is put in capitals before it becomes a definition. */
    if (name[0] == '_' || (parameter->role != ROLE_OPTION &&
                           name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")]))
      return error_at(error, at,
                      "parameter \"%s\" could rename what the signed sources use, and the space "
                      "has no signature; name it in capitals, digits and _, a letter first",
                      name);
  }

  return true;
}

/* The names that expressions may use: members of the key, parameters, and facts. */
struct names {
  size_t n_plain, n_launch; /* n_plain: without the facts that only launches may read */
  const char *names[KEY_MEMBERS_MAX + SPACE_PARAMETERS_MAX + LAUNCH_FACTS];
};

static bool text_binds(const char *text, const struct names *names, size_t n, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error) && expr_bind(expr, names->names, n, error);
}

/* Whether an expression of the kernel uses known names only; NULL is none. `place` is its place in
 * the manifest. */
static bool kernel_text_binds(const struct kernel *kernel, const char *place, const char *text,
                              const struct names *names, size_t n, struct error *error) {
  if (!text || text_binds(text, names, n, error))
    return true;
  snprintf(error->pointer, sizeof error->pointer, "/kernel");
  return error_prefix(error, "%s of kernel \"%s\": ", place, kernel->name);
}

static bool kernel_binds(const struct kernel *kernel, const struct names *names,
                         struct error *error) {
  const struct launch *launch = &kernel->launch;
  size_t n_plain = names->n_plain, n_launch = names->n_launch;
  for (size_t i = 0; i < kernel->n_defines; i++) {
    cleanup_free char *place = xasprintf("define \"%s\"", kernel->defines[i].name);
    if (!kernel_text_binds(kernel, place, kernel->defines[i].value, names, n_plain, error))
      return false;
  }

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    cleanup_free char *place = xasprintf("argument \"%s\"", argument->name);
    if (!kernel_text_binds(kernel, place, argument->value, names, n_plain, error))
      return false;
    for (size_t j = 0; j < argument->n_dimensions; j++)
      if (!kernel_text_binds(kernel, place, argument->shape[j], names, n_plain, error))
        return false;
  }

  for (size_t i = 0; i < launch->n_grid; i++)
    if (!kernel_text_binds(kernel, "the grid", launch->grid[i], names, n_launch, error))
      return false;

  for (size_t i = 0; i < launch->n_block; i++)
    if (!kernel_text_binds(kernel, "the block", launch->block[i], names, n_launch, error))
      return false;

  return kernel_text_binds(kernel, "\"shared_bytes\"", launch->shared_bytes, names, n_launch,
                           error) &&
         kernel_text_binds(kernel, "\"flops\"", kernel->flops, names, n_plain, error) &&
         kernel_text_binds(kernel, "\"bytes\"", kernel->bytes, names, n_plain, error);
}

bool kernel_accepts(const struct kernel *kernel, const struct key *key, const struct space *space,
                    struct error *error) {
  struct names names = {0};
  size_t n = 0;
  if (kernel->language == LANGUAGE_EXTERNAL)
    return error_at(error, "/kernel",
                    "kernel \"%s\" is known by name only, from an imported table: register the "
                    "kernel itself to tune it",
                    kernel->name);

  bool key_fits = key->n == kernel->n_key_names;
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    key_fits = key_fits && string_equal(key->names[i], kernel->key_names[i]);
    names.names[n++] = kernel->key_names[i];
  }

  if (!key_fits) {
    cleanup_free char *list = json_texts_join(json_object_get(kernel->json, "key"), ", ");
    return error_at(error, "/key", "the key of kernel \"%s\" must have exactly the members %s",
                    kernel->name, list[0] ? list : "{}");
  }

  for (size_t i = 0; i < space->n_parameters; i++) {
    if (!parameter_fits(kernel, &space->parameters[i], error))
      return false;
    names.names[n++] = space->parameters[i].name;
  }

  array_foreach (argument, kernel->arguments, kernel->n_arguments)
    if (argument->segments && space_parameter(space, argument->segments) == space->n_parameters)
      return error_at(error, "/kernel",
                      "argument \"%s\" of kernel \"%s\" has a segment for each value of \"%.64s\", "
                      "which is no parameter of the space",
                      argument->name, kernel->name, argument->segments);

  for (size_t i = 0; i < LAUNCH_FACTS; i++)
    names.names[n++] = fact_names[i];
  names.n_launch = n;
  names.n_plain = n - LAUNCH_FACTS + FACTS;
  if (!kernel_binds(kernel, &names, error))
    return false;

  for (size_t i = 0; i < space->n_conditions; i++)
    if (!text_binds(space->conditions[i], &names, names.n_plain, error))
      return error_pointer_prefix(error, POINTER_INDEX("/space/conditions", i));

  return true;
}
