/* GPUs behind the table of functions: the same tests for the back ends hip and cuda. They skip, in
 * the back end's own words, where there is no GPU. Where there is no AMD GPU, hip runs over the
 * shim of tests/hip_shim. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <sys/wait.h>

#include "agent/device/gpu.h"
#include "common/base/file.h"
#include "tests/unit/gpu_kernels.h"
#include "tests/unit/gpu_tile.h"

#define N 65536 /* words of a test's buffers */
#define BLOCK 256
#define CHILD_SKIPPED 77

static const char *const back_ends[] = {"hip", "cuda"};

static struct criterion_test_params back_end_parameters(void) {
  static char names[ARRAY_LENGTH(back_ends)][8]; /* Criterion hands the bytes to another process */
  for (size_t i = 0; i < ARRAY_LENGTH(back_ends); i++)
    snprintf(names[i], sizeof names[i], "%s", back_ends[i]);
  return cr_make_param_array(char[8], names, ARRAY_LENGTH(back_ends));
}

#define GPU_TEST(name)                                                                             \
  static void test_##name(struct device *gpu);                                                     \
  ParameterizedTestParameters(device_gpu, name) { return back_end_parameters(); }                  \
  ParameterizedTest(char(*back_end)[8], device_gpu, name) {                                        \
    struct device *gpu = gpu_open_or_skip(*back_end);                                              \
    test_##name(gpu);                                                                              \
    device_close(gpu);                                                                             \
  }                                                                                                \
  static void test_##name(struct device *gpu)

/* Without an AMD GPU, HIP is the shim; then no topology has the arch, so it is set here. */
static void hip_choose(void) {
  if (access("/dev/kfd", F_OK) == 0)
    return;
  setenv("WAVETUNE_HIP_LIBRARY", HIP_SHIM, 0);
  setenv("WAVETUNE_ARCH", "sm_90", 0);
}

static const struct device_ops *ops_of(const char *back_end) {
  return string_equal(back_end, "hip") ? &hip_ops : &cuda_ops;
}

static bool gpu_open_first(const char *back_end, struct device **ret_gpu, struct error *error) {
  char name[16];
  hip_choose();
  snprintf(name, sizeof name, "%s0", back_end);
  return device_open(name, ret_gpu, error);
}

static struct device *gpu_open_or_skip(const char *back_end) {
  struct error error;
  struct device *gpu;
  if (!gpu_open_first(back_end, &gpu, &error))
    cr_skip("%s", error.message);
  return gpu;
}

static bool is_amd(const struct device *gpu) { return string_starts(gpu->arch, "gfx"); }

/* An object with the kernels of gpu_kernels.h, in a file that the caller removes. */
static char *kernels_write(const struct device *gpu) {
  char *path = xasprintf("/tmp/wavetune-gpu-%d", (int)getpid());
  const char *text = is_amd(gpu) ? gpu_kernels_hip : gpu_kernels_ptx;
  struct error error = {0};
  cr_assert(file_write_atomically(path, text, strlen(text), 0600, &error), "%s", error.message);
  if (!is_amd(gpu))
    return path;
  char *command =
      xasprintf("clang-19 -x hip --cuda-device-only --offload-arch=%s -nogpulib -nogpuinc -O2 "
                "--no-gpu-bundle-output -fuse-cuid=none %s -o %s.co && mv %s.co %s",
                gpu->arch, path, path, path, path);
  int status = system(command);
  free(command);
  if (status != 0)
    cr_skip("clang-19 cannot compile the test's kernels for %s", gpu->arch);
  return path;
}

static struct device_module *kernel_load(struct device *gpu, const char *entry) {
  struct device_module *module = NULL;
  struct error error = {0};
  char *path = kernels_write(gpu);
  bool loaded = gpu->ops->module_load(gpu, path, entry, &module, &error);
  unlink(path);
  free(path);
  cr_assert(loaded, "%s", error.message);
  return module;
}

static struct device_buffer *buffer_make(struct device *gpu, size_t words) {
  struct device_buffer *buffer = NULL;
  struct error error = {0};
  cr_assert(gpu->ops->buffer_new(gpu, words * sizeof(uint32_t), &buffer, &error), "%s",
            error.message);
  return buffer;
}

/* A buffer of N words 0, 1, 2, … */
static struct device_buffer *buffer_counting(struct device *gpu) {
  struct device_buffer *buffer = buffer_make(gpu, N);
  struct error error = {0};
  uint32_t *words = xcalloc(N, sizeof *words);
  for (uint32_t i = 0; i < N; i++)
    words[i] = i;
  cr_assert(gpu->ops->upload(gpu, buffer->address, words, N * sizeof *words, &error), "%s",
            error.message);
  free(words);
  return buffer;
}

