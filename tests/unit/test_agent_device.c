/* The CPU back end behind the table of functions. */
#include "tests/unit/agent_fixture.h"

#include <signal.h>
#include <unistd.h>

#include "agent/device/device.h"
#include "common/node/environment.h"

static struct device *open_cpu(void) {
  struct error error = {0};
  struct device *device = NULL;
  cr_assert(device_open("cpu0", &device, &error), "%s", error.message);
  return device;
}

Test(device, probe_reports_a_full_environment) {
  struct error error = {0};
  json_t *devices = NULL, *absent = NULL;
  cr_assert(devices_probe(&devices, &absent, &error), "%s", error.message);
  /* GPUs, where there are any, come before it. */
  json_t *cpu = json_array_get(devices, json_array_size(devices) - 1);
  cr_expect_str_eq(json_string_value(json_object_get(cpu, "device")), "cpu0");
  cr_expect_str_eq(json_string_value(json_object_get(cpu, "backend")), "cpu");
  const json_t *runs = json_object_get(cpu, "runs");
  cr_assert_eq(json_array_size(runs), (size_t)2);
  cr_expect_str_eq(json_string_value(json_array_get(runs, 0)), "measure:cold");
  struct environment environment;
  cr_assert(environment_parse(json_object_get(cpu, "environment"), &environment, &error), "%s",
            error.message);
  cr_expect(environment_is_full(&environment, &error), "%s", error.message);
  cr_expect_str_eq(environment.partition, "");
  cr_expect_eq(environment.compute_units, sysconf(_SC_NPROCESSORS_ONLN));
  environment_release(&environment);
  json_decref(absent);
  json_decref(devices);
}

Test(device, a_device_that_is_not_there_is_an_error_that_names_it) {
  struct error error;
  struct device *device;
  cr_expect_not(device_open("hip700", &device, &error));
  cr_expect_not_null(strstr(error.message, "hip700"));
  cr_expect_not(device_open("cpu1", &device, &error));
  cr_expect_not_null(strstr(error.message, "cpu1"));
}

Test(device, buffers_are_aligned_and_intact_until_something_else_is_written) {
  static const size_t sizes[] = {1, 63, 4096, 4097, 100000};
  struct device *device = open_cpu();
  for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
    struct error error = {0};
    struct device_buffer *buffer;
    cr_assert(device->ops->buffer_new(device, sizes[i], &buffer, &error));
    char *bytes = buffer->address;
    cr_expect_eq((uintptr_t)bytes % 4096, 0);
    memset(bytes, 1, sizes[i]);
    cr_expect(device->ops->buffer_intact(device, buffer, &error));
    bytes[sizes[i] + 4095] = 1;
    cr_expect_not(device->ops->buffer_intact(device, buffer, &error));
    cr_expect(device->ops->buffer_intact(device, buffer, &error), "the canary was not restored");
    bytes[-1] = 1;
    cr_expect_not(device->ops->buffer_intact(device, buffer, &error));
    cr_expect_not_null(strstr(error.message, "at offset -1 of"), "%s", error.message);
    device->ops->buffer_free(device, buffer);
  }
  device_close(device);
}

Test(device, a_write_far_beyond_a_buffer_faults, .signal = SIGSEGV) {
  signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would exit instead */
  struct error error = {0};
  struct device_buffer *buffer;
  struct device *device = open_cpu();
  cr_assert(device->ops->buffer_new(device, 4096, &buffer, &error));
  ((volatile char *)buffer->address)[2 * 4096] = 1;
}

Test(device, a_buffer_larger_than_memory_is_an_error) {
  struct error error = {0};
  struct device_buffer *buffer;
  struct device *device = open_cpu();
  cr_expect_not(device->ops->buffer_new(device, SIZE_MAX - 100, &buffer, &error));
  cr_expect_not_null(strstr(error.message, "too large"));
  cr_expect_not(device->ops->buffer_new(device, (size_t)1 << 60, &buffer, &error));
  cr_expect_not_null(strstr(error.message, "cannot allocate"), "%s", error.message);
  device_close(device);
}

