/* The review of a build, object by object. An object that configs share is read once. */
#include "inspect/build_review.h"

#include <inttypes.h>

#include "common/base/error.h"
#include "common/builds/build.h"
#include "common/code/gpu_target.h"
#include "common/kernel/kernel_case.h"

#define FINDINGS_MAX 20 /* refused objects that are listed */
#define SOURCE_BUILDS "docs/builds.md"

/* An object that was read: its code, or the reason why it was refused. */
struct loaded {
  struct code_object *code; /* NULL: `refused` is the reason */
  char *refused;
};

struct reviewing {
  struct build_review *review;
  const struct kernel *kernel; /* with the variant's case where it is captured; or NULL */
  const struct blob_reader *reader;
  const struct gpu_target *target; /* NULL: its limits are not known */
  int64_t warp_size;
  json_t *index; /* digest → position in loaded */
  json_t *files; /* digests of texts that were read */
  size_t n_loaded;
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

/* The bytes of a blob, checked against its digest. */
static bool blob_read(const struct blob_reader *reader, const struct digest *digest,
                      char **ret_bytes, size_t *ret_size, struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size = 0;
  if (!reader->read(reader->context, digest, &bytes, &size, error))
    return false;

  struct digest actual = digest_of(bytes, size);
  if (!digest_equal(&actual, digest))
    return error_set(error, "its bytes are damaged: their digest is %s", DIGEST_TEXT(&actual));

  *ret_bytes = TAKE(bytes);
  *ret_size = size;
  return true;
}

/* Reads an object unless it was read for another config. */
static const struct loaded *object_load(struct reviewing *reviewing, const struct digest *digest) {
  char text[DIGEST_TEXT_SIZE];
  const json_t *position = json_object_get(reviewing->index, digest_format(digest, text));
  if (position)
    return &reviewing->loaded[json_integer_value(position)];

  cleanup_free char *bytes = NULL;
  size_t size;
  cleanup_code_object struct code_object *code = NULL;
  struct error error;
  bool is_ok = blob_read(reviewing->reader, digest, &bytes, &size, &error) &&
               code_object_parse(bytes, size, &code, &error) &&
               build_code_is_for(code, reviewing->review->arch, &error);
  json_put(reviewing->index, text, json_integer((json_int_t)reviewing->n_loaded));
  struct loaded *loaded = APPEND(reviewing->loaded, reviewing->n_loaded);
  *loaded = is_ok ? (struct loaded){.code = TAKE(code)}
                  : (struct loaded){.refused = xstrdup(error.message)};

  return loaded;
}

/* Whether one object can run; *ret_resources and *ret_waves (per EU) are set as far as they are
 * known. */
static bool object_check(const struct reviewing *reviewing, const json_t *variant,
                         const json_t *object, const struct code_object *code,
                         struct code_resources *ret_resources, double *ret_waves,
                         struct error *error) {
  cleanup_build_launch struct build_launch launch = {0};
  const struct code_kernel *kernel;
  if (!build_launch_read(object, reviewing->warp_size, &launch, error) ||
      !code_object_kernel(code, launch.name, &kernel, error))
    return false;

  *ret_resources = kernel->resources;

  struct workgroup workgroup = {
      .threads = launch.warps * launch.warp_size,
      .registers = kernel->resources.vgprs,
      .lds_bytes = launch.shared_bytes +
                   (kernel->resources.lds_bytes > 0 ? kernel->resources.lds_bytes : 0)};
  if (kernel->resources.workgroup_max != CODE_UNKNOWN &&
      workgroup.threads > kernel->resources.workgroup_max)
    return error_set(
        error, "it is launched with %" PRId64 " threads and was compiled for at most %" PRId64,
        workgroup.threads, kernel->resources.workgroup_max);
  if (reviewing->target && !workgroup_fits(reviewing->target, &workgroup, error))
    return error_prefix(error, "it ");
  if (reviewing->target)
    *ret_waves = occupancy_of(reviewing->target, &workgroup).waves_per_eu;

