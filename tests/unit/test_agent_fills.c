/* What an object fills before a launch and passes beside the manifest's arguments, in every launch
 * of a config: checks against a reference and against the default, and timed calls. */
#include "agent/measure/check.h"
#include "tests/unit/agent_fixture.h"

enum { N = 1000 };
#define ARGUMENTS                                                                                  \
  "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"readwrite\"},"            \
  "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"read\"},"                  \
  "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]"
/* Adds x to y, as kernels do whose blocks share an output; with MODE 1 it is the only block. */
#define ACCUMULATES                                                                                \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\n"                           \
  "for (int64_t i = 0; i < n; i++) y[i] = (MODE == 1 ? 0 : y[i]) + x[i];\n}\n"
#define REFERENCE                                                                                  \
  "#include <stdint.h>\ndouble f_at(int64_t i, float *y, const float *x, int64_t n) { return "     \
  "x[i]; }\n"
#define FILLED "{\"fills\": [[\"y\", 4000, 0]]}"

struct trial {
  struct fixture fixture;
  struct device *device;
  struct problem *problem;
  struct loaded_config *loaded[4];
  size_t n;
};

static void trial_start(struct trial *trial, bool has_reference) {
  struct fixture_options options = {.arguments = ARGUMENTS,
                                    .reference = REFERENCE,
                                    .n = N,
                                    .space = "{\"parameters\": {\"MODE\": [0, 1]}}"};
  struct error error = {0};
  struct reference *reference = NULL;
  *trial = (struct trial){.fixture = fixture_new(ACCUMULATES, options)};
  cleanup_free char *object = fixture_object(&trial->fixture, 0, true);
  cr_assert(device_open("cpu0", &trial->device, &error));
  cr_assert(!has_reference || reference_load(object, &reference, &error), "%s", error.message);
  struct problem_setup setup = {.device = trial->device,
                                .kernel = trial->fixture.kernel,
                                .key = &trial->fixture.key,
                                .space = trial->fixture.space,
                                .reference = reference,
                                .seed = 1,
                                .regime = REGIME_WARM,
                                .rotation_bytes_max = ROTATION_BYTES_MAX};
  cr_assert(problem_new(&setup, &trial->problem, &error), "%s", error.message);
}

static void trial_end(struct trial *trial) {
  for (size_t i = 0; i < trial->n; i++)
    config_unload(trial->problem, trial->loaded[i]);
  problem_free(trial->problem);
  device_close(trial->device);
  fixture_free(&trial->fixture);
}
#define cleanup_trial __attribute__((cleanup(trial_end)))

static enum outcome trial_load(struct trial *trial, uint64_t config, const char *spec,
                               struct error *error) {
  cleanup_free char *object = fixture_object(&trial->fixture, config, false);
  cleanup_json json_t *json = fixture_json(spec);
  struct launch_spec launch;
  *error = (struct error){0};
  cr_assert(launch_spec_from_json(json, &launch, error), "%s", error->message);
  enum outcome outcome =
      config_load(trial->problem, config, object, &launch, &trial->loaded[trial->n], error);
  launch_spec_release(&launch);
  trial->n += outcome == OUTCOME_CORRECT;
  return outcome;
}

/* Loads a config and checks it; `words`: of the reason why it is wrong. */
static const struct loaded_config *trial_check(struct trial *trial, uint64_t config,
                                               const char *spec, const char *words) {
  struct error error;
  cr_assert_eq(trial_load(trial, config, spec, &error), OUTCOME_CORRECT, "%s", error.message);
  struct loaded_config *loaded = trial->loaded[trial->n - 1];
  enum outcome outcome = config_check(trial->problem, loaded, &error);
  cr_expect_eq(outcome, words ? OUTCOME_CORRECTNESS : OUTCOME_CORRECT, "%s", error.message);
  cr_expect(!words || strstr(error.message, words), "%s", error.message);
  return loaded;
}

Test(fills, are_made_before_the_launch_that_is_compared_with_the_reference) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  trial_check(&trial, 0, FILLED, NULL);
  trial_check(&trial, 1, "{}", NULL);
  trial_check(&trial, 0, "{}", "the reference has");
  trial_check(&trial, 0, "{\"fills\": [[\"y\", 4000, 0], [\"y\", 4, 1065353216]]}", "y[0] is ");
}

/* MODE 0 with what its hook does computes what MODE 1 computes without, and not without. */
Test(fills, are_made_before_the_launches_of_the_default_and_of_what_is_compared_with_it) {
  cleanup_trial struct trial trial;
  trial_start(&trial, false);
  trial_check(&trial, 0, FILLED, NULL);
  cr_expect_eq(trial_check(&trial, 1, "{}", NULL)->agreement, AGREEMENT_BITWISE);
  trial_check(&trial, 0, "{}", "the default config has");

  cleanup_trial struct trial other;
  trial_start(&other, false);
  trial_check(&other, 1, "{}", NULL);
  cr_expect_eq(trial_check(&other, 0, FILLED, NULL)->agreement, AGREEMENT_BITWISE);
}

