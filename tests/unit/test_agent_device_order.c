/* Which calls a GPU's runtime gets, in which order, and the times that are computed from its
 * events; over a HIP runtime without a GPU. */
#include <criterion/criterion.h>
#include <dlfcn.h>

#include "agent/device/device.h"
#include "common/base/file.h"
#include "tests/fake_hip/fake_hip.h"

#define N 256

struct setting {
  struct device *gpu;
  struct device_module *module;
  struct device_buffer *x, *y;
  char object[64];
};

static struct setting setting_make(void) {
  struct setting setting = {.object = "/tmp/wavetune-test-XXXXXX"};
  struct error error = {0};
  setenv("WAVETUNE_HIP_LIBRARY", FAKE_HIP, 1);
  setenv("WAVETUNE_ARCH", "gfx942", 1);
  setenv("WAVETUNE_KFD_TOPOLOGY", "/nowhere", 1);
  cleanup_fd int fd = mkstemp(setting.object);
  cr_assert(fd >= 0 && fd_write_all(fd, "\177ELF", 4));
  cr_assert(device_open("hip0", &setting.gpu, &error), "%s", error.message);
  const struct device_ops *ops = setting.gpu->ops;
  cr_assert(ops->module_load(setting.gpu, setting.object, "fake_add", &setting.module, &error),
            "%s", error.message);
  cr_assert(ops->buffer_new(setting.gpu, N * sizeof(float), &setting.x, &error), "%s",
            error.message);
  cr_assert(ops->buffer_new(setting.gpu, N * sizeof(float), &setting.y, &error), "%s",
            error.message);
  return setting;
}

static void setting_end(struct setting *setting) {
  const struct device_ops *ops = setting->gpu->ops;
  if (setting->module)
    ops->module_unload(setting->gpu, setting->module);
  ops->buffer_free(setting->gpu, setting->x);
  ops->buffer_free(setting->gpu, setting->y);
  device_close(setting->gpu);
  unlink(setting->object);
}

/* More calls than there are events, each on the next of two copies, which are as before when all is
 * done. */
Test(device_order, more_calls_than_events_are_timed_one_by_one_and_restored) {
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  struct error error = {0};
  enum { HALF = N / 2, CALLS = 600 };
  float before[HALF] = {0}, after[N], zeros[N] = {0};
  int64_t n = HALF;
  struct device_buffer *pristine;
  for (size_t i = 0; i < HALF; i++)
    before[i] = 7;
  cr_assert(ops->buffer_new(setting.gpu, sizeof before, &pristine, &error), "%s", error.message);
  cr_assert(ops->upload(setting.gpu, pristine->address, before, sizeof before, &error), "%s",
            error.message);
  cr_assert(ops->upload(setting.gpu, setting.y->address, zeros, sizeof zeros, &error), "%s",
            error.message);
  void *y, *arguments[] = {&y, &setting.x->address, &n};
  struct device_operand operand = {&y, setting.y->address, sizeof before, sizeof before,
                                   pristine->address};
  struct device_rotation rotation = {.n_operands = 1, .operands = &operand, .n_copies = 2};
  struct device_timing timings[2];
  for (int i = 0; i < 2; i++)
    timings[i] = (struct device_timing){
        {setting.module, {.grid = {2, 1, 1}, .block = {64, 1, 1}}, arguments},
        &rotation,
        CALLS + (unsigned)i,
        0};
  cr_assert(ops->time(setting.gpu, timings, 2, &error), "%s", error.message);
  cr_expect(timings[0].us > 0 && timings[1].us > 0);
  cr_expect_eq(rotation.next, 1);
  cr_assert(ops->download(setting.gpu, after, setting.y->address, sizeof after, &error), "%s",
            error.message);
  for (size_t i = 0; i < N; i++)
    cr_assert_eq(after[i], 7);
  ops->buffer_free(setting.gpu, pristine);
  setting_end(&setting);
}

Test(device_order, a_module_is_unloaded_when_its_launches_have_ended) {
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  struct error error = {0};
  int64_t n = N;
  void *arguments[] = {&setting.y->address, &setting.x->address, &n};
  struct device_launch launch = {
      setting.module, {.grid = {4, 1, 1}, .block = {64, 1, 1}}, arguments};
  cr_assert(ops->launch(setting.gpu, &launch, &error), "%s", error.message);
  ops->module_unload(setting.gpu, TAKE(setting.module));
  cr_expect(ops->sentinel(setting.gpu, &error), "%s", error.message);
  setting_end(&setting);
}

static const char *log_of_calls(void) {
  void *library = dlopen(FAKE_HIP, RTLD_NOW | RTLD_NOLOAD);
  const char *(*log)(void) = (const char *(*)(void))dlsym(library, "fake_hip_log");
  cr_assert_not_null(log);
  return log();
}

