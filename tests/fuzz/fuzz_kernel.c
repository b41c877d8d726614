/* Untrusted manifests and builds: {"manifest": …, "key": …, "space": …, "build": …}, each member
 * optional. What is accepted must be consistent: parsing it again gives the same hash, sizes of
 * arguments are in range, a build's head chooses the same variant as the build, and every case of a
 * captured kernel gives it arguments. */
#include "common/builds/build.h"
#include "common/kernel/kernel_case.h"
#include "common/kernel/segments.h"
#include "tests/fuzz/fuzz.h"

static void check_arguments(const struct kernel *kernel, const struct scope *scope) {
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    int64_t elements;
    struct error error;
    if (argument->is_buffer && argument_elements(argument, scope, &elements, &error))
      ALWAYS(elements >= 1 && elements <= (int64_t)1 << 40);
    ALWAYS(argument_owner(kernel, argument_owner(kernel, i)) == argument_owner(kernel, i));
  }
}

/* What was accepted as a build's case makes a kernel. */
static void check_cases(const struct kernel *kernel, const struct build *build) {
  const json_t *variant;
  size_t i;
  json_array_foreach (build->variants, i, variant) {
    cleanup_kernel struct kernel *of_case = NULL;
    struct scope scope = {0};
    struct error error;
    ALWAYS(build_variant_kernel(kernel, variant, &of_case, &error));
    ALWAYS((of_case != NULL) == kernel->is_captured);
    if (!of_case)
      return;
    ALWAYS(digest_equal(&of_case->hash, &kernel->hash) && !of_case->is_captured);
    check_arguments(of_case, &scope);
  }
}

static void check_build(const struct kernel *kernel, json_t *json, const struct key *key) {
  cleanup_build struct build *build = NULL, *head = NULL;
  struct error error;
  size_t index, again;
  if (!json)
    return;

  /* The input cannot know the kernel's hash. */
  if (json_is_object(json))
    ALWAYS(json_object_set_new(json, "kernel", json_digest_text(&kernel->hash)) == 0);
  if (!build_parse(json, kernel, &build, &error))
    return;

  check_cases(kernel, build);
  cleanup_json json_t *head_json = build_head(build);
  ALWAYS(build_parse_head(head_json, &build->digest, kernel, &head, &error));
  if (key && build_variant(build, key, &index, &error))
    ALWAYS(index < build->n_variants && build_variant(head, key, &again, &error) && again == index);
}

static void check_segments(const struct kernel *kernel, const struct space *space,
                           const struct key *key, uint64_t config) {
  const struct space_facts facts = {key, "a GPU", "gfx942"};
  array_foreach (argument, kernel->arguments, kernel->n_arguments) {
    cleanup_segments struct segments segments = {0};
    struct error error;
    const char *text;
    if (!argument->is_buffer || !segments_find(argument, space, &facts, &segments, &text, &error))
      continue;
    size_t i = segment_of(argument, &segments, space, config), end = 0;
    ALWAYS(i < segments.n);
    array_foreach (segment, segments.all, segments.n) {
      ALWAYS(segment->elements >= 1 && segment->offset >= end);
      end = segment->offset + (size_t)segment->elements * dtype_size(argument->dtype);
    }
    ALWAYS(end == (size_t)segments.elements * dtype_size(argument->dtype));
  }
}

static void check_job(const struct kernel *kernel, const json_t *input) {
  struct error error;
  cleanup_key struct key key = {0};
  cleanup_space struct space *space = NULL;
  const json_t *key_json = json_object_get(input, "key"),
               *space_json = json_object_get(input, "space");
  bool has_key = key_json && key_parse(key_json, (const char *const *)kernel->key_names,
                                       kernel->n_key_names, &key, &error);

  check_build(kernel, json_object_get(input, "build"), has_key ? &key : NULL);
  if (!has_key || !space_json || !space_parse(space_json, &space, &error) ||
      !kernel_accepts(kernel, &key, space, &error))
    return;

  struct scope scope = {0};
  uint64_t ordinal = space->has_default ? space->default_ordinal : 0;
  if (!key_scope_add(&key, &scope, &error) || !space_scope_add(space, ordinal, &scope, &error))
    return;

  check_arguments(kernel, &scope);
  check_segments(kernel, space, &key, ordinal);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_json json_t *input = NULL;
  cleanup_kernel struct kernel *kernel = NULL, *again = NULL;
  struct error error;

  if (!json_parse((const char *)bytes, size, &input, &error))
    return 0;
  const json_t *manifest = json_object_get(input, "manifest");
  if (!manifest || !kernel_parse(manifest, &kernel, &error))
    return 0;
  ALWAYS(kernel_parse(kernel->json, &again, &error));
  ALWAYS(digest_equal(&kernel->hash, &again->hash));

  check_job(kernel, input);
  return 0;
}
