/* The review of a build, object by object. An object that several configs share is read once.
 *
 * Memory: see build_review.h. Threads: any. */
#include "common/build_review.h"

#include <inttypes.h>

#include "common/occupancy.h"

#define FINDINGS_MAX 20 /* refused objects that are told one by one */
#define SOURCE_BUILDS "docs/builds.md"
#define SCRATCH_MAX 4

/* An object that was read: its code, or why there is none. */
struct loaded {
  struct digest digest;
  struct code_object *code; /* NULL: `refused` says why */
  char *refused;
};

struct reviewing {
  struct build_review *review;
  const struct kernel *kernel; /* or NULL */
  const struct blob_reader *reader;
  const struct gpu_target *target; /* NULL: its limits are not known */
  int64_t warp_size;
  json_t *index; /* digest → position in loaded */
  json_t *files; /* digests that were looked at */
  size_t n_loaded, capacity;
  struct loaded *loaded;
};

static void reviewing_release(struct reviewing *reviewing) {
  for (size_t i = 0; i < reviewing->n_loaded; i++) {
    if (reviewing->loaded[i].code)
      code_object_free(reviewing->loaded[i].code);
    free(reviewing->loaded[i].refused);
  }
  free(reviewing->loaded);
  json_decref(reviewing->index);
  json_decref(reviewing->files);
}

char *config_format(const json_t *config) {
  char *text = xstrdup("");
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)config, name, value) {
    cleanup_free char *value_text = json_canonical(value);
    char *longer = xasprintf("%s%s%s=%s", text, text[0] ? " " : "", name, value_text);
    free(text);
    text = longer;
  }
  return text;
}

/* The bytes of a blob, which are what its digest says. */
static bool blob_read(const struct blob_reader *reader, const struct digest *digest, char **ret_bytes, size_t *ret_size,
                      struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size = 0;
  char text[DIGEST_TEXT_SIZE];
  if (!reader->read(reader->context, digest, &bytes, &size, error))
    return false;
  struct digest actual = digest_of(bytes, size);
  if (!digest_equal(&actual, digest))
    return error_set(error, "its bytes are damaged: their digest is %s", digest_format(&actual, text));
  *ret_bytes = TAKE(bytes);
  *ret_size = size;
  return true;
}

static bool code_read(const struct reviewing *reviewing, const struct digest *digest, struct code_object **ret_code,
                      struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size;
  cleanup_code_object struct code_object *code = NULL;
  if (!blob_read(reviewing->reader, digest, &bytes, &size, error) || !code_object_parse(bytes, size, &code, error))
    return false;
  size_t length = strcspn(reviewing->review->arch, ":");
  if (strlen(code->target) != length || strncmp(code->target, reviewing->review->arch, length) != 0)
    return error_set(error, "it is code for %s, the build is for %s", code->target, reviewing->review->arch);
  *ret_code = TAKE(code);
  return true;
}

static const struct loaded *object_load(struct reviewing *reviewing, const struct digest *digest) {
  char text[DIGEST_TEXT_SIZE];
  const json_t *position = json_object_get(reviewing->index, digest_format(digest, text));
  if (position)
    return &reviewing->loaded[json_integer_value(position)];
  struct loaded loaded = {.digest = *digest};
  struct error error;
  if (!code_read(reviewing, digest, &loaded.code, &error))
    loaded.refused = xstrdup(error.message);
  GROW(reviewing->loaded, reviewing->n_loaded, reviewing->capacity);
  reviewing->loaded[reviewing->n_loaded] = loaded;
  ALWAYS(json_object_set_new(reviewing->index, text, json_integer((json_int_t)reviewing->n_loaded)) == 0);
  return &reviewing->loaded[reviewing->n_loaded++];
}

/* What a value of Triton's type takes in the kernarg segment; 0: not known. A bool and halves have had two sizes (Triton
 * 3.4 and 3.5 changed them): *ret_other is the other one, or the same. */
static int64_t type_size(const char *type, int64_t *ret_other) {
  static const struct {
    const char *name;
    int64_t size, other;
  } types[] = {{"i1", 1, 4},   {"u1", 1, 4},   {"i8", 1, 1},   {"u8", 1, 1},  {"i16", 2, 2},
               {"u16", 2, 2},  {"i32", 4, 4},  {"u32", 4, 4},  {"i64", 8, 8}, {"u64", 8, 8},
               {"fp16", 2, 4}, {"bf16", 2, 4}, {"fp32", 4, 4}, {"f32", 4, 4}, {"fp64", 8, 8}};
  if (type[0] == '*') {
    *ret_other = 8;
    return 8;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
    if (string_equal(type, types[i].name)) {
      *ret_other = types[i].other;
      return types[i].size;
    }
  }
  return 0;
}

