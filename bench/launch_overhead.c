/* What each measured launch costs the agent, besides the kernel's own time: the default config of a
 * kernel is timed against itself as in a lease (paired rounds, cold operands), and the wall time of
 * all that is taken.
 *
 *   launch_overhead DEVICE KERNEL KEY [ROUNDS]
 *   launch_overhead cuda0 kernels/vector_add:hip n=16777216
 *
 * "own time" is that of one launch among many without a pause; "measured" is the median sample, on
 * which decisions are based. Memory: ends with the process. Threads: one, besides those of the
 * compile pool. */
#include <inttypes.h>
#include <math.h>

#include "agent/compile/compile.h"
#include "agent/measure/check.h"
#include "agent/measure/race.h"
#include "common/base/file.h"
#include "common/base/numbers.h"
#include "common/kernel/kernel_folder.h"

#define ROUNDS_DEFAULT 200
#define RUN_CALLS 1000
#define RUN_US_MAX 2e6

struct bench {
  struct kernel_folder *folder;
  char *sources; /* the folder's path, without the version */
  struct key key;
  struct device *device;
  struct compile_pool *pool;
};

static struct compile_result compile(struct bench *bench, bool is_reference) {
  struct compile_request request = {.kernel = bench->folder->kernel,
                                    .key = &bench->key,
                                    .space = bench->folder->space,
                                    .config = bench->folder->space->default_ordinal,
                                    .is_reference = is_reference,
                                    .sources = bench->sources,
                                    .gpu_name = bench->device->gpu_name,
                                    .arch = bench->device->arch};
  struct compile_result result =
      compile_pool_wait(bench->pool, compile_pool_submit(bench->pool, &request));
  if (!result.ok)
    die("%s", result.error.message);
  return result;
}

static struct loaded_config *loaded_config_of(struct problem *problem,
                                              const struct compile_result *object) {
  struct launch_spec spec = launch_spec_default();
  struct loaded_config *loaded = NULL;
  struct error error = {0};
  spec.resources = object->resources;
  if (config_load(problem, problem->space->default_ordinal, object->object, &spec, &loaded,
                  &error) != OUTCOME_CORRECT ||
      config_check(problem, loaded, &error) != OUTCOME_CORRECT)
    die("%s", error.message);
  return loaded;
}

static void turn_ignore(void *context, uint64_t config) { (void)context, (void)config; }

/* The time of one launch among many without a pause. */
static double own_time_us(struct problem *problem, struct timed_config *timed) {
  double calls = timed->estimate_us > 0 ? RUN_US_MAX / timed->estimate_us : RUN_CALLS;
  struct device_timing timing = {.launch = config_launch(timed->loaded),
                                 .rotation = &problem->rotation,
                                 .calls = calls < 1           ? 1
                                          : calls > RUN_CALLS ? RUN_CALLS
                                                              : (unsigned)calls};
  struct error error = {0};
  if (!problem->device->ops->time(problem->device, &timing, 1, &error))
    die("%s", error.message);
  return timing.us;
}

static double sum(const double *values, size_t n) {
  double total = 0;
  for (size_t i = 0; i < n; i++)
    total += values[i];
  return total;
}

static void measure(struct bench *bench, struct problem *problem,
                    const struct compile_result *object, size_t rounds) {
  const struct race_listener listener = {NULL, turn_ignore, NULL};
  const struct race_limits limits = {
      .rounds_min = rounds, .rounds_max = rounds, .margin = INFINITY};
  struct race race;
  struct error error = {0};
  struct timed_config baseline = {.loaded = loaded_config_of(problem, object)},
                      config = {.loaded = loaded_config_of(problem, object)};
  if (!timed_warm_up(problem, &baseline, WARM_UP_BASELINE_US, 0, &error))
    die("%s", error.message);

  int64_t begin = clock_monotonic_ns();
  race_run(&(struct race_setup){problem, &baseline, &config, 1, &limits, 1, listener}, &race);
  double wall_us = (double)(clock_monotonic_ns() - begin) / 1e3;
  if (config.end == RACE_END_FAILED)
    die("%s", config.error.message);

  double launches = (double)config.n * (config.calls + RACE_BASELINES * baseline.calls);
  double kernel_us = sum(config.samples_us, config.n) * config.calls +
                     RACE_BASELINES * sum(config.baseline_us, config.n) * baseline.calls;
  double own_us = own_time_us(problem, &config), overhead_us = (wall_us - kernel_us) / launches,
         measured_us = median_of(config.samples_us, config.n);

  printf("%s on %s, %s: %zu rounds of %u + %u x %u launches\n", bench->folder->kernel->name,
         bench->device->gpu_name, bench->device->ops->timer, config.n, config.calls, RACE_BASELINES,
         baseline.calls);
  printf("own time of a launch           %10.3f us\n", own_us);
  printf("measured                       %10.3f us\n", measured_us);
  printf("the wall's time of a launch    %10.3f us\n", wall_us / launches);
  printf("overhead of a measured launch  %10.3f us\n", overhead_us);
  printf("ratio: overhead / own time %.3f x; measured / own time %.3f x\n", overhead_us / own_us,
         measured_us / own_us);
  config_unload(problem, config.loaded);
  config_unload(problem, baseline.loaded);
  timed_release(&config);
  timed_release(&baseline);
}

int main(int argc, char **argv) {
  /* The compile pool starts this program for runtime compilers, as it does the agent. */
  if (argc >= 2 && string_equal(argv[1], "rtc"))
    rtc_main(argc, argv);
  json_object_seed(0);
  struct bench bench = {0};
  struct error error = {0};
  char cache[] = "/tmp/wavetune-bench-XXXXXX";
  int64_t rounds = ROUNDS_DEFAULT;
  if (argc < 4 || argc > 5 || (argc == 5 && (rounds = atoll(argv[4])) < 1) || rounds > 100000)
    die("usage: launch_overhead DEVICE KERNEL KEY [ROUNDS]");

  if (!kernel_folder_load(argv[2], &bench.folder, &error) ||
      !key_parse_text(argv[3], (const char *const *)bench.folder->kernel->key_names,
                      bench.folder->kernel->n_key_names, &bench.key, &error) ||
      !kernel_accepts(bench.folder->kernel, &bench.key, bench.folder->space, &error) ||
      !device_open(argv[1], &bench.device, &error))
    die("%s", error.message);
  if (!mkdtemp(cache) || !compile_pool_new(cache, 0, &bench.pool, &error))
    die("cannot compile: %s", error.message);

  const char *colon = strrchr(argv[2], ':');
  bench.sources = colon ? xstrndup(argv[2], (size_t)(colon - argv[2])) : xstrdup(argv[2]);
  struct compile_result host = compile(&bench, true), object = compile(&bench, false);
  struct problem_setup setup = {.device = bench.device,
                                .kernel = bench.folder->kernel,
                                .key = &bench.key,
                                .space = bench.folder->space,
                                .baseline = bench.folder->space->default_ordinal,
                                .seed = 1,
                                .regime = REGIME_COLD,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  struct problem *problem = NULL;
  if (!reference_load(host.object, &setup.reference, &error) ||
      !problem_new(&setup, &problem, &error))
    die("%s", error.message);

  measure(&bench, problem, &object, (size_t)rounds);
  problem_free(problem);
  compile_result_release(&object);
  compile_result_release(&host);
  compile_pool_free(bench.pool);
  device_close(bench.device);
  key_release(&bench.key);
  kernel_folder_free(bench.folder);
  free(bench.sources);
  return folder_remove(cache, &error) ? 0 : 1;
}
