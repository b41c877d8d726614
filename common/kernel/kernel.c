/* Reading a kernel's manifest strictly: every member known, every expression parsable, a JSON
 * Pointer to each error.
 *
 * Memory: a kernel owns everything. Threads: any; read-only after kernel_parse. */
#include <math.h>

#include "common/kernel/kernel_parse.h"

#define DEFINES_MAX 64
#define SAMPLES_DEFAULT 4096
#define SAMPLES_MAX ((int64_t)1 << 40)
/* numpy.allclose's, where the manifest states none. */
#define RTOL_DEFAULT 1e-5
#define ATOL_DEFAULT 1e-8

static const char *const language_names[] = {[LANGUAGE_HIP] = "hip",
                                             [LANGUAGE_TRITON] = "triton",
                                             [LANGUAGE_C] = "c",
                                             [LANGUAGE_EXTERNAL] = "external",
                                             NULL};

const char *const kernel_fact_names[KERNEL_LAUNCH_FACTS] = {"gpu_name", "arch", "cus", "occupancy",
                                                            "warp_size"};

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
    is_plain = size > 0 && strncmp(component, ".", size) != 0 &&
               !(size == 2 && strncmp(component, "..", 2) == 0);
    if (!component[size])
      break;
    component += size + 1;
  }
  return is_plain || error_at(error, pointer,
                              "a path must be relative, without \"..\", \".\", empty parts and "
                              "control characters, and "
                              "at most %d bytes long",
                              PATH_TEXT_MAX);
}

bool identifier_check(const char *text, struct error *error) {
  return identifier_is_valid(text) ||
         error_set(
             error,
             "\"%.40s\" is no C identifier: letters, digits and _, no digit first, at most %d",
             text, IDENTIFIER_MAX);
}

bool expression_check(const char *text, struct error *error) {
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
         error_set(error,
                   "\"%s\" has a meaning in expressions already; name the key's member otherwise",
                   name);
}

static const struct field source_fields[] = {
    {"path", FIELD_TEXT, offsetof(struct source, path), FIELD_REQUIRED, .check = path_check},
    {"digest", FIELD_DIGEST, offsetof(struct source, digest), FIELD_REQUIRED},
};
static const struct record source_record = RECORD(NULL, struct source, source_fields);

static const struct field define_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct define, name), .check = identifier_check},
    {"value", FIELD_TEXT, offsetof(struct define, value), FIELD_NOT_NULL | FIELD_OR_INTEGER,
     .check = expression_check},
};
static const struct record define_record = RECORD(NULL, struct define, define_fields);

#define EXTENTS(name, member, flags)                                                               \
  {name,       FIELD_TEXTS, offsetof(struct launch, member), FIELD_OR_INTEGER | (flags),           \
   .least = 1, .most = 3,   .check = expression_check}
static const struct field launch_fields[] = {
    EXTENTS("grid", n_grid, FIELD_REQUIRED),
    EXTENTS("block", n_block, FIELD_NOT_NULL),
    {"shared_bytes", FIELD_TEXT, offsetof(struct launch, shared_bytes),
     FIELD_NOT_NULL | FIELD_OR_INTEGER, .check = expression_check},
};
static const struct record launch_record = RECORD(NULL, struct launch, launch_fields);

static const struct field output_fields[] = {
    {"argument", FIELD_TEXT, offsetof(struct output, argument)},
    {"entry", FIELD_TEXT, offsetof(struct output, entry), FIELD_NOT_NULL,
     .check = identifier_check},
};
static const struct record output_record = RECORD(NULL, struct output, output_fields);