static uint32_t *words_of(struct device *gpu, const void *address, size_t n) {
  struct error error = {0};
  uint32_t *words = xcalloc(n, sizeof *words);
  cr_assert(gpu->ops->download(gpu, words, address, n * sizeof *words, &error), "%s",
            error.message);
  return words;
}

static void expect_words(struct device *gpu, const void *address, uint32_t first, uint32_t step) {
  uint32_t *words = words_of(gpu, address, N);
  size_t wrong = 0;
  for (uint32_t i = 0; i < N; i++)
    wrong += words[i] != first + i * step;
  free(words);
  cr_expect_eq(wrong, 0, "%zu of %d words are wrong", wrong, N);
}

static struct device_geometry line_of(size_t threads) {
  return (struct device_geometry){.grid = {(uint32_t)(threads / BLOCK), 1, 1},
                                  .block = {BLOCK, 1, 1}};
}

/* add(out, in, n, k) as a launch; `storage` holds its arguments. */
struct add {
  void *out, *in;
  uint32_t n, k;
  void *arguments[6];
};

static struct device_launch add_launch(struct add *add, struct device_module *module) {
  add->arguments[0] = &add->out;
  add->arguments[1] = &add->in;
  add->arguments[2] = &add->n;
  add->arguments[3] = &add->k;
  return (struct device_launch){module, line_of(N), add->arguments};
}

#define TILE_COPY 3 /* of the rotation, whose words are 1000 more */

/* What the words at `address` are, where those of the input are `more` than their indices. */
static void tile_expect(struct device *gpu, const void *address, uint32_t x, uint32_t more) {
  uint32_t *words = words_of(gpu, address, 512);
  size_t wrong = 0;
  for (uint32_t i = 0; i < 512; i++) {
    uint32_t row = 40 + i / 64, column = x + i % 64;
    wrong += words[i] != 7 + (column < TILE_N ? row * TILE_N + column + more : 0);
  }
  free(words);
  cr_expect_eq(wrong, 0, "%zu of 512 words are wrong at column %u", wrong, x);
}

