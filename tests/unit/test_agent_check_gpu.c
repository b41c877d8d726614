/* Problems and checks with a GPU's back end, over a HIP runtime without a GPU. The width of a
 * kernel's block selects its fault (tests/fake_hip). */
#include "tests/unit/agent_fixture.h"

#include <dlfcn.h>

#include "agent/measure/check.h"

enum { N = 1000 };
enum config { GOOD, WRONG, FAULT, BEYOND_END, CHANGE_INPUT, REFUSE, CONFIGS };
enum setup { PLAIN = 0, COLD = 1, FINGERPRINTS = 2, NO_REFERENCE = 4 };

#define MANIFEST                                                                                   \
  "{\"name\": \"add\", \"language\": \"hip\", \"entry\": \"fake_add\", \"sources\": [%s], "        \
  "\"key\": [\"n\"], "                                                                             \
  "\"arguments\": " FIXTURE_ARGUMENTS ", \"launch\": {\"grid\": [\"ceil_div(n, BLOCK)\"], "        \
  "\"block\": [\"BLOCK\"]}%s}"
#define REFERENCE ", \"reference\": {\"source\": %s, \"outputs\": {\"y\": \"f_at\"}}"

struct opened {
  struct fixture fixture;
  char *reference_object, *object;
  struct device *device;
  struct problem *problem;
};

static void kernel_replace(struct fixture *fixture, bool has_reference) {
  struct error error = {0};
  json_t *kernel = fixture_source(fixture, "kernel.hip", "what compiles it is not looked at");
  json_t *reference = fixture_source(fixture, "reference.c", FIXTURE_REFERENCE);
  char *kernel_text = json_dumps(kernel, 0), *reference_text = json_dumps(reference, 0);
  char *stated = has_reference ? xasprintf(REFERENCE, reference_text) : xstrdup("");
  char *text = xasprintf(MANIFEST, kernel_text, stated);
  json_t *manifest = fixture_json(text);
  kernel_free(fixture->kernel);
  cr_assert(kernel_parse(manifest, &fixture->kernel, &error), "%s: %s", error.pointer,
            error.message);
  json_decref(manifest);
  json_decref(kernel);
  json_decref(reference);
  free(kernel_text);
  free(reference_text);
  free(stated);
  free(text);
}

static void problem_open(struct opened *opened, int setup) {
  struct error error = {0};
  struct reference *reference = NULL;
  *opened = (struct opened){
      .fixture = fixture_new(
          FIXTURE_GOOD,
          (struct fixture_options){
              .n = N, .space = "{\"parameters\": {\"BLOCK\": [64, 128, 192, 320, 640, 704]}}"})};
  setenv("WAVETUNE_HIP_LIBRARY", FAKE_HIP, 1);
  setenv("WAVETUNE_ARCH", "gfx942", 1);
  setenv("WAVETUNE_KFD_TOPOLOGY", "/nowhere", 1);
  setenv("WAVETUNE_DISPLACEMENT_BYTES", "1000000", 1);
  kernel_replace(&opened->fixture, !(setup & NO_REFERENCE));
  opened->reference_object =
      setup & NO_REFERENCE ? NULL : fixture_object(&opened->fixture, 0, true);
  opened->object = xasprintf("%s/object", opened->fixture.folder);
  cr_assert(file_write_atomically(opened->object, "\177ELF", 4, 0600, &error), "%s", error.message);
  cr_assert(device_open("hip0", &opened->device, &error), "%s", error.message);
  if (opened->reference_object)
    cr_assert(reference_load(opened->reference_object, &reference, &error), "%s", error.message);
  struct problem_setup problem = {.device = opened->device,
                                  .kernel = opened->fixture.kernel,
                                  .key = &opened->fixture.key,
                                  .space = opened->fixture.space,
                                  .reference = reference,
                                  .seed = 1,
                                  .rotation_bytes_max = ROTATION_BYTES_MAX,
                                  .regime = setup & COLD ? REGIME_COLD : REGIME_WARM,
                                  .instruction_flush = setup & COLD ? opened->object : NULL,
                                  .fingerprint = setup & FINGERPRINTS ? opened->object : NULL};
  cr_assert(problem_new(&problem, &opened->problem, &error), "%s", error.message);
}

