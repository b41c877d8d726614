/* In which order a GPU's runtime gets its calls, where it does not order them itself: over a HIP runtime without a GPU. */
#include <criterion/criterion.h>

#include "agent/device/device.h"
#include "common/file.h"

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
  cr_assert(ops->module_load(setting.gpu, setting.object, "fake_add", &setting.module, &error), "%s", error.message);
  cr_assert(ops->buffer_new(setting.gpu, N * sizeof(float), &setting.x, &error), "%s", error.message);
  cr_assert(ops->buffer_new(setting.gpu, N * sizeof(float), &setting.y, &error), "%s", error.message);
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

/* More calls than there are events, each on the next of two copies, which are as before when all is done. */
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
  cr_assert(ops->upload(setting.gpu, pristine->address, before, sizeof before, &error), "%s", error.message);
  cr_assert(ops->upload(setting.gpu, setting.y->address, zeros, sizeof zeros, &error), "%s", error.message);
  void *y, *arguments[] = {&y, &setting.x->address, &n};
  struct device_operand operand = {&y, setting.y->address, sizeof before, sizeof before, pristine->address};
  struct device_rotation rotation = {.n_operands = 1, .operands = &operand, .n_copies = 2};
  struct device_timing timings[2];
  for (int i = 0; i < 2; i++)
    timings[i] = (struct device_timing){
        {setting.module, {.grid = {2, 1, 1}, .block = {64, 1, 1}}, arguments}, &rotation, CALLS + (unsigned)i, 0};
  cr_assert(ops->time(setting.gpu, timings, 2, &error), "%s", error.message);
  cr_expect(timings[0].us > 0 && timings[1].us > 0);
  cr_expect_eq(rotation.next, 1);
  cr_assert(ops->download(setting.gpu, after, setting.y->address, sizeof after, &error), "%s", error.message);
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
  struct device_launch launch = {setting.module, {.grid = {4, 1, 1}, .block = {64, 1, 1}}, arguments};
  cr_assert(ops->launch(setting.gpu, &launch, &error), "%s", error.message);
  ops->module_unload(setting.gpu, TAKE(setting.module));
  cr_expect(ops->sentinel(setting.gpu, &error), "%s", error.message);
  setting_end(&setting);
}