Test(fills, are_made_before_every_timed_call) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  const struct operand *operands = trial.problem->operands;
  struct error error = {0};
  cr_assert_eq(trial_load(&trial, 0, FILLED, &error), OUTCOME_CORRECT, "%s", error.message);
  struct device_timing timing = {config_launch(trial.loaded[0]), &trial.problem->rotation, 3, 0};
  trial.problem->rotation.operands[0].pristine = NULL; /* what a call left is there for the next */
  cr_assert(trial.device->ops->time(trial.device, &timing, 1, &error), "%s", error.message);
  cr_expect_eq(memcmp(operands[0].checked->address, operands[1].checked->address, 4 * N), 0);
}

Test(fills, that_the_manifest_does_not_allow_are_refused_before_anything_is_loaded) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  struct error error;
  cr_expect_eq(trial_load(&trial, 0, "{\"fills\": [[\"x\", 4, 0]]}", &error), OUTCOME_RUNTIME);
  cr_expect(strstr(error.message, "argument \"x\" is only read"), "%s", error.message);
}

/* The last thousand bytes stay what they were filled with. */
Test(passed, a_value_that_the_object_states_is_passed) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  trial_check(&trial, 1, "{\"arguments\": [\"y\", \"x\", {\"i64\": 1000}]}", NULL);
  trial_check(&trial, 0,
              "{\"arguments\": [\"y\", \"x\", {\"i64\": 750}], \"fills\": [[\"y\", 4000, 0]]}",
              "is 0, the reference has");
}

Test(passed, a_tensor_map_has_its_dimensions_innermost_first_and_its_own_aligned_bytes) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  struct device_ops with_maps = *trial.device->ops;
  struct error error;
  with_maps.has_tensormaps = true;
  trial.device->ops = &with_maps;
#define MAP(base, shape, strides, box)                                                             \
  "{\"tensormap\": {\"base\": \"" base "\", \"type\": 7, \"shape\": [" shape                       \
  "], \"strides\": [" strides "], \"box\": [" box "], \"swizzle\": 3, \"fill\": 1}}"
  cr_assert_eq(
      trial_load(&trial, 0,
                 "{\"arguments\": [" MAP("y", "2, 10, 50", "2000, 200",
                                         "1, 8, 32") ", "
                                                     "\"y\", " MAP("x", "1000", "", "64") "]}",
                 &error),
      OUTCOME_CORRECT, "%s", error.message);
  struct device_launch launch = config_launch(trial.loaded[0]);
  cr_assert_eq(launch.n_tensormaps, 2);
  const struct device_tensormap *y = &launch.tensormaps[0], *x = &launch.tensormaps[1];
  cr_expect(y->rank == 3 && y->type == 7 && y->swizzle == 3 && y->fill == 1);
  cr_expect(y->shape[0] == 50 && y->shape[1] == 10 && y->shape[2] == 2);
  cr_expect(y->strides[0] == 200 && y->strides[1] == 2000);
  cr_expect(y->box[0] == 32 && y->box[1] == 8 && y->box[2] == 1);
  cr_expect(x->rank == 1 && x->shape[0] == 1000 && x->box[0] == 64);
  cr_expect(y->base == trial.problem->operands[0].passed &&
            x->base == trial.problem->operands[1].passed);
  cr_expect(launch.arguments[0] == y->encoded && launch.arguments[2] == x->encoded);
  cr_expect_eq(launch.arguments[1], trial.problem->operands[0].passed);
  cr_expect((uintptr_t)y->encoded % TENSORMAP_ALIGNMENT == 0 &&
            (char *)x->encoded == (char *)y->encoded + TENSORMAP_BYTES);
}

Test(passed, a_tensor_map_is_refused_where_the_back_end_has_none) {
  cleanup_trial struct trial trial;
  trial_start(&trial, true);
  struct error error;
  cr_expect_eq(trial_load(&trial, 0,
                          "{\"arguments\": [\"y\", {\"tensormap\": {\"base\": \"x\", \"type\": 7, "
                          "\"shape\": [1000], \"strides\": [], \"box\": [8], \"swizzle\": 0, "
                          "\"fill\": 0}}, \"n\"]}",
                          &error),
               OUTCOME_RUNTIME);
  cr_expect_str_eq(error.message,
                   "its code takes a tensor map, which the back end cpu does not have");
}