  return build_code_agrees(reviewing->kernel, variant, &launch, kernel, error);
}

/* Checks the texts that are stored beside the code. */
static void files_check(struct reviewing *reviewing, const json_t *object, const char *config) {
  const json_t *files = json_object_get(json_object_get(object, "metadata"), "files");
  json_members (files, name, value) {
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
      json_put(reviewing->files, text, json_true());
    if (!is_digest || !blob_read(reviewing->reader, &digest, &bytes, &size, &error))
      review_find(&reviewing->review->findings, REVIEW_REFUSED, SOURCE_BUILDS,
                  "file \"%s\" of %s: %s", name, config,
                  is_digest ? error.message : "its digest is not one");
  }
}

/* Checks the bytes that a case passes in a buffer. */
static void contents_check(struct reviewing *reviewing, size_t variant,
                           const struct argument *argument) {
  const struct digest *blob = argument_blob(argument);
  struct error error;
  cleanup_free char *bytes = NULL;
  size_t size;
  if (blob && (!blob_read(reviewing->reader, blob, &bytes, &size, &error) ||
               !argument_blob_check(argument, size, &error)))
    review_find(&reviewing->review->findings, REVIEW_REFUSED, SOURCE_BUILDS,
                "the contents of \"%s\" in variant %zu: %s", argument->name, variant,
                error.message);
}

static void object_review(struct reviewing *reviewing, const json_t *variant, size_t variant_index,
                          const json_t *object) {
  struct build_review *review = reviewing->review;
  struct code_resources resources = code_resources_unknown;
  struct digest digest;
  struct error error = {0};
  double waves = 0;
  cleanup_free char *config = xstrdup(""); /* "BLOCK=64 num_warps=4" */
  json_members (json_object_get(object, "config"), name, value) {
    cleanup_free char *value_text = json_canonical(value);
    text_append(&config, "%s%s=%s", config[0] ? " " : "", name, value_text);
  }

  bool is_ok = json_get_digest(object, "", "digest", JSON_REQUIRED, &digest, &error);
  if (is_ok) {
    const struct loaded *loaded = object_load(reviewing, &digest);
    is_ok = loaded->code
                ? object_check(reviewing, variant, object, loaded->code, &resources, &waves, &error)
                : error_set(&error, "%s", loaded->refused);
  }

  if (!is_ok && review->n_refused++ < FINDINGS_MAX)
    review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS,
                "the object of variant %zu, %s: %s", variant_index, config, error.message);

  review->n_spilling += code_resources_spills(&resources) > 0;
  review->resources[review->n_objects++] = resources;

  json_t *shared = json_object_get(json_object_get(object, "metadata"), "shared");
  json_t *item = json_pack(
      "{s:I, s:O?, s:O?, s:o, s:O?, s:o, s:o}", "variant", (json_int_t)variant_index, "config",
      json_object_get(object, "config"), "digest", json_object_get(object, "digest"), "resources",
      code_resources_to_json(&resources), "shared", json_is_integer(shared) ? shared : NULL,
      "waves_per_eu", waves > 0 ? json_real(waves) : json_null(), "refused",
      is_ok ? json_null() : json_string(error.message));
  json_push(review->objects, item);
  files_check(reviewing, object, config);
}

static bool head_read(const json_t *json, struct reviewing *reviewing, json_t **ret_variants,
                      struct error *error) {
  json_t *toolchain = NULL;
  const char *arch = NULL, *triton = NULL;
  if (!json_is_object(json))
    return error_set(error, "a build must be an object");
  if (!json_get_string(json, "", "arch", JSON_REQUIRED, &arch, error) ||
      !json_get_integer(json, "", "warp_size", JSON_REQUIRED, 1, 1024, &reviewing->warp_size,
                        error) ||
      !json_get_object(json, "", "toolchain", JSON_OPTIONAL, &toolchain, error) ||
      !json_get_array(json, "", "variants", JSON_REQUIRED, ret_variants, error))
    return false;
  if (toolchain &&
      !json_get_string(toolchain, "/toolchain", "triton", JSON_OPTIONAL, &triton, error))
    return false;

  size_t n = 0;
  json_elements (*ret_variants, i, variant)
    n += json_array_size(json_object_get(variant, "objects"));
  if (n > BUILD_OBJECTS_MAX)
    return error_set(error, "a build has at most %d objects", BUILD_OBJECTS_MAX);

  reviewing->target = gpu_target_find(arch);
  reviewing->review->arch = name_plain(arch, strlen(arch));
  reviewing->review->triton = triton ? name_plain(triton, strlen(triton)) : NULL;
  reviewing->review->resources = xcalloc(n, sizeof *reviewing->review->resources);

  return true;
}

bool build_review_make(const json_t *json, const struct kernel *kernel,
                       const struct blob_reader *reader, struct build_review **ret_review,
                       struct error *error) {
  cleanup_build_review struct build_review *review = xcalloc(1, sizeof *review);
  review->objects = json_array();
  cleanup_by(reviewing_release) struct reviewing reviewing = {.review = review,
                                                              .kernel = kernel,
                                                              .reader = reader,
                                                              .index = json_object(),
                                                              .files = json_object()};
  json_t *variants = NULL;
  if (!head_read(json, &reviewing, &variants, error))
    return false;

  review->n_variants = json_array_size(variants);
  json_elements (variants, i, variant) {
    struct error disagreement;
    cleanup_kernel struct kernel *of_case = NULL;
    bool agrees = !kernel || build_variant_kernel(kernel, variant, &of_case, &disagreement);
    reviewing.kernel = of_case ? of_case : kernel;
    if (!agrees || (kernel && !build_signature_agrees(reviewing.kernel, variant, &disagreement)))
      review_find(&review->findings, REVIEW_REFUSED, SOURCE_BUILDS, "variant %zu: %s", i,
                  disagreement.message);
    for (size_t k = 0; of_case && k < of_case->n_arguments; k++)
      contents_check(&reviewing, i, &of_case->arguments[k]);
    json_elements (json_object_get(variant, "objects"), j, object)
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
                "%zu of %zu objects spill registers: they are measured last", review->n_spilling,
                review->n_objects);

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
