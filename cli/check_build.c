/* wavetune kernel check BUILD_FOLDER: every object and text of a build; with --kernel its arguments and its space too. */
#include <inttypes.h>

#include "cli/check.h"
#include "common/base/file.h"
#include "common/review/build_review.h"

#define BLOB_BYTES_MAX ((size_t)64 << 20)

static bool object_read(void *context, const struct digest *digest, char **ret_bytes, size_t *ret_size,
                        struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *path =
      xasprintf("%s/objects/%s", (const char *)context, strchr(digest_format(digest, text), ':') + 1);
  return file_read(path, BLOB_BYTES_MAX, ret_bytes, ret_size, error);
}

static int64_t shared_of(const json_t *object) {
  const json_t *shared = json_object_get(object, "shared");
  return json_is_integer(shared) ? json_integer_value(shared) : CODE_UNKNOWN;
}

/* "vgprs 32 to 128": the least and the most over the objects, where any is known. `shared` is what a launch adds to
 * lds_bytes, and with Triton all of the LDS. */
#define RANGES(X) X(vgprs) X(agprs) X(sgprs) X(vgpr_spills) X(sgpr_spills) X(lds_bytes) X(scratch_bytes)
static void ranges_print(const struct build_review *review) {
#define RANGE(name, value)                                                                                             \
  {                                                                                                                    \
    int64_t low = INT64_MAX, high = CODE_UNKNOWN;                                                                      \
    for (size_t i = 0; i < review->n_objects; i++) {                                                                   \
      int64_t number = (value);                                                                                        \
      if (number != CODE_UNKNOWN && number < low)                                                                      \
        low = number;                                                                                                  \
      if (number > high)                                                                                               \
        high = number;                                                                                                 \
    }                                                                                                                  \
    if (high != CODE_UNKNOWN)                                                                                          \
      printf("  %-14s %" PRId64 " to %" PRId64 "\n", name, low, high);                                                 \
  }
#define X(member) RANGE(#member, review->resources[i].member)
  RANGES(X)
#undef X
  RANGE("shared", shared_of(json_array_get(review->objects, i)))
#undef RANGE
}

/* Those of objects that were compiled without waves_per_eu: the others were made to fit a number of waves. */
static struct code_resources *free_resources(const struct build_review *review, size_t *ret_n) {
  struct code_resources *resources = xcalloc(review->n_objects, sizeof *resources);
  for (size_t i = 0; i < review->n_objects; i++) {
    const json_t *config = json_object_get(json_array_get(review->objects, i), "config");
    if (json_integer_value(json_object_get(config, "waves_per_eu")) == 0)
      resources[(*ret_n)++] = review->resources[i];
  }
  return resources;
}

/* What the kernel's space says, with the objects' resources and the build's own Triton and arch. */
static bool hints_add(const struct check *check, const struct kernel_folder *folder, struct build_review *review,
                      struct error *error) {
  cleanup_key struct key key = {0};
  const char *key_text = option_text(check->options, "key");
  const struct kernel *kernel = folder->kernel;
  size_t n = 0;
  cleanup_free struct code_resources *resources = free_resources(review, &n);
  struct knob_question question = {.folder = folder,
                                   .arch = review->arch,
                                   .gpu_name = option_text(check->options, "gpu-name"),
                                   .triton = triton_version_number(review->triton),
                                   .resources = resources,
                                   .n_resources = n};
  bool is_guess;
  struct error unheld;
  if (key_text && !key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names, &key, error))
    return error_prefix(error, "--key %s: ", key_text);
  if (!check_kind(check, kernel, &question.kind, &is_guess, error))
    return false;
  question.key = key_text ? &key : NULL;
  if (!knob_hints_find(&question, &review->findings, &unheld))
    review_find(&review->findings, REVIEW_REFUSED, "the space's conditions", "%s", unheld.message);
  return true;
}

static void report(struct check *check, const char *path, const struct build_review *review, const json_t *json) {
  struct digest digest = json_digest(json);
  char text[DIGEST_TEXT_SIZE];
  digest_format(&digest, text);
  if (!check->as_json) {
    printf("%s: build %s for %s, Triton %s\n", path, text, review->arch,
           review->triton ? review->triton : "not stated");
    printf("  %zu objects (%zu distinct) in %zu variants, %zu configs failed to compile, %zu texts\n",
           review->n_objects, review->n_distinct, review->n_variants, review->n_failed, review->n_files);
    ranges_print(review);
  }
  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:O}", "place", path, "what", "build", "build", text, "arch",
                review->arch, "triton", review->triton, "variants", (json_int_t)review->n_variants, "failed",
                (json_int_t)review->n_failed, "spilling", (json_int_t)review->n_spilling, "objects", review->objects);
  ALWAYS(answer != NULL);
  check_finish(check, answer, &review->findings);
}

bool check_build(struct check *check, const char *path, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_build struct build *build = NULL;
  cleanup_build_review struct build_review *review = NULL;
  cleanup_json json_t *json = NULL;
  const char *kernel_place = option_text(check->options, "kernel");
  cleanup_free char *file = xasprintf("%s/build.json", path);
  cleanup_free char *context = xstrdup(path);
  struct blob_reader reader = {object_read, context};
  struct error why;
  if (kernel_place && !kernel_folder_load(kernel_place, &folder, error))
    return false;
  if (!json_parse_file(file, BUILD_SIZE_MAX, &json, &why) ||
      (folder && !build_parse(json, folder->kernel, &build, &why)) ||
      !build_review_make(json, folder ? folder->kernel : NULL, &reader, &review, &why)) {
    check_refuse(check, path, "build", &why);
    return true;
  }
  if (folder && !hints_add(check, folder, review, error))
    return false;
  report(check, path, review, json);
  return true;
}
