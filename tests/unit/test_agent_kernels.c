/* The kernels that come with wavetune: their defaults and a few other configs are right, for odd
 * sizes too. */
#include "tests/unit/agent_fixture.h"

#include "agent/measure/check.h"
#include "common/base/numbers.h"
#include "common/kernel/kernel_folder.h"

#define OTHER_CONFIGS 3 /* drawn from the space, in addition to the default */

struct checker {
  struct kernel_folder *folder;
  struct compile_pool *pool;
  struct device *device;
  char *directory, *cache;
  struct key key;
};

static struct compile_result compile(struct checker *checker, uint64_t config, bool is_reference) {
  struct compile_request request = {.kernel = checker->folder->kernel,
                                    .key = &checker->key,
                                    .space = checker->folder->space,
                                    .config = config,
                                    .is_reference = is_reference,
                                    .sources = checker->directory,
                                    .gpu_name = checker->device->gpu_name,
                                    .arch = checker->device->arch};
  struct compile_result result =
      compile_pool_wait(checker->pool, compile_pool_submit(checker->pool, &request));
  cr_assert(result.ok, "%s", result.error.message);
  return result;
}

static void check_config(struct checker *checker, struct problem *problem, uint64_t config) {
  struct error error = {0};
  struct loaded_config *loaded;
  struct compile_result object = compile(checker, config, false);
  char *text = space_config_format(checker->folder->space, config);
  struct launch_spec launch = launch_spec_default();
  cr_assert_eq(config_load(problem, config, object.object, &launch, &loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  cr_expect_eq(config_check(problem, loaded, &error), OUTCOME_CORRECT, "%s: %s", text,
               error.message);
  config_unload(problem, loaded);
  compile_result_release(&object);
  free(text);
}

/* Checks the default and random valid configs. */
static void check_key(struct checker *checker, const char *key_text) {
  struct error error = {0};
  const struct kernel *kernel = checker->folder->kernel;
  const struct space *space = checker->folder->space;
  struct reference *reference;
  struct problem *problem;
  struct rng rng = rng_seeded(1);
  cr_assert(key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names,
                           &checker->key, &error),
            "%s", error.message);
  cr_assert(kernel_accepts(kernel, &checker->key, space, &error), "%s", error.message);
  struct compile_result object = compile(checker, 0, true);
  cr_assert(reference_load(object.object, &reference, &error), "%s", error.message);
  compile_result_release(&object);
  cr_assert(space->has_default);
  struct problem_setup setup = {.device = checker->device,
                                .kernel = kernel,
                                .key = &checker->key,
                                .space = space,
                                .reference = reference,
                                .baseline = space->default_ordinal,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(problem_new(&setup, &problem, &error), "%s", error.message);
  check_config(checker, problem, space->default_ordinal);
  struct space_facts facts = {&checker->key, checker->device->gpu_name, checker->device->arch};
  for (int found = 0; found < OTHER_CONFIGS;) {
    uint64_t config = rng_below(&rng, space->raw_count);
    bool holds;
    cr_assert(space_is_valid(space, &facts, config, &holds, &error), "%s", error.message);
    if (!holds)
      continue;
    check_config(checker, problem, config);
    found++;
  }
  problem_free(problem);
  key_release(&checker->key);
}

static void check_kernel(const char *name, const char *const *keys) {
  struct checker checker = {0};
  struct error error = {0};
  char cache[] = "/tmp/wavetune-test-XXXXXX";
  char *place = xasprintf(SOURCE_FOLDER "/kernels/%s", name);
  cr_assert_not_null(mkdtemp(cache));
  cr_assert(kernel_folder_load(place, &checker.folder, &error), "%s", error.message);
  checker.directory =
      xstrndup(place, (size_t)(strchrnul(place + strlen(SOURCE_FOLDER), ':') - place));
  cr_assert(compile_pool_new(cache, 2, &checker.pool, &error));
  cr_assert(device_open("cpu0", &checker.device, &error));
  for (size_t i = 0; keys[i]; i++)
    check_key(&checker, keys[i]);
  device_close(checker.device);
  compile_pool_free(checker.pool);
  kernel_folder_free(checker.folder);
  cr_expect(folder_remove(cache, &error));
  free(checker.directory);
  free(place);
}

static const char *const matrices[] = {"rows=1,columns=1", "rows=7,columns=13",
                                       "rows=103,columns=77", "rows=2,columns=5001", NULL};

Test(kernels, vector_add) {
  check_kernel("vector_add:c", (const char *const[]){"n=1", "n=7", "n=1023", "n=100003", NULL});
}
Test(kernels, softmax_naive) { check_kernel("softmax:naive", matrices); }
Test(kernels, softmax_online) { check_kernel("softmax:online", matrices); }
Test(kernels, softmax_fused) { check_kernel("softmax:fused", matrices); }
Test(kernels, layernorm) { check_kernel("layernorm:c", matrices); }
Test(kernels, matmul) {
  check_kernel("matmul:c",
               (const char *const[]){"M=1,N=1,K=1", "M=7,N=5,K=3", "M=97,N=129,K=65", NULL});
}
Test(kernels, attention) {
  check_kernel("attention:c", (const char *const[]){"heads=1,sequence=1,head_dim=1",
                                                    "heads=3,sequence=77,head_dim=40", NULL});
}
Test(kernels, noop) { check_kernel("noop:c", (const char *const[]){"n=1", NULL}); }

Test(kernels, the_configs_of_noop_share_one_object) {
  struct error error = {0};
  struct checker checker = {0};
  char cache[] = "/tmp/wavetune-test-XXXXXX";
  cr_assert_not_null(mkdtemp(cache));
  cr_assert(kernel_folder_load(SOURCE_FOLDER "/kernels/noop:c", &checker.folder, &error), "%s",
            error.message);
  checker.directory = xstrdup(SOURCE_FOLDER "/kernels/noop");
  cr_assert(compile_pool_new(cache, 2, &checker.pool, &error));
  cr_assert(device_open("cpu0", &checker.device, &error));
  cr_expect_eq(checker.folder->space->raw_count, 2000);
  struct compile_result first = compile(&checker, 0, false), last = compile(&checker, 1999, false);
  cr_expect_str_eq(first.object, last.object);
  cr_expect_eq(last.compile_ms, 0);
  compile_result_release(&first);
  compile_result_release(&last);
  device_close(checker.device);
  compile_pool_free(checker.pool);
  kernel_folder_free(checker.folder);
  cr_expect(folder_remove(cache, &error));
  free(checker.directory);
}