/* The next argument that a launch passes, where the runtime fills in none. */
static const struct code_argument *argument_next(const struct code_kernel *code, size_t *at) {
  while (*at < code->n_arguments && code->arguments[*at].is_hidden)
    ++*at;
  return *at < code->n_arguments ? &code->arguments[(*at)++] : NULL;
}

/* How many arguments the code takes beside those that the runtime fills in. */
static size_t arguments_taken(const struct code_kernel *code) {
  size_t at = 0, n = 0;
  while (argument_next(code, &at))
    n++;
  return n;
}

/* One argument, at the next multiple of its size. */
static bool argument_agrees(const struct code_argument *argument, const char *name, const char *type, int64_t *offset,
                            struct error *error) {
  int64_t other = 0, size = type_size(type, &other);
  if (size == 0)
    return error_set(error, "argument \"%s\" has a type whose size is not known: %.60s", name, type);
  if (argument->size != size && argument->size != other)
    return error_set(error, "argument \"%s\" takes %" PRId64 " bytes in its code and %" PRId64 " by the signature",
                     name, argument->size, size);
  *offset = (*offset + argument->size - 1) / argument->size * argument->size;
  if (argument->offset != *offset)
    return error_set(error,
                     "argument \"%s\" is at byte %" PRId64 " of its code's arguments and by the signature at %" PRId64,
                     name, argument->offset, *offset);
  *offset += argument->size;
  return true;
}

/* The signature's arguments, then the scratch pointers. A build's JSON is sorted by name, so that only the manifest tells
 * the order; without it, only their number is known. */
static bool layout_agrees(const struct reviewing *reviewing, const json_t *variant, int64_t n_scratch,
                          const struct code_kernel *code, struct error *error) {
  const json_t *signature = json_object_get(variant, "signature");
  const struct kernel *kernel = reviewing->kernel;
  size_t at = 0, n = json_object_size(signature) + (size_t)n_scratch, taken = arguments_taken(code);
  int64_t offset = 0;
  if (taken != n)
    return error_set(error, "its code takes %zu arguments, the signature and scratch are %zu", taken, n);
  for (size_t i = 0; kernel && i < kernel->n_arguments; i++) {
    const char *name = kernel->arguments[i].name, *type = json_string_value(json_object_get(signature, name));
    if (type && !argument_agrees(argument_next(code, &at), name, type, &offset, error))
      return false;
  }
  for (int64_t i = 0; kernel && i < n_scratch; i++) {
    if (!argument_agrees(argument_next(code, &at), "scratch", "*i8", &offset, error))
      return false;
  }
  return true;
}

/* What a launch of the object is: Triton's metadata. */
struct launch {
  const char *name;
  int64_t warps, shared, scratch, clusters, scratch_bytes;
};

static bool metadata_read(const json_t *object, struct launch *ret, struct error *error) {
  const json_t *metadata = json_object_get(object, "metadata");
  struct launch launch = {.clusters = 1};
  int64_t global_bytes = 0, profile_bytes = 0;
  if (!json_get_string(metadata, "", "name", JSON_REQUIRED, &launch.name, error) ||
      !json_get_integer(metadata, "", "num_warps", JSON_REQUIRED, 1, 1024, &launch.warps, error) ||
      !json_get_integer(metadata, "", "shared", JSON_OPTIONAL, 0, INT32_MAX, &launch.shared, error) ||
      !json_get_integer(metadata, "", "scratch", JSON_OPTIONAL, 0, SCRATCH_MAX, &launch.scratch, error) ||
      !json_get_integer(metadata, "", "num_ctas", JSON_OPTIONAL, 1, 16, &launch.clusters, error) ||
      !json_get_integer(metadata, "", "global_scratch_size", JSON_OPTIONAL, 0, INT64_MAX, &global_bytes, error) ||
      !json_get_integer(metadata, "", "profile_scratch_size", JSON_OPTIONAL, 0, INT64_MAX, &profile_bytes, error))
    return error_prefix(error, "its metadata: ");
  if (global_bytes || profile_bytes)
    return error_set(error, "it wants scratch memory in every launch, which agents do not give");
  *ret = launch;
  return true;
}

