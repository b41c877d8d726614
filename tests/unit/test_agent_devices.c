/* What a Python interpreter adds to the environments of devices. */
#include <criterion/criterion.h>

#include "agent/worker/devices.h"

static struct device_seen device(const char *text) {
  struct error error = {0};
  struct device_seen seen = {.json = json_loads(text, 0, NULL)};
  seen.name = json_string_value(json_object_get(seen.json, "device"));
  seen.backend = json_string_value(json_object_get(seen.json, "backend"));
  cr_assert(environment_parse(json_object_get(seen.json, "environment"), &seen.environment, &error),
            "%s", error.message);
  return seen;
}

static char *environment_text(const struct device_seen *seen) {
  return json_canonical(json_object_get(seen->json, "environment"));
}

static struct devices two(void) {
  struct devices devices = {.n = 2, .seen = xcalloc(2, sizeof *devices.seen)};
  devices.seen[0] = device(
      "{\"device\": \"hip0\", \"backend\": \"hip\", \"environment\": {\"gpu\": \"MI300X\"}}");
  devices.seen[1] =
      device("{\"device\": \"cpu0\", \"backend\": \"cpu\", \"environment\": {\"gpu\": \"EPYC\"}}");
  return devices;
}

Test(devices, gpus_state_torch_and_triton_of_the_interpreter_and_cpus_do_not) {
  cleanup_devices struct devices devices = two();
  cleanup_python_versions struct python_versions versions = {.torch = xstrdup("2.9.0"),
                                                             .triton = xstrdup("3.6.0")};
  devices_set_python(&devices, &versions);
  cleanup_free char *gpu = environment_text(&devices.seen[0]),
                    *cpu = environment_text(&devices.seen[1]);
  cr_expect_str_eq(gpu, "{\"gpu\":\"MI300X\",\"torch\":\"2.9.0\",\"triton\":\"3.6.0\"}");
  cr_expect_str_eq(cpu, "{\"gpu\":\"EPYC\"}");
  cr_expect_str_eq(devices.seen[0].environment.torch, "2.9.0");
}

Test(devices, what_the_interpreter_lacks_is_not_stated) {
  cleanup_devices struct devices devices = two();
  cleanup_python_versions struct python_versions versions = {.triton = xstrdup("3.6.0")};
  devices_set_python(&devices, &versions);
  cleanup_free char *gpu = environment_text(&devices.seen[0]);
  cr_expect_str_eq(gpu, "{\"gpu\":\"MI300X\",\"triton\":\"3.6.0\"}");
}