static void log_clear(void) {
  void *library = dlopen(FAKE_HIP, RTLD_NOW | RTLD_NOLOAD);
  void (*clear)(void) = (void (*)(void))dlsym(library, "fake_hip_log_clear");
  cr_assert_not_null(clear);
  clear();
}

static size_t count(const char *text, const char *word) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, word)); at++)
    n++;
  return n;
}

/* Takes n samples of fake_add, of `calls` calls each; that of the first in us. */
static double samples_take(const struct setting *setting, struct device_rotation *rotation,
                           size_t n, unsigned calls) {
  struct error error = {0};
  int64_t elements = N;
  void *arguments[] = {&setting->y->address, &setting->x->address, &elements};
  struct device_launch launch = {
      setting->module, {.grid = {4, 1, 1}, .block = {64, 1, 1}}, arguments};
  struct device_timing *timings = xcalloc(n, sizeof *timings);
  for (size_t i = 0; i < n; i++)
    timings[i] = (struct device_timing){launch, rotation, calls, 0};
  cr_assert(setting->gpu->ops->time(setting->gpu, timings, n, &error), "%s", error.message);
  for (size_t i = 1; i < n; i++)
    cr_expect_float_eq(timings[i].us, timings[0].us, 1e-3 * timings[0].us);
  double us = timings[0].us;
  free(timings);
  return us;
}

Test(device_order, the_time_of_an_empty_interval_is_subtracted_and_stated) {
  setenv("FAKE_HIP_LAUNCH_US", "10", 1);
  struct setting setting = setting_make();
  struct device_rotation rotation = {.n_copies = 1};
  cr_expect_float_eq(samples_take(&setting, &rotation, 4, 3), 10, 0.01);
  json_t *conditions = setting.gpu->ops->conditions(setting.gpu);
  cr_expect_float_eq(json_number_value(json_object_get(conditions, "overhead_us")),
                     FAKE_HIP_EVENT_US, 0.01);
  json_decref(conditions);
  setting_end(&setting);
}

Test(device_order, a_tenth_of_an_interval_is_left_in_any_case) {
  setenv("FAKE_HIP_LAUNCH_US", "0", 1);
  struct setting setting = setting_make();
  struct device_rotation rotation = {.n_copies = 1};
  cr_expect_float_eq(samples_take(&setting, &rotation, 1, 1), FAKE_HIP_EVENT_US / 10, 0.01);
  setting_end(&setting);
}

/* A call takes a second: from then on the host is ahead of the device. */
Test(device_order, samples_that_keep_the_device_busy_share_one_head_start_and_one_wait) {
  setenv("FAKE_HIP_LAUNCH_US", "1e6", 1);
  struct setting setting = setting_make();
  struct device_rotation rotation = {.n_copies = 1};
  samples_take(&setting, &rotation, 1, 1);
  log_clear();
  samples_take(&setting, &rotation, 50, 1);
  const char *log = log_of_calls();
  cr_expect_eq(count(log, "ELE"), 50, "%s", log);
  cr_expect_eq(count(log, "Hw"), 1, "%s", log);
  cr_expect_eq(log[0], 'H');
  cr_expect_eq(count(log, "W"), 1, "%s", log);
  setting_end(&setting);
}

/* The device has work for some milliseconds when the events are used up. */
Test(device_order, after_making_events_the_host_gives_a_head_start_again) {
  setenv("FAKE_HIP_LAUNCH_US", "60", 1);
  setenv("FAKE_HIP_SLOW", "N", 1);
  struct setting setting = setting_make();
  struct device_rotation rotation = {.n_copies = 1};
  samples_take(&setting, &rotation, 1, 1);
  log_clear();
  samples_take(&setting, &rotation, 70, 1);
  const char *last_made = strrchr(log_of_calls(), 'N');
  cr_assert_not_null(last_made);
  cr_expect_eq(last_made[1], 'H', "%s", last_made);
  setting_end(&setting);
}

/* The time of a call counts from its launch; here it has ended before the host launches the next.
 */
Test(device_order, a_device_that_is_faster_than_its_host_gets_a_head_start_for_each_sample) {
  setenv("FAKE_HIP_LAUNCH_US", "1000", 1);
  setenv("FAKE_HIP_SLOW", "L", 1);
  struct setting setting = setting_make();
  struct device_rotation rotation = {.n_copies = 1};
  samples_take(&setting, &rotation, 1, 1);
  log_clear();
  samples_take(&setting, &rotation, 5, 1);
  cr_expect_eq(count(log_of_calls(), "wELE"), 5, "%s", log_of_calls());
  setting_end(&setting);
}