static struct loaded_config *loaded_config_of(struct opened *opened, enum config config) {
  struct error error = {0};
  struct loaded_config *loaded = NULL;
  struct launch_spec launch = launch_spec_default();
  cr_assert_eq(config_load(opened->problem, config, opened->object, &launch, &loaded, &error),
               OUTCOME_CORRECT, "%s", error.message);
  return loaded;
}

static void problem_close(struct opened *opened) {
  problem_free(opened->problem);
  device_close(opened->device);
  free(opened->reference_object);
  free(opened->object);
  fixture_free(&opened->fixture);
}

static void expect_found(int setup) {
  struct opened opened;
  struct error error = {0};
  struct loaded_config *loaded[3];
  problem_open(&opened, setup);
  cr_assert_eq(opened.device->has_fingerprint, setup == FINGERPRINTS);
  static const enum config configs[] = {GOOD, WRONG, GOOD};
  for (size_t i = 0; i < ARRAY_LENGTH(configs); i++) {
    loaded[i] = loaded_config_of(&opened, configs[i]);
    enum outcome outcome = config_check(opened.problem, loaded[i], &error);
    cr_expect_eq(outcome, configs[i] == GOOD ? OUTCOME_CORRECT : OUTCOME_CORRECTNESS, "%s",
                 error.message);
  }
  cr_expect(string_starts(loaded[1]->error.message, "y[0] is "), "%s", loaded[1]->error.message);
  cr_expect_eq(opened.problem->operands[0].n_verified, 1);
  cr_expect(problem_inputs_check(opened.problem, &error), "%s", error.message);
  cr_expect_not(opened.problem->is_spoiled);
  for (size_t i = 0; i < ARRAY_LENGTH(loaded); i++)
    config_unload(opened.problem, loaded[i]);
  problem_close(&opened);
}

Test(check_gpu, right_outputs_are_verified_once_and_wrong_ones_found) {
  expect_found(PLAIN);
  expect_found(FINGERPRINTS);
}

static size_t copies_to_host(void) {
  void *library = dlopen(FAKE_HIP, RTLD_NOW | RTLD_NOLOAD);
  cr_assert_not_null(library, "%s", dlerror());
  const char *(*log)(void);
  *(void **)&log = dlsym(library, "fake_hip_log");
  size_t n = 0;
  for (const char *at = log(); *at; at++)
    n += *at == 'H';
  dlclose(library);
  return n;
}

static size_t copies_of_a_check(struct opened *opened, enum config config) {
  struct error error = {0};
  struct loaded_config *loaded = loaded_config_of(opened, config);
  size_t before = copies_to_host();
  cr_expect_eq(config_check(opened->problem, loaded, &error), OUTCOME_CORRECT, "%s", error.message);
  size_t n = copies_to_host() - before;
  config_unload(opened->problem, loaded);
  return n;
}

/* Of an output that passed before, only the canaries of two buffers and the parts of its
 * fingerprint are copied to the host. */
Test(check_gpu, an_output_with_a_known_fingerprint_is_not_copied_to_the_host) {
  enum { CANARIES = 4, PARTS = 1, OUTPUT = 1, INPUT = 1 };
  struct opened opened;
  problem_open(&opened, FINGERPRINTS);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + PARTS + OUTPUT + INPUT);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + PARTS);
  problem_close(&opened);
  problem_open(&opened, PLAIN);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + OUTPUT + INPUT);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + OUTPUT);
  problem_close(&opened);
}