/* Launched by hand, checked, and timed over copies, whose maps differ. */
static void tile_run(struct tile *tile, int x) {
  struct problem *problem = tile->problem;
  struct device *gpu = problem->device;
  struct device_operand *operands = problem->rotation.operands;
  struct loaded_config *loaded;
  struct error error = {0};
  cr_assert_eq(tile_load(tile, x, &loaded, &error), OUTCOME_CORRECT, "%s", error.message);
  struct device_launch launch = config_launch(loaded);
  cr_assert(problem_reset(problem, 0, &error), "%s", error.message);
  for (int i = 0; i < 2; i++)
    cr_assert(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  tile_expect(gpu, problem->operands[1].checked->address, (uint32_t)x, 0);

  struct device_timing timing = {launch, &problem->rotation, TILE_COPY + 2, 0};
  operands[1].pristine = NULL; /* what calls wrote stays */
  problem->rotation.next = 0;
  cr_assert_gt(problem->rotation.n_copies, TILE_COPY + 2);
  cr_assert(gpu->ops->time(gpu, &timing, 1, &error), "%s", error.message);
  for (uint32_t i = 0; i < TILE_COPY + 2; i++)
    tile_expect(gpu, operands[1].base + i * operands[1].stride, (uint32_t)x,
                i == TILE_COPY ? 1000 : 0);
  config_unload(problem, loaded);
}

GPU_TEST(a_kernel_loads_through_the_tensor_map_that_its_object_states) {
  struct error error = {0};
  struct loaded_config *loaded;
  if (gpu->ops->has_tensormaps && atoi(gpu->arch + strlen("sm_")) < 90)
    return; /* an older GPU */
  struct tile *tile = tile_open(gpu);
  if (!gpu->ops->has_tensormaps) {
    cr_expect_eq(tile_load(tile, 0, &loaded, &error), OUTCOME_RUNTIME);
    cr_expect(strstr(error.message, "takes a tensor map, which the back end hip does not have"),
              "%s", error.message);
    tile_close(tile);
    return;
  }

  uint32_t *more = xcalloc(TILE_N * TILE_N, sizeof *more);
  for (uint32_t i = 0; i < TILE_N * TILE_N; i++)
    more[i] = i + 1000;
  struct device_operand *in = &tile->problem->rotation.operands[0];
  cr_assert(gpu->ops->upload(gpu, in->base + TILE_COPY * in->stride, more,
                             TILE_N * TILE_N * sizeof *more, &error),
            "%s", error.message);
  free(more);
  tile_run(tile, 16);
  tile_run(tile, 240); /* three quarters of the box are outside */

  cr_assert_eq(tile_load(tile, 64, &loaded, &error), OUTCOME_CORRECT, "%s", error.message);
  cr_expect_eq(config_check(tile->problem, loaded, &error), OUTCOME_CORRECT, "%s", error.message);
  loaded->tensormaps[0].strides[0] = 1020; /* no multiple of 16 */
  struct device_launch launch = config_launch(loaded);
  cr_expect_not(gpu->ops->launch(gpu, &launch, &error));
  cr_expect(string_starts(error.message, "tile, tensor map 0: encoding a tensor map failed: "),
            "%s", error.message);
  config_unload(tile->problem, loaded);
  tile_close(tile);
}

/* One process probes and opens it: that works only in this order. */
ParameterizedTestParameters(device_gpu, describes_itself) { return back_end_parameters(); }
ParameterizedTest(char (*back_end)[8], device_gpu, describes_itself) {
  struct error error = {0};
  json_t *devices = NULL;
  hip_choose();
  if (!ops_of(*back_end)->probe(&devices, &error))
    cr_skip("%s", error.message);
  struct device *gpu = gpu_open_or_skip(*back_end);
  json_t *first = json_array_get(devices, 0);
  struct environment environment;
  cr_assert(environment_parse(json_object_get(first, "environment"), &environment, &error), "%s",
            error.message);
  cr_expect(environment_is_full(&environment, &error), "%s", error.message);
  cr_expect_str_eq(environment.gpu, gpu->gpu_name);
  cr_expect_str_eq(environment.arch, gpu->arch);
  cr_expect_eq(environment.compute_units, gpu->compute_units);
  cr_expect((environment.rocm != NULL) == string_equal(gpu->ops->backend, "hip"));
  cr_expect((environment.cuda != NULL) == string_equal(gpu->ops->backend, "cuda"));
  cr_expect(gpu->warp_size == 32 || gpu->warp_size == 64);
  cr_expect_gt(gpu->memory_bytes, 1 << 20);
  device_close(gpu);
  environment_release(&environment);
  json_decref(devices);
}

GPU_TEST(bytes_go_there_and_come_back) {
  struct error error = {0};
  struct device_buffer *from = buffer_counting(gpu), *to = buffer_make(gpu, N);
  cr_expect_eq((uintptr_t)from->address % 4096, 0);
  cr_expect(gpu->ops->copy(gpu, to->address, from->address, from->size, &error), "%s",
            error.message);
  expect_words(gpu, to->address, 0, 1);
  cr_expect(gpu->ops->upload(gpu, to->address, NULL, 0, &error), "%s", error.message);
  gpu->ops->buffer_free(gpu, from);
  gpu->ops->buffer_free(gpu, to);
}

GPU_TEST(a_launch_computes_and_spare_arguments_are_left_alone) {
  struct error error = {0};
  struct device_buffer *in = buffer_counting(gpu), *out = buffer_make(gpu, N);
  struct device_module *module = kernel_load(gpu, "add");
  struct add add = {out->address, in->address, N, 7};
  struct device_launch launch = add_launch(&add, module);
  void *nothing = NULL;
  add.arguments[4] = add.arguments[5] = &nothing;
  cr_expect(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  add.k = 8; /* arguments were read when the launch was given */
  cr_expect(gpu->ops->synchronize(gpu, &error), "%s", error.message);
  expect_words(gpu, out->address, 7, 1);
  cr_expect(gpu->ops->buffer_intact(gpu, out, &error), "%s", error.message);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, in);
  gpu->ops->buffer_free(gpu, out);
}

GPU_TEST(a_grid_with_a_zero_extent_is_not_launched) {
  struct error error = {0};
  struct device_buffer *words = buffer_counting(gpu);
  struct device_module *module = kernel_load(gpu, "count");
  void *address = words->address, *arguments[] = {&address};
  struct device_launch launch = {module, line_of(N), arguments};
  for (int i = 0; i < 3; i++) {
    launch.geometry = line_of(N);
    launch.geometry.grid[i] = 0;
    cr_expect(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  }
  expect_words(gpu, words->address, 0, 1);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, words);
}

GPU_TEST(a_write_behind_a_buffer_is_found_once) {
  struct error error = {0};
  struct device_buffer *in = buffer_counting(gpu), *out = buffer_make(gpu, N - 1);
  struct device_module *module = kernel_load(gpu, "add");
  struct add add = {out->address, in->address, N, 0};
  struct device_launch launch = add_launch(&add, module);
  cr_expect(gpu->ops->buffer_intact(gpu, out, &error), "%s", error.message);
  cr_expect(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  cr_expect_not(gpu->ops->buffer_intact(gpu, out, &error));
  cr_expect_not_null(strstr(error.message, "at offset 262140 of 262140"), "%s", error.message);
  cr_expect(gpu->ops->buffer_intact(gpu, out, &error), "the canaries were not restored: %s",
            error.message);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, in);
  gpu->ops->buffer_free(gpu, out);
}

GPU_TEST(a_write_before_a_buffer_is_found) {
  struct error error = {0};
  struct device_buffer *in = buffer_counting(gpu), *out = buffer_make(gpu, N);
  struct device_module *module = kernel_load(gpu, "add");
  struct add add = {(char *)out->address - 8, in->address, 2, 0};
  struct device_launch launch = add_launch(&add, module);
  cr_expect(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  cr_expect_not(gpu->ops->buffer_intact(gpu, out, &error));
  cr_expect_not_null(strstr(error.message, "at offset -8 of"), "%s", error.message);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, in);
  gpu->ops->buffer_free(gpu, out);
}

/* Rotates over copies of a counting buffer that count() changes. */
struct rotating {
  struct device_buffer *copies, *pristine;
  void *pointer, *arguments[1];
  struct device_operand operand;
  struct device_rotation rotation;
};

static void rotating_init(struct rotating *rotating, struct device *gpu, size_t n_copies,
                          bool restores) {
  struct error error = {0};
  size_t size = N * sizeof(uint32_t);
  rotating->pristine = buffer_counting(gpu);
  rotating->copies = buffer_make(gpu, n_copies * N);
  char *base = rotating->copies->address;
  for (size_t i = 0; i < n_copies; i++)
    cr_assert(gpu->ops->copy(gpu, base + i * size, rotating->pristine->address, size, &error), "%s",
              error.message);
  rotating->arguments[0] = &rotating->pointer;
  rotating->operand = (struct device_operand){&rotating->pointer, base, size, size,
                                              restores ? rotating->pristine->address : NULL};
  rotating->rotation = (struct device_rotation){
      .n_operands = 1, .operands = &rotating->operand, .n_copies = n_copies};
}

static void rotating_release(struct rotating *rotating, struct device *gpu) {
  gpu->ops->buffer_free(gpu, rotating->copies);
  gpu->ops->buffer_free(gpu, rotating->pristine);
}

GPU_TEST(samples_are_durations_and_calls_rotate) {
  struct error error = {0};
  struct rotating rotating;
  struct device_module *module = kernel_load(gpu, "count");
  rotating_init(&rotating, gpu, 3, false);
  struct device_timing timings[4];
  for (int i = 0; i < 4; i++)
    timings[i] =
        (struct device_timing){{module, line_of(N), rotating.arguments}, &rotating.rotation, 5, 0};
  cr_expect(gpu->ops->time(gpu, timings, 4, &error), "%s", error.message);
  for (int i = 0; i < 4; i++)
    cr_expect(timings[i].us > 0 && timings[i].us < 1e6, "%g us", timings[i].us);
  cr_expect_eq(rotating.rotation.next, 20 % 3);
  char *base = rotating.copies->address;
  expect_words(gpu, base, 7, 1); /* of 20 calls: 7, 7 and 6 */
  expect_words(gpu, base + rotating.operand.stride, 7, 1);
  expect_words(gpu, base + 2 * rotating.operand.stride, 6, 1);
  gpu->ops->module_unload(gpu, module);
  rotating_release(&rotating, gpu);
}

GPU_TEST(a_fill_repeats_its_word_and_cuts_the_last) {
  struct error error = {0};
  struct device_buffer *words = buffer_counting(gpu);
  cr_expect(gpu->ops->fill(gpu, words->address, 0x04030201, 10, &error), "%s", error.message);
  uint32_t *found = words_of(gpu, words->address, 4);
  cr_expect(found[0] == 0x04030201 && found[1] == 0x04030201 && found[2] == 0x00000201 &&
            found[3] == 3);
  free(found);
  gpu->ops->buffer_free(gpu, words);
}

/* A kernel that accumulates counts from the filled word in each of its calls. */
GPU_TEST(what_a_call_fills_is_filled_before_every_launch) {
  struct error error = {0};
  struct rotating rotating;
  struct device_module *module = kernel_load(gpu, "count");
  rotating_init(&rotating, gpu, 3, false);
  struct device_fill fill = {&rotating.pointer, N * sizeof(uint32_t), 0x80000029};
  struct device_launch launch = {module, line_of(N), rotating.arguments, .n_fills = 1,
                                 .fills = &fill};
  struct device_timing timings[] = {{launch, &rotating.rotation, 7, 0},
                                    {launch, &rotating.rotation, 1, 0}};
  cr_assert(gpu->ops->time(gpu, timings, 2, &error), "%s", error.message);
  char *base = rotating.copies->address;
  for (int i = 0; i < 3; i++)
    expect_words(gpu, base + (size_t)i * rotating.operand.stride, 0x8000002A, 0);

  fill.size = 8;
  cr_assert(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  launch.geometry.grid[1] = 0;
  rotating.pointer = base;
  cr_assert(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  cr_assert(gpu->ops->synchronize(gpu, &error), "%s", error.message);
  uint32_t *first = words_of(gpu, base, 3);
  cr_expect(first[0] == 0x80000029 && first[1] == 0x80000029 && first[2] == 0x8000002A,
            "%08x %08x %08x", first[0], first[1], first[2]);
  free(first);
  gpu->ops->module_unload(gpu, module);
  rotating_release(&rotating, gpu);
}

/* Samples with preparations and without in one batch, and of more calls than can be in flight at
 * once. */
GPU_TEST(a_batch_may_hold_samples_of_every_kind) {
  struct error error = {0};
  struct rotating rotating, restoring;
  struct device_module *module = kernel_load(gpu, "count");
  enum { SAMPLES = 300 };
  static struct device_timing timings[SAMPLES];
  rotating_init(&rotating, gpu, 3, false);
  rotating_init(&restoring, gpu, 2, true);
  struct device_rotation displacing = rotating.rotation;
  displacing.displace = true;
  for (int i = 0; i < SAMPLES; i++)
    timings[i] = (struct device_timing){
        {module, line_of(N), i % 3 ? rotating.arguments : restoring.arguments},
        i % 3 == 0   ? &restoring.rotation
        : i % 3 == 1 ? &rotating.rotation
                     : &displacing,
        i % 3 == 0 ? 50 : 1,
        0};
  cr_assert(gpu->ops->time(gpu, timings, SAMPLES, &error), "%s", error.message);
  for (int i = 0; i < SAMPLES; i++)
    cr_expect(timings[i].us > 0 && timings[i].us < 1e6, "%g us", timings[i].us);
  json_t *conditions = gpu->ops->conditions(gpu);
  double overhead_us = json_number_value(json_object_get(conditions, "overhead_us"));
  cr_expect(overhead_us > 0 && overhead_us < 1000, "%g us", overhead_us);
  json_decref(conditions);
  expect_words(gpu, restoring.copies->address, 0, 1);
  gpu->ops->module_unload(gpu, module);
  rotating_release(&rotating, gpu);
  rotating_release(&restoring, gpu);
}

GPU_TEST(what_a_call_changes_is_restored_also_over_many_calls) {
  struct error error = {0};
  struct rotating rotating;
  struct device_module *module = kernel_load(gpu, "count");
  rotating_init(&rotating, gpu, 2, true);
  struct device_timing timings[] = {
      {{module, line_of(N), rotating.arguments}, &rotating.rotation, 1001, 0},
      {{module, line_of(N), rotating.arguments}, &rotating.rotation, 1, 0},
  };
  cr_expect(gpu->ops->time(gpu, timings, 2, &error), "%s", error.message);
  cr_expect_gt(timings[0].us, 0);
  cr_expect_gt(timings[1].us, 0);
  expect_words(gpu, rotating.copies->address, 0, 1);
  expect_words(gpu, (char *)rotating.copies->address + rotating.operand.stride, 0, 1);
  gpu->ops->module_unload(gpu, module);
  rotating_release(&rotating, gpu);
}

GPU_TEST(a_sample_may_displace_the_caches_first) {
  struct error error = {0};
  struct rotating rotating;
  struct device_module *module = kernel_load(gpu, "count");
  rotating_init(&rotating, gpu, 1, false);
  rotating.rotation.displace = true;
  struct device_timing timing = {
      {module, line_of(N), rotating.arguments}, &rotating.rotation, 1, 0};
  cr_expect(gpu->ops->time(gpu, &timing, 1, &error), "%s", error.message);
  cr_expect_gt(timing.us, 0);
  expect_words(gpu, rotating.copies->address, 1, 1);
  gpu->ops->module_unload(gpu, module);
  rotating_release(&rotating, gpu);
}

GPU_TEST(an_empty_launch_still_takes_time) {
  struct error error = {0};
  struct device_module *module = kernel_load(gpu, "count");
  struct device_rotation rotation = {.n_copies = 1};
  struct device_timing timing = {{module, {.block = {BLOCK, 1, 1}}, NULL}, &rotation, 1, 0};
  cr_expect(gpu->ops->time(gpu, &timing, 1, &error), "%s", error.message);
  cr_expect_gt(timing.us, 0);
  gpu->ops->module_unload(gpu, module);
}

static void exchange_with(struct device *gpu, const char *kernel, uint32_t bytes,
                          bool cooperative) {
  struct error error = {0};
  struct device_buffer *out = buffer_make(gpu, BLOCK);
  struct device_module *module = kernel_load(gpu, kernel);
  void *address = out->address, *arguments[] = {&address, &bytes};
  struct device_launch launch = {module, line_of(BLOCK), arguments};
  launch.geometry.shared_bytes = bytes;
  launch.geometry.cooperative = cooperative;
  cr_assert(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  uint32_t *words = words_of(gpu, out->address, BLOCK);
  for (uint32_t i = 0; i < BLOCK; i++)
    cr_assert_eq(words[i], BLOCK - 1 - i);
  free(words);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, out);
}

GPU_TEST(shared_memory_is_as_large_as_asked_for) {
  exchange_with(gpu, "exchange", 1024, false);
  exchange_with(gpu, "exchange", 48 << 10, false);
  exchange_with(gpu, "exchange", is_amd(gpu) ? 64 << 10 : 100 << 10, false);
}

/* 60 KiB together, neither of them more than CUDA gives without opting in. */
GPU_TEST(shared_memory_is_asked_for_also_where_the_kernel_has_some_of_its_own) {
  exchange_with(gpu, "exchange_beside", 20 << 10, false);
}

GPU_TEST(a_cooperative_launch_computes) { exchange_with(gpu, "exchange", 4096, true); }

GPU_TEST(more_shared_memory_than_there_is_is_refused_in_a_sentence) {
  struct error error = {0};
  struct device_module *module = kernel_load(gpu, "exchange");
  void *address = NULL;
  uint32_t bytes = 1 << 20;
  void *arguments[] = {&address, &bytes};
  struct device_launch launch = {module, line_of(BLOCK), arguments};
  launch.geometry.shared_bytes = bytes;
  cr_expect_not(gpu->ops->launch(gpu, &launch, &error));
  cr_expect_not_null(strstr(error.message, "1048576 bytes"), "%s", error.message);
  cr_expect(gpu->ops->sentinel(gpu, &error), "%s", error.message);
  gpu->ops->module_unload(gpu, module);
}

GPU_TEST(a_block_that_is_too_large_is_refused_with_its_geometry) {
  struct error error = {0};
  struct device_buffer *words = buffer_counting(gpu);
  struct device_module *module = kernel_load(gpu, "count");
  void *address = words->address, *arguments[] = {&address};
  struct device_launch launch = {module, {.grid = {1, 1, 1}, .block = {4096, 1, 1}}, arguments};
  cr_expect_not(gpu->ops->launch(gpu, &launch, &error));
  cr_expect_not_null(strstr(error.message, "block 4096,1,1"), "%s", error.message);
  launch.geometry.block[0] = BLOCK;
  cr_expect(gpu->ops->launch(gpu, &launch, &error), "%s", error.message);
  cr_expect(gpu->ops->synchronize(gpu, &error), "%s", error.message);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, words);
}

GPU_TEST(clusters_are_launched_or_refused_in_a_sentence) {
  struct error error = {0};
  struct device_buffer *words = buffer_counting(gpu);
  struct device_module *module = kernel_load(gpu, "count");
  void *address = words->address, *arguments[] = {&address};
  struct device_launch launch = {module, line_of(N), arguments};
  launch.geometry.cluster = 2;
  bool launched = gpu->ops->launch(gpu, &launch, &error);
  if (string_equal(gpu->ops->backend, "hip"))
    cr_expect(!launched && strstr(error.message, "clusters"), "%s",
              launched ? "launched" : error.message);
  else if (string_equal(gpu->arch, "sm_90"))
    cr_expect(launched, "%s", error.message);
  expect_words(gpu, words->address, launched, 1);
  gpu->ops->module_unload(gpu, module);
  gpu->ops->buffer_free(gpu, words);
}

GPU_TEST(an_object_that_is_none_is_refused) {
  static const char *const texts[] = {".version 7.0\n.target sm_70\nnonsense\n", "not an object",
                                      ""};
  struct error error = {0};
  struct device_module *module;
  char path[] = "/tmp/wavetune-gpu-bad-XXXXXX";
  int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  close(fd);
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    cr_assert(file_write_atomically(path, texts[i], strlen(texts[i]), 0600, &error), "%s",
              error.message);
    cr_expect_not(gpu->ops->module_load(gpu, path, "add", &module, &error));
    cr_expect_not_null(strstr(error.message, "cannot load add"), "%s", error.message);
  }
  unlink(path);
  cr_expect_not(gpu->ops->module_load(gpu, path, "add", &module, &error));
  cr_expect_not_null(strstr(error.message, path), "%s", error.message);
  cr_expect(gpu->ops->sentinel(gpu, &error), "%s", error.message);
}

GPU_TEST(an_entry_that_is_not_in_the_object_is_refused) {
  struct error error = {0};
  struct device_module *module;
  char *path = kernels_write(gpu);
  cr_expect_not(gpu->ops->module_load(gpu, path, "subtract", &module, &error));
  cr_expect_not_null(strstr(error.message, "subtract"), "%s", error.message);
  unlink(path);
  free(path);
}

GPU_TEST(a_buffer_that_does_not_fit_is_refused) {
  struct error error = {0};
  struct device_buffer *buffer;
  cr_expect_not(gpu->ops->buffer_new(gpu, (size_t)1 << 50, &buffer, &error));
  cr_expect_not_null(strstr(error.message, "bytes"), "%s", error.message);
  cr_expect_not(gpu->ops->buffer_new(gpu, SIZE_MAX, &buffer, &error));
  cr_expect_not_null(strstr(error.message, "too large"), "%s", error.message);
  cr_expect(gpu->ops->sentinel(gpu, &error), "%s", error.message);
}

GPU_TEST(conditions_are_an_object_and_the_clock_is_no_nonsense) {
  json_t *conditions = gpu->ops->conditions(gpu);
  cr_expect(json_is_object(conditions));
  double clock_mhz = gpu->ops->clock_mhz(gpu);
  cr_expect(clock_mhz == 0 || (clock_mhz > 50 && clock_mhz < 10000), "%g MHz", clock_mhz);
  json_decref(conditions);
}

GPU_TEST(a_gpu_that_is_not_there_is_not_opened) {
  static const char *const numbers[] = {"999", "-1", "", "0x0", "99999999999"};
  for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
    struct error error = {0};
    struct device *other;
    char name[32];
    snprintf(name, sizeof name, "%s%s", gpu->ops->backend, numbers[i]);
    cr_expect_not(device_open(name, &other, &error));
    cr_expect_not_null(strstr(error.message, name), "%s", error.message);
  }
}