Test(device_order, a_device_is_not_busy_after_a_wait_that_followed_an_error) {
  setenv("FAKE_HIP_LAUNCH_US", "1e6", 1);
  struct setting setting = setting_make();
  struct error error = {0};
  struct device_rotation rotation = {.n_copies = 1};
  int64_t n = N;
  void *arguments[] = {&setting.y->address, &setting.x->address, &n};
  struct device_launch launch = {setting.module,
                                 {.grid = {4, 1, 1}, .block = {64, 1, 1}},
                                 arguments},
                       refused = launch;
  refused.geometry.block[0] = 2048;
  samples_take(&setting, &rotation, 1, 1);
  struct device_timing timings[] = {{launch, &rotation, 1, 0}, {refused, &rotation, 1, 0}};
  cr_expect_not(setting.gpu->ops->time(setting.gpu, timings, ARRAY_LENGTH(timings), &error));
  cr_expect(setting.gpu->ops->sentinel(setting.gpu, &error), "%s", error.message);
  log_clear();
  samples_take(&setting, &rotation, 1, 1);
  cr_expect_eq(log_of_calls()[0], 'H', "%s", log_of_calls());
  setting_end(&setting);
}

Test(device_order, data_and_instruction_caches_are_emptied_right_before_the_first_event) {
  setenv("FAKE_HIP_LAUNCH_US", "1000", 1);
  struct setting setting = setting_make();
  struct error error = {0};
  struct device_rotation rotation = {.n_copies = 1, .displace = true, .flush_instructions = true};
  setting.gpu->displacement_bytes = 2 << 20;
  cr_expect(rotation_prepares(&rotation));
  for (int i = 0; i < 2; i++)
    cr_assert(setting.gpu->ops->instruction_flush_set(setting.gpu, setting.object, &error), "%s",
              error.message);
  cr_expect_float_eq(samples_take(&setting, &rotation, 1, 1), 1000, 0.1,
                     "preparations are no part of a sample");
  log_clear();
  samples_take(&setting, &rotation, 3, 1);
  const char *log = log_of_calls();
  cr_expect_eq(count(log, "DFELE"), 3, "%s", log);
  cr_expect_eq(count(log, "D"), 3, "%s", log);
  cr_expect_eq(count(log, "W"), 1, "%s", log);
  setting_end(&setting);
}

/* Fills are between the events of a sample, since they are a part of the call; a grid with a zero
 * extent has them too. */
Test(device_order, what_a_call_fills_is_filled_before_its_launch_and_within_its_sample) {
  setenv("FAKE_HIP_LAUNCH_US", "1000", 1);
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  struct error error = {0};
  struct device_rotation rotation = {.n_copies = 1};
  int64_t n = N / 2;
  void *arguments[] = {&setting.y->address, &setting.x->address, &n};
  const float one = 1;
  struct device_fill fills[] = {{&setting.x->address, N * sizeof(float), 0},
                                {&setting.y->address, N * sizeof(float), 0}};
  memcpy(&fills[1].word, &one, sizeof one);
  struct device_launch launch = {setting.module,
                                 {.grid = {4, 1, 1}, .block = {64, 1, 1}},
                                 arguments,
                                 .n_fills = ARRAY_LENGTH(fills),
                                 .fills = fills};
  struct device_timing timing = {launch, &rotation, 3, 0};
  samples_take(&setting, &rotation, 1, 1);
  log_clear();
  cr_assert(ops->time(setting.gpu, &timing, 1, &error), "%s", error.message);
  cr_expect_eq(count(log_of_calls(), "EwwLwwLwwLE"), 1, "%s", log_of_calls());

  float y[N];
  cr_assert(ops->download(setting.gpu, y, setting.y->address, sizeof y, &error), "%s",
            error.message);
  for (size_t i = 0; i < N; i++)
    cr_assert_eq(y[i], 1); /* 0 + 1, and what is not written */

  log_clear();
  launch.geometry.grid[0] = 0;
  cr_assert(ops->launch(setting.gpu, &launch, &error), "%s", error.message);
  cr_expect_str_eq(log_of_calls(), "ww");
  setting_end(&setting);
}

/* The host needs 40 us for ten calls, and 640 us more for their fills: copies of 84 us keep the
 * device busy meanwhile, for 400 us at most. */