/* Whether one object can run; *ret_resources and *ret_waves (per EU) are set as far as it was understood. */
static bool object_check(const struct reviewing *reviewing, const json_t *variant, const json_t *object,
                         const struct code_object *code, struct code_resources *ret_resources, double *ret_waves,
                         struct error *error) {
  struct launch launch;
  const struct code_kernel *kernel;
  if (!metadata_read(object, &launch, error) || !code_object_kernel(code, launch.name, &kernel, error))
    return false;
  *ret_resources = kernel->resources;
  struct workgroup workgroup = {.threads = launch.warps * reviewing->warp_size,
                                .registers = kernel->resources.vgprs,
                                .lds_bytes = launch.shared +
                                             (kernel->resources.lds_bytes > 0 ? kernel->resources.lds_bytes : 0)};
  if (kernel->resources.workgroup_max != CODE_UNKNOWN && workgroup.threads > kernel->resources.workgroup_max)
    return error_set(error, "it is launched with %" PRId64 " threads and was compiled for at most %" PRId64,
                     workgroup.threads, kernel->resources.workgroup_max);
  if (reviewing->target && !workgroup_fits(reviewing->target, &workgroup, error))
    return error_prefix(error, "it ");
  if (reviewing->target)
    *ret_waves = occupancy_of(reviewing->target, &workgroup).waves_per_eu;
  return layout_agrees(reviewing, variant, launch.scratch, kernel, error);
}

/* Texts kept beside the code. */
static void files_check(struct reviewing *reviewing, const json_t *object, const char *config) {
  const json_t *files = json_object_get(json_object_get(object, "metadata"), "files");
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)files, name, value) {
    struct digest digest;
    struct error error;
    cleanup_free char *bytes = NULL;
    size_t size;
    char text[DIGEST_TEXT_SIZE];
    bool is_digest = json_is_string(value) && digest_parse(json_string_value(value), &digest);
    if (is_digest && json_object_get(reviewing->files, digest_format(&digest, text)))
      continue;
    reviewing->review->n_files++;
    if (is_digest)
      ALWAYS(json_object_set_new(reviewing->files, text, json_true()) == 0);
    if (!is_digest || !blob_read(reviewing->reader, &digest, &bytes, &size, &error))
      review_find(&reviewing->review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "file \"%s\" of %s: %s", name, config,
                  is_digest ? error.message : "its digest is no digest");
  }
}

static void object_review(struct reviewing *reviewing, const json_t *variant, size_t variant_index,
                          const json_t *object) {
  struct build_review *review = reviewing->review;
  struct code_resources resources = code_resources_unknown;
  struct digest digest;
  struct error error = {0};
  double waves = 0;
  cleanup_free char *config = config_format(json_object_get(object, "config"));
  bool is_ok = json_get_digest(object, "", "digest", JSON_REQUIRED, &digest, &error);
  if (is_ok) {
    const struct loaded *loaded = object_load(reviewing, &digest);
    is_ok = loaded->code ? object_check(reviewing, variant, object, loaded->code, &resources, &waves, &error)
                         : error_set(&error, "%s", loaded->refused);
  }
  if (!is_ok && review->n_refused++ < FINDINGS_MAX)
    review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "the object of variant %zu, %s: %s", variant_index,
                config, error.message);
  review->n_spilling += code_resources_spills(&resources) > 0;
  review->resources[review->n_objects++] = resources;
  json_t *shared = json_object_get(json_object_get(object, "metadata"), "shared");
  json_t *item = json_pack("{s:I, s:O?, s:O?, s:o, s:O?, s:o, s:o}", "variant", (json_int_t)variant_index, "config",
                           json_object_get(object, "config"), "digest", json_object_get(object, "digest"), "resources",
                           code_resources_to_json(&resources), "shared", json_is_integer(shared) ? shared : NULL,
                           "waves_per_eu", waves > 0 ? json_real(waves) : json_null(), "refused",
                           is_ok ? json_null() : json_string(error.message));
  ALWAYS(item && json_array_append_new(review->objects, item) == 0);
  files_check(reviewing, object, config);
}

static bool is_integer(enum dtype dtype) { return dtype >= DTYPE_INT8 && dtype <= DTYPE_UINT64; }

/* "*fp16" and float16: whether a signature's type can stand for a manifest's argument. A scalar integer may be narrower,
 * since Triton chooses by the value: what is passed is the low half of the storage. */
static bool type_fits(const char *type, const struct argument *argument) {
  static const struct {
    const char *type;
    enum dtype dtype;
  } types[] = {{"fp16", DTYPE_FLOAT16}, {"bf16", DTYPE_BFLOAT16}, {"fp32", DTYPE_FLOAT32}, {"fp64", DTYPE_FLOAT64},
               {"i1", DTYPE_BOOL},      {"u1", DTYPE_BOOL},       {"i8", DTYPE_INT8},      {"u8", DTYPE_UINT8},
               {"i16", DTYPE_INT16},    {"u16", DTYPE_UINT16},    {"i32", DTYPE_INT32},    {"u32", DTYPE_UINT32},
               {"i64", DTYPE_INT64},    {"u64", DTYPE_UINT64}};
  if ((type[0] == '*') != argument->is_buffer)
    return false;
  type += type[0] == '*';
  for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
    if (string_equal(type, types[i].type))
      return argument->dtype == types[i].dtype ||
             (!argument->is_buffer && is_integer(argument->dtype) && is_integer(types[i].dtype) &&
              dtype_size(types[i].dtype) <= dtype_size(argument->dtype));
  }
  return true; /* 8-bit floats and what is newer: the manifest has other names for their storage */
}