/* With three sets of inputs, which are checked after each config. */
Test(check_gpu, without_a_reference_the_default_is_copied_only_if_a_config_differs) {
  enum { SETS = AGREEMENT_SETS, CANARIES = 4 * SETS, PARTS = SETS, INPUT = 1 };
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, FINGERPRINTS | NO_REFERENCE);
  cr_assert_eq(opened.problem->n_sets, SETS);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), 2 * (CANARIES + PARTS) + INPUT, "the default");
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + PARTS + INPUT);
  cr_expect_null(opened.problem->operands[0].agreed[0].bytes);

  struct loaded_config *wrong = loaded_config_of(&opened, WRONG);
  cr_expect_eq(config_check(opened.problem, wrong, &error), OUTCOME_CORRECTNESS);
  cr_expect_eq(wrong->agreement, AGREEMENT_DISAGREES);
  cr_expect(string_starts(error.message, "y[0] is "), "%s", error.message);
  cr_expect_not_null(strstr(error.message, "the default config has"), "%s", error.message);
  config_unload(opened.problem, wrong);
  cr_expect_eq(copies_of_a_check(&opened, GOOD), CANARIES + PARTS + INPUT);
  problem_close(&opened);
}

Test(check_gpu, without_fingerprints_the_default_is_compared_on_the_host) {
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, NO_REFERENCE);
  struct loaded_config *good = loaded_config_of(&opened, GOOD),
                       *wrong = loaded_config_of(&opened, WRONG);
  cr_expect_eq(config_check(opened.problem, good, &error), OUTCOME_CORRECT, "%s", error.message);
  cr_expect_eq(config_check(opened.problem, wrong, &error), OUTCOME_CORRECTNESS);
  cr_expect_null(opened.problem->operands[0].agreed[0].kept);
  config_unload(opened.problem, good);
  config_unload(opened.problem, wrong);
  problem_close(&opened);
}

Test(check_gpu, a_changed_input_is_found_by_its_fingerprint_and_restored) {
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, FINGERPRINTS);
  struct loaded_config *changes = loaded_config_of(&opened, CHANGE_INPUT),
                       *good = loaded_config_of(&opened, GOOD);
  cr_expect_eq(config_check(opened.problem, changes, &error), OUTCOME_CORRECTNESS);
  cr_expect_not_null(strstr(error.message, "argument \"x\": it is only to be read"), "%s",
                     error.message);
  cr_expect_eq(config_check(opened.problem, good, &error), OUTCOME_CORRECT, "%s", error.message);
  cr_expect(problem_inputs_check(opened.problem, &error), "%s", error.message);
  cr_expect_eq(good->outcome, OUTCOME_CORRECT);
  config_unload(opened.problem, changes);
  config_unload(opened.problem, good);
  problem_close(&opened);
}

Test(check_gpu, a_device_without_a_working_fingerprint_copies_outputs) {
  struct opened opened;
  struct error error = {0};
  setenv("FAKE_HIP_FORGETS", "1", 1);
  problem_open(&opened, FINGERPRINTS);
  cr_expect_not(opened.device->has_fingerprint);
  copies_of_a_check(&opened, GOOD);
  cr_expect(opened.device->ops->fingerprint_set(opened.device, opened.object, &error),
            "it is not tried again");
  problem_close(&opened);
  unsetenv("FAKE_HIP_FORGETS");
  problem_open(&opened, PLAIN);
  cr_expect_not(opened.device->ops->fingerprint_set(opened.device, "/nowhere/object", &error));
  cr_expect_not_null(strstr(error.message, "/nowhere/object"), "%s", error.message);
  cr_expect_not(opened.device->has_fingerprint);
  problem_close(&opened);
}