/* Without the files of an AMD driver the target of HIP's GPU is not known. */
Test(device_gpu, a_hip_gpu_of_unknown_target_is_an_error_with_what_to_do) {
  struct error error;
  struct device *gpu;
  hip_choose();
  if (!device_open("hip0", &gpu, &error))
    cr_skip("%s", error.message);
  device_close(gpu);
  setenv("WAVETUNE_KFD_TOPOLOGY", "/nowhere", 1);
  unsetenv("WAVETUNE_ARCH");
  cr_expect_not(device_open("hip0", &gpu, &error));
  cr_expect_not_null(strstr(error.message, "WAVETUNE_ARCH"), "%s", error.message);
}

/* Runs `body` in a process of its own, as a worker is one, and returns its wait status. */
static int status_in_child(const char *back_end, void (*body)(struct device *gpu)) {
  int status = 0;
  pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    struct error error;
    struct device *gpu;
    if (!gpu_open_first(back_end, &gpu, &error)) {
      fprintf(stderr, "%s\n", error.message);
      _exit(CHILD_SKIPPED);
    }
    body(gpu);
    _exit(1);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  return status;
}

#define CHILD_EXPECT(expression)                                                                   \
  do {                                                                                             \
    if (!(expression)) {                                                                           \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #expression);                             \
      _exit(2);                                                                                    \
    }                                                                                              \
  } while (0)