Test(device, a_file_that_is_no_object_cannot_be_loaded) {
  struct error error = {0};
  struct device_module *module;
  struct device *device = open_cpu();
  cr_expect_not(device->ops->module_load(device, "/dev/null", "f", &module, &error));
  cr_expect(string_starts(error.message, "cannot load f: "), "%s", error.message);
  cr_expect_not(device->ops->module_load(device, "libm.so.6", "f", &module, &error));
  cr_expect_not_null(strstr(error.message, "has no wavetune_launch"), "%s", error.message);
  device_close(device);
}

/* A kernel that adds one to y[0]: it shows which copies were used, and how often. */
#define COUNTER "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) { y[0] += 1; }\n"

struct counted {
  struct device *device;
  struct device_module *module;
  float copies[4][16];
  float *pointer;
  const float *x;
  int64_t n;
  void *arguments[3];
  struct device_operand operand;
  struct device_rotation rotation;
};

static void counted_open(struct counted *counted, const struct fixture *fixture) {
  struct error error = {0};
  char *object = fixture_object(fixture, 0, false);
  *counted = (struct counted){.device = open_cpu()};
  cr_assert(
      counted->device->ops->module_load(counted->device, object, "f", &counted->module, &error),
      "%s", error.message);
  free(object);
  counted->arguments[0] = &counted->pointer;
  counted->arguments[1] = &counted->x;
  counted->arguments[2] = &counted->n;
  counted->operand = (struct device_operand){.pointer = (void **)&counted->pointer,
                                             .base = (char *)counted->copies,
                                             .stride = sizeof counted->copies[0],
                                             .size = sizeof counted->copies[0]};
  counted->rotation = (struct device_rotation){1, &counted->operand, 4, 0, false};
}

static void counted_close(struct counted *counted) {
  counted->device->ops->module_unload(counted->device, counted->module);
  device_close(counted->device);
}

static double counted_time(struct counted *counted, unsigned calls) {
  struct error error = {0};
  struct device_timing timing = {
      {.module = counted->module, .arguments = counted->arguments}, &counted->rotation, calls, 0};
  cr_assert(counted->device->ops->time(counted->device, &timing, 1, &error), "%s", error.message);
  return timing.us;
}

Test(device, the_calls_of_a_sample_use_the_copies_in_turn) {
  struct fixture fixture = fixture_new(COUNTER, (struct fixture_options){0});
  struct counted counted;
  counted_open(&counted, &fixture);
  cr_expect_gt(counted_time(&counted, 6), 0);
  cr_expect_eq(counted.copies[0][0], 2);
  cr_expect_eq(counted.copies[1][0], 2);
  cr_expect_eq(counted.copies[2][0], 1);
  cr_expect_eq(counted.copies[3][0], 1);
  counted_time(&counted, 1);
  cr_expect_eq(counted.copies[2][0], 2, "the next sample goes on where the last one ended");
  counted_close(&counted);
  fixture_free(&fixture);
}

Test(device, what_a_call_changes_is_restored_before_the_copy_is_used_again) {
  static const float pristine[16] = {41};
  struct fixture fixture = fixture_new(COUNTER, (struct fixture_options){0});
  struct counted counted;
  counted_open(&counted, &fixture);
  counted.operand.pristine = pristine;
  counted_time(&counted, 5);
  for (int i = 0; i < 4; i++)
    cr_expect_eq(counted.copies[i][0], 41);
  counted_close(&counted);
  fixture_free(&fixture);
}

Test(device, displacing_the_caches_leaves_operands_alone) {
  struct fixture fixture = fixture_new(COUNTER, (struct fixture_options){0});
  struct counted counted;
  counted_open(&counted, &fixture);
  counted.device->displacement_bytes = 2 << 20;
  counted.rotation.displace = true;
  counted.rotation.n_copies = 1;
  counted_time(&counted, 1);
  counted_time(&counted, 1);
  cr_expect_eq(counted.copies[0][0], 2);
  counted_close(&counted);
  fixture_free(&fixture);
}

Test(device, the_cpus_facts_are_plausible) {
  struct cpu_facts facts;
  cpu_facts_read(&facts);
  cr_expect_gt(strlen(facts.model), 0);
  cr_expect_gt(facts.cpus, 0);
  cr_expect(facts.llc_bytes >= facts.l2_bytes && facts.llc_bytes >= 1 << 16);
  cr_expect_gt(facts.memory_bytes, 0);
  double mhz = cpu_clock_mhz();
  cr_expect(mhz == 0 || (mhz > 50 && mhz < 20000), "%g", mhz);
  cpu_facts_release(&facts);
}