static void expect_spoiled(int setup, enum config config, enum outcome expected, const char *part) {
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, setup);
  struct loaded_config *loaded = loaded_config_of(&opened, config);
  cr_expect_eq(config_check(opened.problem, loaded, &error), expected);
  cr_expect_not_null(strstr(error.message, part), "%s", error.message);
  cr_expect(opened.problem->is_spoiled);
  cr_expect_not(opened.problem->is_lost);
  config_unload(opened.problem, loaded);
  problem_close(&opened);
}

Test(check_gpu, a_write_beyond_the_end_spoils_the_problem) {
  expect_spoiled(PLAIN, BEYOND_END, OUTCOME_CORRECTNESS,
                 "argument \"y\": a byte outside of the buffer was written");
}

Test(check_gpu, a_fault_spoils_the_problem) {
  expect_spoiled(PLAIN, FAULT, OUTCOME_RUNTIME, "illegal memory access");
}

Test(check_gpu, a_fault_between_two_configs_is_found_when_inputs_are_checked) {
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, PLAIN);
  struct loaded_config *good[] = {loaded_config_of(&opened, GOOD), loaded_config_of(&opened, GOOD)};
  struct loaded_config *faulty = loaded_config_of(&opened, FAULT);
  for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
    cr_assert_eq(config_check(opened.problem, good[i], &error), OUTCOME_CORRECT, "%s",
                 error.message);
  struct device_launch launch = config_launch(faulty);
  cr_expect_not(opened.device->ops->launch(opened.device, &launch, &error) &&
                opened.device->ops->synchronize(opened.device, &error));
  cr_expect_not(problem_inputs_check(opened.problem, &error));
  cr_expect_not_null(strstr(error.message, "copying from the GPU failed"), "%s", error.message);
  cr_expect(opened.problem->is_spoiled);
  for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
    config_unload(opened.problem, good[i]);
  config_unload(opened.problem, faulty);
  problem_close(&opened);
}

/* Its sentinel passes. Without spoiling, the inputs of the configs before it would never be
 * checked. */
Test(check_gpu, a_device_that_refuses_to_check_the_inputs_spoils_the_problem) {
  struct opened opened;
  struct error error = {0};
  struct loaded_config *loaded[1 + CHECK_INPUTS_EVERY];
  problem_open(&opened, FINGERPRINTS);
  for (size_t i = 0; i < CHECK_INPUTS_EVERY; i++) {
    loaded[i] = loaded_config_of(&opened, GOOD);
    cr_assert_eq(config_check(opened.problem, loaded[i], &error), OUTCOME_CORRECT, "%s",
                 error.message);
  }
  loaded[CHECK_INPUTS_EVERY] = loaded_config_of(&opened, REFUSE);
  cr_expect_eq(config_check(opened.problem, loaded[CHECK_INPUTS_EVERY], &error), OUTCOME_RUNTIME);
  cr_expect_not_null(strstr(error.message, "wavetune_fingerprint"), "%s", error.message);
  cr_expect(opened.problem->is_spoiled && opened.problem->is_lost);
  for (size_t i = 0; i < ARRAY_LENGTH(loaded); i++)
    config_unload(opened.problem, loaded[i]);
  problem_close(&opened);
}

Test(check_gpu, cold_samples_rotate_and_flush_instruction_caches) {
  struct opened opened;
  struct error error = {0};
  problem_open(&opened, COLD);
  struct device_rotation *rotation = &opened.problem->rotation;
  cr_expect(rotation->flush_instructions && rotation_prepares(rotation) && !rotation->displace);
  cr_expect_geq(rotation->n_copies * 2 * rotation->operands[0].stride, 1000000);
  struct loaded_config *loaded = loaded_config_of(&opened, GOOD);
  struct device_timing timing = {config_launch(loaded), rotation, 1, 0};
  cr_assert(opened.device->ops->time(opened.device, &timing, 1, &error), "%s", error.message);
  cr_expect_gt(timing.us, 0);
  cr_expect_eq(rotation->next, 1);
  config_unload(opened.problem, loaded);
  problem_close(&opened);
}