static void child_faults(struct device *gpu) {
  struct error error = {0};
  struct device_module *module;
  struct device_buffer *buffer;
  char *path = xasprintf("/tmp/wavetune-gpu-fault-%d", (int)getpid());
  CHILD_EXPECT(file_write_atomically(path, gpu_kernels_ptx, strlen(gpu_kernels_ptx), 0600, &error));
  CHILD_EXPECT(gpu->ops->module_load(gpu, path, "poke", &module, &error));
  unlink(path);
  void *address = (void *)64, *arguments[] = {&address};
  struct device_launch launch = {module, {.grid = {1, 1, 1}, .block = {1, 1, 1}}, arguments};
  CHILD_EXPECT(!gpu->ops->launch(gpu, &launch, &error) || !gpu->ops->synchronize(gpu, &error));
  CHILD_EXPECT(strstr(error.message, "illegal"));
  /* All later calls fail with an error sentence. */
  error.message[0] = '\0';
  CHILD_EXPECT(!gpu->ops->buffer_new(gpu, 4096, &buffer, &error) && error.message[0]);
  CHILD_EXPECT(!gpu->ops->sentinel(gpu, &error) && strstr(error.message, "sentinel"));
  gpu->ops->module_unload(gpu, module);
  device_close(gpu);
  _exit(0);
}