static const struct field reference_fields[] = {
    {"source", FIELD_RECORD, offsetof(struct kernel_reference, source), FIELD_REQUIRED,
     .of = &source_record},
    {"outputs", FIELD_MAP, offsetof(struct kernel_reference, n_outputs), FIELD_REQUIRED,
     .of = &output_record, .about = "each with the function that computes an element"},
    {"rtol", FIELD_NUMBER, offsetof(struct kernel_reference, rtol), .most_number = HUGE_VAL},
    {"atol", FIELD_NUMBER, offsetof(struct kernel_reference, atol), .most_number = HUGE_VAL},
    {"samples", FIELD_INTEGER, offsetof(struct kernel_reference, samples), .most = SAMPLES_MAX},
};
static const struct record reference_record =
    RECORD(NULL, struct kernel_reference, reference_fields);

static const struct field export_fields[] = {
    {"format", FIELD_TEXT, offsetof(struct export, format)},
    {"mapping", FIELD_JSON, offsetof(struct export, mapping), FIELD_NOT_NULL | FIELD_OBJECT},
};
static const struct record export_record = RECORD(NULL, struct export, export_fields);

#define AT(member) offsetof(struct kernel, member)
#define NAME_FIELD                                                                                 \
  {"name",                                                                                         \
   FIELD_TEXT,                                                                                     \
   AT(name),                                                                                       \
   FIELD_REQUIRED,                                                                                 \
   .least = 1,                                                                                     \
   .most = 128,                                                                                    \
   .check = kernel_name_check}
#define LANGUAGE_FIELD                                                                             \
  {"language", FIELD_ENUM, AT(language), FIELD_REQUIRED, .names = language_names}
#define KEY_FIELD                                                                                  \
  {"key",                                                                                          \
   FIELD_TEXTS,                                                                                    \
   AT(n_key_names),                                                                                \
   FIELD_REQUIRED,                                                                                 \
   .most = KEY_MEMBERS_MAX,                                                                        \
   .check = key_name_check}
#define EXPRESSION(name, member)                                                                   \
  {name, FIELD_TEXT, AT(member), FIELD_NOT_NULL | FIELD_OR_INTEGER, .check = expression_check}
static const struct field manifest_fields[] = {
    NAME_FIELD,
    LANGUAGE_FIELD,
    KEY_FIELD,
    {"entry", FIELD_TEXT, AT(entry), FIELD_REQUIRED, .check = identifier_check},
    {"sources", FIELD_RECORDS, AT(n_sources), FIELD_REQUIRED, .least = 1,
     .most = KERNEL_SOURCES_MAX, .of = &source_record,
     .about = "the first one is compiled, others it includes"},
    {"arguments", FIELD_RECORDS, AT(n_arguments), FIELD_REQUIRED, .most = KERNEL_ARGUMENTS_MAX,
     .of = &argument_record},
    {"defines", FIELD_MAP, AT(n_defines), .most = DEFINES_MAX, .of = &define_record,
     .about = "constants that follow from key and config"},
    {"launch", FIELD_RECORD, AT(launch), FIELD_NOT_NULL, .of = &launch_record,
     .about = "of all languages but c"},
    {"reference", FIELD_RECORD, AT(reference), .of = &reference_record,
     .about = "which c must have"},
    EXPRESSION("flops", flops),
    EXPRESSION("bytes", bytes),
    {"exports", FIELD_MAP, AT(n_exports), .of = &export_record,
     .about = "by format, how the key maps to it"},
};
const struct record manifest_record = RECORD("CodeManifest", struct kernel, manifest_fields);

/* Nothing but a name stands for the code: what a format wrote down is all that tells two such
 * kernels apart. */
static const struct field external_fields[] = {
    NAME_FIELD,
    LANGUAGE_FIELD,
    KEY_FIELD,
    {"exports", FIELD_MAP, AT(n_exports), FIELD_REQUIRED, .least = 1, .of = &export_record,
     .about = "of the format that it was read from"},
};
const struct record external_manifest_record =
    RECORD("ExternalManifest", struct kernel, external_fields);

size_t text_repeated(const void *texts, size_t n, size_t stride) {
  for (size_t i = 1; i < n; i++)
    for (size_t j = 0; j < i; j++)
      if (string_equal(*(char *const *)((const char *)texts + i * stride),
                       *(char *const *)((const char *)texts + j * stride)))
        return i;
  return n;
}