/* The signature against the manifest: the same arguments, but for those that were compiled in. */
static bool signature_agrees(const struct kernel *kernel, const json_t *variant, struct error *error) {
  const json_t *signature = json_object_get(variant, "signature"), *constexprs = json_object_get(variant, "constexprs");
  size_t passed = 0;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    const json_t *type = json_object_get(signature, argument->name);
    if (!type && json_object_get(constexprs, argument->name))
      continue;
    if (!json_is_string(type))
      return error_set(error, "the manifest's argument \"%s\" is neither in the signature nor compiled in",
                       argument->name);
    if (!type_fits(json_string_value(type), argument))
      return error_set(error, "argument \"%s\" is %s%s in the manifest and %.60s in the signature", argument->name,
                       argument->is_buffer ? "a buffer of " : "", dtype_name(argument->dtype), json_string_value(type));
    passed++;
  }
  return passed == json_object_size(signature) ||
         error_set(error, "the signature passes %zu arguments, of which the manifest has %zu",
                   json_object_size(signature), passed);
}

static bool head_read(const json_t *json, struct reviewing *reviewing, json_t **ret_variants, struct error *error) {
  json_t *toolchain = NULL;
  const char *arch = NULL, *triton = NULL;
  if (!json_is_object(json))
    return error_set(error, "a build must be an object");
  if (!json_get_string(json, "", "arch", JSON_REQUIRED, &arch, error) ||
      !json_get_integer(json, "", "warp_size", JSON_REQUIRED, 1, 1024, &reviewing->warp_size, error) ||
      !json_get_object(json, "", "toolchain", JSON_OPTIONAL, &toolchain, error) ||
      !json_get_array(json, "", "variants", JSON_REQUIRED, ret_variants, error))
    return false;
  if (toolchain && !json_get_string(toolchain, "/toolchain", "triton", JSON_OPTIONAL, &triton, error))
    return false;
  size_t n = 0, i;
  json_t *variant;
  json_array_foreach (*ret_variants, i, variant)
    n += json_array_size(json_object_get(variant, "objects"));
  if (n > BUILD_OBJECTS_MAX)
    return error_set(error, "a build has at most %d objects", BUILD_OBJECTS_MAX);
  reviewing->target = gpu_target_find(arch);
  reviewing->review->arch = review_text(arch, strlen(arch));
  reviewing->review->triton = triton ? review_text(triton, strlen(triton)) : NULL;
  reviewing->review->resources = xcalloc(n, sizeof *reviewing->review->resources);
  return true;
}

bool build_review_make(const json_t *json, const struct kernel *kernel, const struct blob_reader *reader,
                       struct build_review **ret_review, struct error *error) {
  cleanup_build_review struct build_review *review = xcalloc(1, sizeof *review);
  review->objects = json_array();
  __attribute__((cleanup(reviewing_release))) struct reviewing reviewing = {
      .review = review, .kernel = kernel, .reader = reader, .index = json_object(), .files = json_object()};
  json_t *variants = NULL, *variant, *object;
  size_t i, j;
  if (!head_read(json, &reviewing, &variants, error))
    return false;
  review->n_variants = json_array_size(variants);
  json_array_foreach (variants, i, variant) {
    struct error disagreement;
    if (kernel && !signature_agrees(kernel, variant, &disagreement))
      review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "variant %zu: %s", i, disagreement.message);
    json_array_foreach (json_object_get(variant, "objects"), j, object)
      object_review(&reviewing, variant, i, object);
    review->n_failed += json_array_size(json_object_get(variant, "failed"));
  }
  review->n_distinct = reviewing.n_loaded;
  if (!review->n_objects)
    review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "it has no objects");
  if (review->n_refused > FINDINGS_MAX)
    review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "%zu more objects are refused",
                review->n_refused - FINDINGS_MAX);
  if (review->n_spilling)
    review_find(&review->findings, REVIEW_WARNING, SOURCE_AMD_GUIDE,
                "%zu of %zu objects spill registers: they are measured last", review->n_spilling, review->n_objects);
  *ret_review = TAKE(review);
  return true;
}

void build_review_free(struct build_review *review) {
  free(review->arch);
  free(review->triton);
  free(review->resources);
  json_decref(review->objects);
  review_findings_release(&review->findings);
  free(review);
}
