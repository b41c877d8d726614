/* Any bytes as a code object: what is read has valid names, ordered arguments and values in range,
 * is the same after a round trip through JSON, and its occupancy can be computed; everything else
 * is refused with a sentence. */
#include "common/code/gpu_target.h"
#include "tests/fuzz/fuzz.h"

static void check_arguments(const struct code_kernel *kernel) {
  int64_t end = 0;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct code_argument *argument = &kernel->arguments[i];
    ALWAYS(argument->offset >= end && argument->size >= 0 && argument->kind[0]);
    end = argument->offset + argument->size;
  }
  ALWAYS(end <= kernel->resources.kernarg_bytes);
}

static void check_resources(const struct code_resources *resources, const char *target_name) {
  struct error error;
  struct code_resources again;
  cleanup_json json_t *json = code_resources_to_json(resources);

  ALWAYS(code_resources_from_json(json, &again, &error));
  ALWAYS(memcmp(&again, resources, sizeof again) == 0);
  ALWAYS(code_resources_spills(resources) >= 0);
  const struct gpu_target *target = gpu_target_find(target_name);
  struct workgroup workgroup = {256, resources->vgprs, resources->lds_bytes};
  if (target && workgroup_fits(target, &workgroup, &error))
    ALWAYS(occupancy_of(target, &workgroup).workgroups_per_cu > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct error error;
  cleanup_code_object struct code_object *object = NULL;
  if (!code_object_parse(bytes, size, &object, &error)) {
    check_refusal(&error);
    return 0;
  }

  ALWAYS(code_object_is(bytes, size) && object->target[0] && object->target_full[0]);
  for (size_t i = 0; i < object->n_kernels; i++) {
    const struct code_kernel *kernel = &object->kernels[i], *found = NULL;
    ALWAYS(code_object_kernel(object, kernel->name, &found, &error) && found == kernel);
    check_arguments(kernel);
    check_resources(&kernel->resources, object->target);
  }

  return 0;
}
