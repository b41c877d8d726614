/* Which GPU of several a process opens, and which its runtime sees: over a HIP runtime without a
 * GPU, which has four. */
#include <criterion/criterion.h>
#include <sys/wait.h>

#include "agent/device/gpu.h"

static void four_gpus(void) {
  setenv("WAVETUNE_HIP_LIBRARY", FAKE_HIP, 1);
  setenv("WAVETUNE_ARCH", "gfx942", 1);
  setenv("WAVETUNE_KFD_TOPOLOGY", "/nowhere", 1);
  setenv("FAKE_HIP_COUNT", "4", 1);
  setenv("FAKE_HIP_USABLE", "4", 1);
  unsetenv("HIP_VISIBLE_DEVICES");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TestSuite(device_visible, .init = four_gpus);

/* The last digit of its PCI address: which of the four it is. */
static int gpu_opened(const char *name) {
  struct error error = {0};
  struct device *device;
  cr_assert(device_open(name, &device, &error), "%s: %s", name, error.message);
  const char *pci = ((struct gpu_device *)device)->facts.pci;
  int gpu = pci[strlen(pci) - 1] - '0';
  device_close(device);
  return gpu;
}

static void expect_refused(const char *name, const char *sentence) {
  struct error error = {0};
  struct device *device;
  cr_assert_not(device_open(name, &device, &error), "%s", name);
  cr_expect_str_eq(error.message, sentence);
}

Test(device_visible, a_process_sees_the_gpu_that_it_opens_and_no_other) {
  struct error error = {0};
  json_t *devices = NULL;
  cr_expect_eq(gpu_opened("hip2"), 2);
  cr_expect_str_eq(getenv("HIP_VISIBLE_DEVICES"), "2");
  cr_expect_eq(gpu_opened("hip2"), 2);
  expect_refused("hip0", "no device hip0: this process was started for hip2 and sees no other GPU");
  expect_refused("cuda0",
                 "no device cuda0: this process was started for hip2 and sees no other GPU");
  expect_refused("hip", "no device hip: this process was started for hip2 and sees no other GPU");
  cr_expect_not(hip_ops.probe(&devices, &error));
  cr_expect_str_eq(error.message, "this process was started for hip2 and sees no other GPU");
}

Test(device_visible, a_process_that_has_probed_opens_any_gpu) {
  struct error error = {0};
  json_t *devices = NULL;
  cr_assert(hip_ops.probe(&devices, &error), "%s", error.message);
  cr_expect_eq(json_array_size(devices), 4);
  cr_expect_eq(gpu_opened("hip3"), 3);
  cr_expect_eq(gpu_opened("hip1"), 1);
  expect_refused("hip4", "no device hip4: the HIP runtime sees 4 GPUs, counted from 0");
  cr_expect_null(getenv("HIP_VISIBLE_DEVICES"));
  json_decref(devices);
}

Test(device_visible, the_number_counts_in_the_list_that_is_set) {
  setenv("HIP_VISIBLE_DEVICES", "3,1,0", 1);
  setenv("CUDA_VISIBLE_DEVICES", "2", 1); /* HIP prefers its own variable */
  cr_expect_eq(gpu_opened("hip2"), 0);
  cr_expect_str_eq(getenv("HIP_VISIBLE_DEVICES"), "0");
}

Test(device_visible, ids_are_passed_on_unchanged) {
  setenv("HIP_VISIBLE_DEVICES", "GPU-3,GPU-1", 1);
  cr_expect_eq(gpu_opened("hip1"), 1);
  cr_expect_str_eq(getenv("HIP_VISIBLE_DEVICES"), "GPU-1");
}

/* The same GPU as in the process that probed, where the runtime read the same list. */
Test(device_visible, no_further_gpu_is_hidden_where_the_list_is_ambiguous) {
  static const struct {
    const char *list, *name;
    int gpu;
  } unclear[] = {{"3,1,1,0", "hip2", 0},
                 {"GPU-1,1,0", "hip1", 0},
                 {"1,GPU-3", "hip1", 3},
                 {"2,1, 3", "hip0", 2}};
  for (size_t i = 0; i < ARRAY_LENGTH(unclear); i++) {
    pid_t child = fork();
    int status;
    cr_assert_geq(child, 0);
    if (child == 0) {
      setenv("HIP_VISIBLE_DEVICES", unclear[i].list, 1);
      int gpu = gpu_opened(unclear[i].name);
      _exit(gpu == unclear[i].gpu && string_equal(getenv("HIP_VISIBLE_DEVICES"), unclear[i].list)
                ? 0
                : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0, "%s of %s", unclear[i].name, unclear[i].list);
  }
  setenv("HIP_VISIBLE_DEVICES", "01,2", 1);
  expect_refused("hip0", "no device hip0: the HIP runtime sees 0 GPUs, counted from 0");
}

Test(device_visible, hip_uses_the_list_of_cuda_where_it_has_none) {
  setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
  cr_expect_eq(gpu_opened("hip1"), 3);
  cr_expect_str_eq(getenv("HIP_VISIBLE_DEVICES"), "3");
  cr_expect_str_eq(getenv("CUDA_VISIBLE_DEVICES"), "2,3");
}

Test(device_visible, a_list_that_is_too_short_for_the_number_is_not_changed) {
  setenv("HIP_VISIBLE_DEVICES", "1", 1);
  expect_refused("hip1", "no device hip1: the HIP runtime sees 1 GPU, counted from 0");
  cr_expect_str_eq(getenv("HIP_VISIBLE_DEVICES"), "1");
  cr_expect_eq(gpu_opened("hip0"), 1);
}

Test(device_visible, a_name_without_a_number_hides_nothing) {
  expect_refused("hipx", "no device hipx: the HIP runtime sees 4 GPUs, counted from 0");
  cr_expect_null(getenv("HIP_VISIBLE_DEVICES"));
}

Test(device_visible, a_runtime_that_hides_no_gpu_opens_the_number) {
  setenv("FAKE_HIP_DEAF", "1", 1);
  cr_expect_eq(gpu_opened("hip2"), 2);
}

/* For example, the GPU was absent for a while. */
Test(device_visible, a_runtime_that_did_not_start_is_started_for_the_same_gpu) {
  struct error error = {0};
  struct device *device;
  setenv("WAVETUNE_HIP_LIBRARY", "/nowhere/libamdhip64.so", 1);
  cr_expect_not(device_open("hip2", &device, &error));
  cr_expect(string_starts(error.message, "no device hip2: the HIP runtime is not installed"), "%s",
            error.message);
  setenv("WAVETUNE_HIP_LIBRARY", FAKE_HIP, 1);
  expect_refused("hip1", "no device hip1: this process was started for hip2 and sees no other GPU");
  cr_expect_eq(gpu_opened("hip2"), 2);
}