static void child_passes(struct device *gpu) {
  struct error error = {0};
  CHILD_EXPECT(gpu->ops->sentinel(gpu, &error));
  CHILD_EXPECT(gpu->ops->sentinel(gpu, &error));
  device_close(gpu);
  _exit(0);
}

/* Writes "NAME PCI" of the last GPU to `fd`, as the process that probes does; nothing where there
 * is none. */
static void child_probes(const char *back_end, int fd) {
  struct error error;
  json_t *devices = NULL;
  hip_choose();
  if (!ops_of(back_end)->probe(&devices, &error))
    _exit(0);
  const json_t *last = json_array_get(devices, json_array_size(devices) - 1);
  const char *name = json_string_value(json_object_get(last, "device"));
  const char *pci = json_string_value(json_object_get(json_object_get(last, "facts"), "pci"));
  CHILD_EXPECT(name && pci && dprintf(fd, "%s %s", name, pci) > 0);
  _exit(0);
}

/* The process sees no other GPU, so its runtime counts this one as the first. */
ParameterizedTestParameters(device_gpu, a_process_of_its_own_opens_the_gpu_that_probe_named) {
  return back_end_parameters();
}
ParameterizedTest(char (*back_end)[8], device_gpu,
                  a_process_of_its_own_opens_the_gpu_that_probe_named) {
  struct error error;
  struct device *gpu;
  int ends[2], status = 0;
  char told[128] = "", *pci;
  cr_assert_eq(pipe(ends), 0);
  pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0)
    child_probes(*back_end, ends[1]);
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", status);
  close(ends[1]);
  ssize_t length = read(ends[0], told, sizeof told - 1);
  close(ends[0]);
  if (length <= 0)
    cr_skip("there is no GPU for %s", *back_end);
  pci = strchr(told, ' ');
  *pci++ = '\0';
  hip_choose();
  cr_assert(device_open(told, &gpu, &error), "%s", error.message);
  cr_expect_str_eq(((struct gpu_device *)gpu)->facts.pci, pci);
  cr_expect_eq(((struct gpu_device *)gpu)->ordinal, 0);
  cr_expect(gpu->ops->sentinel(gpu, &error), "%s", error.message);
  device_close(gpu);
}

/* A fault on an AMD GPU ends the process: HIP returns no error for it. */
ParameterizedTestParameters(device_gpu,
                            a_fault_ends_in_words_and_the_next_process_passes_the_sentinel) {
  return back_end_parameters();
}
ParameterizedTest(char (*back_end)[8], device_gpu,
                  a_fault_ends_in_words_and_the_next_process_passes_the_sentinel) {
  if (string_equal(*back_end, "hip") && access("/dev/kfd", F_OK) == 0)
    cr_skip("a fault on an AMD GPU ends the process without words");
  int faulted = status_in_child(*back_end, child_faults);
  if (WIFEXITED(faulted) && WEXITSTATUS(faulted) == CHILD_SKIPPED)
    cr_skip("there is no GPU for %s", *back_end);
  cr_expect(WIFEXITED(faulted) && WEXITSTATUS(faulted) == 0, "wait status %x", faulted);
  int passed = status_in_child(*back_end, child_passes);
  cr_expect(WIFEXITED(passed) && WEXITSTATUS(passed) == 0, "wait status %x", passed);
}