Test(device_order, a_device_gets_a_longer_head_start_where_the_host_fills_too) {
  setenv("FAKE_HIP_LAUNCH_US", "1", 1);
  struct setting setting = setting_make();
  struct error error = {0};
  struct device_rotation rotation = {.n_copies = 1};
  int64_t n = N;
  void *arguments[] = {&setting.y->address, &setting.x->address, &n};
  struct device_fill fills[LAUNCH_FILLS_MAX];
  for (size_t i = 0; i < ARRAY_LENGTH(fills); i++)
    fills[i] = (struct device_fill){&setting.y->address, 4, 0};
  struct device_launch launch = {setting.module,
                                 {.grid = {4, 1, 1}, .block = {64, 1, 1}},
                                 arguments,
                                 .n_fills = ARRAY_LENGTH(fills),
                                 .fills = fills};
  samples_take(&setting, &rotation, 1, 10);
  log_clear();
  samples_take(&setting, &rotation, 1, 10);
  cr_expect_eq(strspn(log_of_calls(), "H"), 1, "%s", log_of_calls());
  struct device_timing timing = {launch, &rotation, 10, 0};
  log_clear();
  cr_assert(setting.gpu->ops->time(setting.gpu, &timing, 1, &error), "%s", error.message);
  cr_expect_eq(strspn(log_of_calls(), "H"), 5, "%s", log_of_calls());
  setting_end(&setting);
}

Test(device_order, a_flush_without_its_kernel_is_an_error) {
  struct setting setting = setting_make();
  struct error error = {0};
  struct device_rotation rotation = {.n_copies = 1, .flush_instructions = true};
  struct device_timing timing = {{.module = setting.module}, &rotation, 1, 0};
  cr_expect_not(setting.gpu->ops->time(setting.gpu, &timing, 1, &error));
  cr_expect_not_null(strstr(error.message, "kernel that flushes instruction caches was not loaded"),
                     "%s", error.message);
  setting_end(&setting);
}

Test(device_order, a_fill_repeats_its_word_and_cuts_the_last) {
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  struct error error = {0};
  const unsigned char expected[] = {1, 2, 3, 4, 1, 2, 3, 0}, zeros[8] = {0};
  unsigned char found[8];
  cr_assert(ops->upload(setting.gpu, setting.x->address, zeros, sizeof zeros, &error), "%s",
            error.message);
  cr_assert(ops->fill(setting.gpu, setting.x->address, 0x04030201, 7, &error), "%s", error.message);
  cr_assert(ops->download(setting.gpu, found, setting.x->address, sizeof found, &error), "%s",
            error.message);
  cr_expect_arr_eq(found, expected, sizeof found);
  setting_end(&setting);
}

Test(device_order, a_write_on_either_side_of_a_buffer_is_reported_once) {
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  static const ptrdiff_t offsets[] = {-1, N * sizeof(float) + 5};
  for (size_t i = 0; i < ARRAY_LENGTH(offsets); i++) {
    struct error error = {0};
    char where[32];
    snprintf(where, sizeof where, "at offset %td of", offsets[i]);
    cr_assert(ops->upload(setting.gpu, (char *)setting.x->address + offsets[i], "x", 1, &error),
              "%s", error.message);
    cr_expect_not(ops->buffer_intact(setting.gpu, setting.x, &error));
    cr_expect_not_null(strstr(error.message, where), "%s", error.message);
    cr_expect(ops->buffer_intact(setting.gpu, setting.x, &error), "%s", error.message);
  }
  setting_end(&setting);
}

Test(device_order, freed_host_memory_is_used_again_for_buffers_that_need_most_of_it) {
  struct setting setting = setting_make();
  const struct device_ops *ops = setting.gpu->ops;
  enum { BYTES = 1 << 20 };
  void *first = ops->host_buffer_new(setting.gpu, BYTES),
       *second = ops->host_buffer_new(setting.gpu, BYTES);
  cr_expect_neq(first, second);
  ops->host_buffer_free(setting.gpu, first);
  void *small = ops->host_buffer_new(setting.gpu, BYTES / 8),
       *again = ops->host_buffer_new(setting.gpu, BYTES - 5);
  cr_expect_neq(small, first);
  cr_expect_eq(again, first);
  void *huge =
      ops->host_buffer_new(setting.gpu, (size_t)600 << 20); /* not pinned, and not touched */
  ops->host_buffer_free(setting.gpu, huge);
  setting_end(&setting);
}

Test(device_order, the_displacement_size_of_an_mi300x_is_not_the_size_that_a_runtime_reports) {
  unsetenv("WAVETUNE_DISPLACEMENT_BYTES"); /* which ctest sets */
  struct setting setting = setting_make();
  cr_expect_eq(setting.gpu->displacement_bytes, (size_t)512 << 20);
  setting_end(&setting);
}

Test(device_order, a_variable_sets_another_displacement_size) {
  setenv("WAVETUNE_DISPLACEMENT_BYTES", "1073741824", 1);
  struct setting setting = setting_make();
  cr_expect_eq(setting.gpu->displacement_bytes, (size_t)1 << 30);
  setting_end(&setting);
}