bool member_is_missing(const char *pointer, struct error *error) {
  return error_at(error, pointer, "member \"%s\" is missing", strrchr(pointer, '/') + 1);
}

static bool names_differ(const struct kernel *kernel, struct error *error) {
  char at[JSON_POINTER_SIZE];
  size_t twice = text_repeated(kernel->key_names, kernel->n_key_names, sizeof *kernel->key_names);
  if (twice < kernel->n_key_names)
    return error_at(error, json_pointer_index(at, sizeof at, "/key", twice),
                    "\"%s\" stands in the key twice", kernel->key_names[twice]);
  twice = text_repeated(kernel->sources, kernel->n_sources, sizeof *kernel->sources);
  return twice == kernel->n_sources ||
         error_at(error, json_pointer_index(at, sizeof at, "/sources", twice),
                  "two sources have the path \"%s\"", kernel->sources[twice].path);
}

/* A Triton program's block is num_warps × warp_size and its shared memory is in the object's
 * metadata, so both are demanded of hip only. */
static bool launch_fits(const struct kernel *kernel, struct error *error) {
  bool has_launch = kernel->launch.grid != NULL;
  if (kernel->language == LANGUAGE_C)
    return !has_launch ||
           error_at(error, "/launch", "a kernel in c is a plain function and has no launch");
  if (!has_launch)
    return member_is_missing("/launch", error);
  return kernel->language != LANGUAGE_HIP || kernel->launch.block ||
         member_is_missing("/launch/block", error);
}

static bool reference_fits(const struct kernel *kernel, struct error *error) {
  const struct source *reference = &kernel->reference.source;
  if (!reference->path)
    return kernel->language != LANGUAGE_C || member_is_missing("/reference", error);
  for (size_t i = 0; i < kernel->n_sources; i++)
    if (string_equal(kernel->sources[i].path, reference->path) &&
        !digest_equal(&kernel->sources[i].digest, &reference->digest))
      return error_at(error, "/reference/source/digest",
                      "\"%s\" is also a source, with another digest", reference->path);
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
      return error_at(
          error, "/reference/outputs",
          "the kernel writes \"%s\", so \"outputs\" must name the function that computes it",
          argument->name);
  }
  return written > 0 || error_at(error, "/arguments", "a kernel must write at least one buffer");
}

static bool code_settle(struct kernel *kernel, struct error *error) {
  return kernel_settle_arguments(kernel, error) && launch_fits(kernel, error) &&
         reference_fits(kernel, error) && kernel_settle_outputs(kernel, error) &&
         (kernel->language != LANGUAGE_C || check_outputs(kernel, error));
}

bool kernel_parse(const json_t *manifest, struct kernel **ret_kernel, struct error *error) {
  const char *language = json_string_value(json_object_get(manifest, "language"));
  bool is_external = string_equal(language, language_names[LANGUAGE_EXTERNAL]);
  cleanup_kernel struct kernel *kernel = xcalloc(1, sizeof *kernel);
  record_init(&manifest_record, kernel);
  kernel->reference.rtol = RTOL_DEFAULT;
  kernel->reference.atol = ATOL_DEFAULT;
  kernel->reference.samples = SAMPLES_DEFAULT;
  kernel->json = json_deep_copy(manifest); /* what the fields share is the kernel's own */
  if (!record_read(is_external ? &external_manifest_record : &manifest_record, kernel->json, "",
                   kernel, error))
    return is_external ? error_prefix(error, "an external kernel, which is known by name only: ")
                       : false;
  if (!names_differ(kernel, error) || !(is_external || code_settle(kernel, error)))
    return false;

  kernel->hash = json_digest(manifest);
  *ret_kernel = TAKE(kernel);
  return true;
}

void kernel_free(struct kernel *kernel) {
  json_decref(kernel->json);
  record_release(&manifest_record, kernel);
  free(kernel);
}
