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
