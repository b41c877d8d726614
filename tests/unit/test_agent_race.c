/* Running a race on a scripted device: which config is sampled when and in whose turn, which
 * results the listener gets, and when the race ends. */
#include <criterion/criterion.h>

#include <math.h>

#include "agent/measure/race.h"

#define CONFIGS_MAX 20
#define BASELINE 99
#define EVENTS_MAX 4000

/* A device whose kernels take as long as the script says. Its one problem has configs 0 to n - 1
 * and the baseline. */
struct script {
  struct device device;
  struct device_ops ops;
  struct problem problem;
  size_t n;
  struct loaded_config loaded[CONFIGS_MAX + 1]; /* the last is the baseline's */
  struct timed_config configs[CONFIGS_MAX], baseline;
  double us[CONFIGS_MAX + 1];
  size_t n_samples[CONFIGS_MAX + 1];   /* timings given so far */
  size_t slow_sample[CONFIGS_MAX + 1]; /* this one (from 1) takes ten times as long */
  size_t slow_round[CONFIGS_MAX + 1];  /* and that of this round (from 1, the second) */
  size_t fails_at[CONFIGS_MAX + 1];    /* this one (from 1) and all after it are refused */
  bool fails_fatally;                  /* and then the sentinel is refused too */
  bool is_broken;
  double clocks[64]; /* of the rounds; 0: not known */
  size_t n_clocks;   /* rounds that ended */
  size_t n_calls_of_time, most_at_once;
  uint64_t turns[EVENTS_MAX];
  size_t n_turns;
  size_t left[CONFIGS_MAX], n_left; /* which configs left, in order */
  size_t n_at_left[CONFIGS_MAX];    /* with how many samples */
  size_t leaves_heard;              /* the listener ends the race after so many; 0: never */
  struct race race;
};

static struct script *script; /* the one of this test: ops have no context */

static bool script_time(struct device *device, struct device_timing *timings, size_t n,
                        struct error *error) {
  (void)device;
  script->n_calls_of_time++;
  script->most_at_once = n > script->most_at_once ? n : script->most_at_once;
  for (size_t k = 0; k < n; k++) {
    size_t i = (size_t)((uintptr_t)timings[k].launch.module - 1);
    size_t sample = ++script->n_samples[i];
    if (script->fails_at[i] && sample >= script->fails_at[i]) {
      script->is_broken |= script->fails_fatally;
      return error_set(error, "refused");
    }
    bool is_slow = sample == script->slow_sample[i] ||
                   (script->n_clocks && script->n_clocks == script->slow_round[i]);
    timings[k].us = script->us[i] * (is_slow ? 10 : 1);
  }
  return true;
}

static bool script_sentinel(struct device *device, struct error *error) {
  (void)device;
  return !script->is_broken || error_set(error, "broken");
}

static double script_clock(struct device *device) {
  (void)device;
  double clock_mhz = script->clocks[script->n_clocks % ARRAY_LENGTH(script->clocks)];
  script->n_clocks++;
  return clock_mhz;
}

static void turn_note(void *context, uint64_t config) {
  (void)context;
  if (script->n_turns <
      EVENTS_MAX) /* a race that only its budget ends has as many as this machine is fast */
    script->turns[script->n_turns++] = config;
}

static bool left_note(void *context, struct timed_config *timed) {
  (void)context;
  size_t i = (size_t)(timed - script->configs);
  cr_assert_lt(script->n_left, script->n);
  script->n_at_left[i] = timed->n;
  script->left[script->n_left++] = i;
  return script->n_left != script->leaves_heard;
}

static void script_new(size_t n, const double *us) {
  script = xcalloc(1, sizeof *script);
  script->ops = (struct device_ops){
      .time = script_time, .sentinel = script_sentinel, .clock_mhz = script_clock};
  script->device.ops = &script->ops;
  script->problem.device = &script->device;
  script->problem.rotation.n_copies = 1;
  script->n = n;
  for (size_t i = 0; i <= n; i++) {
    struct loaded_config *loaded = &script->loaded[i];
    loaded->config = i < n ? i : BASELINE;
    loaded->module = (struct device_module *)(i + 1); // NOLINT(performance-no-int-to-ptr)
    script->us[i] = i < n ? us[i] : 100;
    if (i < n)
      script->configs[i].loaded = loaded;
  }
  script->baseline.loaded = &script->loaded[n];
  script->baseline.calls = 1;
  script->baseline.estimate_us = 100;
}

static void script_free(void) {
  for (size_t i = 0; i < script->n; i++)
    timed_release(&script->configs[i]);
  free(script);
}

static void script_race(struct race_limits limits) {
  const struct race_listener listener = {NULL, turn_note, left_note};
  race_run(&(struct race_setup){&script->problem, &script->baseline, script->configs, script->n,
                                &limits, 1, listener},
           &script->race);
}

/* `rounds` for every config. */
static struct race_limits fixed(size_t rounds) {
  return (struct race_limits){.rounds_min = rounds, .rounds_max = rounds, .margin = INFINITY};
}

static const struct race_limits screen = {
    .rounds_min = 2, .rounds_max = 16, .margin = 0.05, .precision = 0.02};

static void expect_end(size_t i, enum race_end end, size_t n) {
  cr_expect_eq(script->configs[i].end, end, "config %zu: %s", i,
               race_end_name(script->configs[i].end));
  cr_expect_eq(script->configs[i].n, n, "config %zu: %zu samples", i, script->configs[i].n);
  cr_expect_eq(script->n_at_left[i], n);
}

Test(race, every_config_gets_a_pair_a_round) {
  script_new(3, (double[]){100, 200, 300});
  script_race(fixed(10));
  for (size_t i = 0; i < 3; i++) {
    expect_end(i, RACE_END_ROUNDS, 10);
    for (size_t k = 0; k < 10; k++) {
      cr_expect_float_eq(script->configs[i].samples_us[k], script->us[i], 1e-9);
      cr_expect_float_eq(script->configs[i].baseline_us[k], 100, 1e-9);
    }
  }
  cr_expect_eq(script->race.n_rounds, 10);
  cr_expect_eq(script->n_left, 3);
  script_free();
}

Test(race, a_slow_sample_of_the_baseline_changes_no_pair) {
  script_new(1, (double[]){100});
  script->slow_sample[1] =
      2; /* the first of the first round, after the one that wakes the device */
  script_race(fixed(2));
  cr_expect_float_eq(script->configs[0].baseline_us[0], 100, 1e-9);
  cr_expect_float_eq(script->configs[0].baseline_us[1], 100, 1e-9);
  script_free();
}

Test(race, far_configs_leave_after_one_round_and_those_behind_after_two) {
  script_new(4, (double[]){100, 250, 120, 101});
  script_race(screen);
  expect_end(0, RACE_END_DECIDED, 2);
  expect_end(1, RACE_END_FAR, 1);
  expect_end(2, RACE_END_BEHIND, 2);
  expect_end(3, RACE_END_DECIDED, 2);
  cr_expect_eq(script->left[0], 1, "told as soon as it left");
  cr_expect_eq(script->left[1], 2);
  script_free();
}

/* As measurements have it: what the agent posts. */
Test(race, every_end_has_its_name) {
  static const char *const names[] = {
      [RACE_END_FAR] = "far",       [RACE_END_BEHIND] = "behind", [RACE_END_DECIDED] = "decided",
      [RACE_END_ROUNDS] = "rounds", [RACE_END_BUDGET] = "budget", [RACE_END_FAILED] = "failed"};
  for (size_t end = 0; end < ARRAY_LENGTH(names); end++)
    cr_expect_str_eq(race_end_name((enum race_end)end), names[end]);
}

Test(race, a_block_is_timed_at_once_in_the_turn_of_no_config) {
  double us[CONFIGS_MAX];
  for (size_t i = 0; i < CONFIGS_MAX; i++)
    us[i] = 100;
  script_new(CONFIGS_MAX, us);
  script_race(fixed(2));
  cr_expect_leq(script->most_at_once, RACE_BLOCK + 1);
  cr_expect_gt(script->most_at_once, 5);
  /* The baseline and each config once to warm up, then three blocks a round. */
  cr_expect_eq(script->n_turns, 1 + CONFIGS_MAX + 6);
  for (size_t k = 1 + CONFIGS_MAX; k < script->n_turns; k++)
    cr_expect_eq(script->turns[k], RACE_NO_CONFIG);
  script_free();
}

static void expect_turns_of_their_own(void) {
  cr_expect_eq(script->most_at_once, 1);
  cr_expect_eq(script->n_turns, 1 + 3 + 2 * (3 + RACE_BASELINES));
  size_t n_baseline = 0;
  for (size_t k = 4; k < script->n_turns; k++) {
    cr_expect_neq(script->turns[k], RACE_NO_CONFIG);
    n_baseline += script->turns[k] == BASELINE;
    /* The second round repeats the first in reverse. */
    cr_expect_eq(script->turns[k], script->turns[script->n_turns - 1 - (k - 4)]);
  }
  cr_expect_eq(n_baseline, 2 * RACE_BASELINES);
}

Test(race, on_a_synchronous_device_each_sample_has_a_turn_of_its_own) {
  script_new(3, (double[]){100, 110, 120});
  script->ops.is_synchronous = true;
  script_race(fixed(2));
  expect_turns_of_their_own();
  script_free();
}

Test(race, in_a_serial_race_each_sample_has_a_turn_of_its_own) {
  struct race_limits limits = fixed(2);
  limits.is_serial = true;
  script_new(3, (double[]){100, 110, 120});
  script_race(limits);
  expect_turns_of_their_own();
  script_free();
}

Test(race, a_slow_machine_removes_no_good_config) {
  script_new(3, (double[]){100, 101, 150});
  script->slow_sample[0] = 1; /* when it is warmed up */
  script->slow_round[1] = 1;
  script_race(screen);
  cr_expect_eq(script->configs[0].end, RACE_END_DECIDED);
  cr_expect_eq(script->configs[1].end, RACE_END_DECIDED);
  script_free();
}

Test(race, a_config_with_a_slow_first_call_is_warmed_up_later) {
  script_new(2, (double[]){10, 10});
  script->slow_sample[1] = 1;
  script_race((struct race_limits){.rounds_min = 2, .rounds_max = 4, .margin = 0.05});
  cr_expect_lt(script->configs[1].estimate_us, 11);
  cr_expect_geq(script->configs[1].estimate_us * script->configs[1].calls, SAMPLE_US);
  script_free();
}

Test(race, a_config_that_is_far_slower_is_called_once_to_warm_up) {
  script_new(2, (double[]){100, 100000});
  script_race(screen);
  cr_expect_eq(script->n_samples[1], 2, "once to warm up and in one round");
  expect_end(1, RACE_END_FAR, 1);
  script_free();
}

Test(race, one_call_shows_how_slow_a_config_is_from_SLOW_US_on) {
  script_new(3, (double[]){5, SLOW_US + 10, SLOW_US - 8});
  script_race(screen);
  cr_expect_eq(script->n_samples[1], 2, "once to warm up and in one round");
  cr_expect_gt(script->n_samples[2], 2, "a call of so little tells nothing");
  cr_expect_geq(script->configs[2].calls * (SLOW_US - 8), SAMPLE_US);
  script_free();
}

Test(race, a_short_kernel_is_called_until_a_sample_is_long_enough) {
  script_new(1, (double[]){0.5});
  script_race(fixed(1));
  cr_expect_geq(script->configs[0].calls * 0.5, SAMPLE_US);
  script_free();
}

Test(race, where_something_is_prepared_before_a_sample_it_has_one_call) {
  script_new(1, (double[]){0.5});
  script->problem.rotation.displace = true;
  script_race(fixed(1));
  cr_expect_eq(script->configs[0].calls, 1);
  script_free();
}

Test(race, a_long_check_costs_no_rounds) {
  script_new(2, (double[]){100, 100});
  script->configs[0].device_ns = (int64_t)100 * 1000000000;
  script_race(fixed(10));
  expect_end(0, RACE_END_ROUNDS, 10);
  script_free();
}

Test(race, a_budget_spent_by_the_warm_up_still_gives_one_round) {
  struct race_limits limits = fixed(1000);
  limits.device_us = 1; /* the first warm-up takes longer */
  script_new(3, (double[]){100, 100, 100});
  script_race(limits);
  expect_end(0, RACE_END_BUDGET, 1);
  expect_end(1, RACE_END_BUDGET, 0);
  expect_end(2, RACE_END_BUDGET, 0);
  cr_expect(script->race.is_over_budget);
  script_free();
}

Test(race, a_whole_race_gives_every_config_the_least_rounds) {
  struct race_limits limits = fixed(1000);
  limits.rounds_min = 4;
  limits.device_us = 1;
  limits.is_whole = true;
  script_new(3, (double[]){100, 100, 100});
  script_race(limits);
  for (size_t i = 0; i < 3; i++)
    expect_end(i, RACE_END_BUDGET, 4);
  cr_expect(script->race.is_over_budget);
  script_free();
}

Test(race, the_round_that_spends_the_budget_is_the_last) {
  struct race_limits limits = fixed(10000);
  limits.device_us = 1000;
  script_new(1, (double[]){100});
  script_race(limits);
  cr_expect_eq(script->configs[0].end, RACE_END_BUDGET);
  cr_expect_eq(script->configs[0].n, script->race.n_rounds);
  cr_expect(script->race.is_over_budget);
  script_free();
}

Test(race, a_decided_race_is_within_its_budget) {
  struct race_limits limits = screen;
  limits.device_us = (int64_t)1000 * 1000000;
  script_new(2, (double[]){100, 200});
  script_race(limits);
  cr_expect_not(script->race.is_over_budget);
  cr_expect_gt(script->race.device_ns, script->race.warm_up_ns);
  cr_expect_gt(script->configs[0].device_ns, 0);
  script_free();
}

Test(race, rounds_of_a_low_clock_are_dropped_from_all_configs) {
  script_new(2, (double[]){100, 100});
  for (size_t r = 0; r < 10; r++)
    script->clocks[r] = r == 2 || r == 7 ? 1000 : 1200;
  script->slow_round[0] = 2;
  script_race(fixed(10));
  expect_end(0, RACE_END_ROUNDS, 8);
  expect_end(1, RACE_END_ROUNDS, 8);
  for (size_t k = 0; k < 8; k++)
    cr_expect_float_eq(script->configs[0].samples_us[k], 100, 1e-9);
  cr_expect_eq(script->race.n_rejected, 2);
  cr_expect_eq(script->race.n_rounds, 10);
  cr_expect_float_eq(script->race.clock_mhz, 1200, 1e-9);
  script_free();
}

Test(race, rounds_of_a_clock_that_is_not_known_count) {
  script_new(1, (double[]){100});
  script->clocks[0] = 1200;
  script_race(fixed(4));
  expect_end(0, RACE_END_ROUNDS, 4);
  script_free();
}

/* Whose turn it was when a config is refused in a block is not known at first. */
Test(race, a_config_that_the_device_refuses_is_found_and_the_others_continue) {
  script_new(3, (double[]){100, 100, 100});
  script->us[1] = 1000; /* called once to warm up */
  script->fails_at[1] = 3;
  script_race(fixed(6));
  expect_end(0, RACE_END_ROUNDS, 6);
  expect_end(1, RACE_END_FAILED, 0);
  expect_end(2, RACE_END_ROUNDS, 6);
  cr_expect_str_eq(script->configs[1].error.message, "refused");
  cr_expect_eq(script->left[0], 1);
  cr_expect_not(script->problem.is_spoiled);
  script_free();
}

Test(race, a_config_that_cannot_be_warmed_up_is_left_out) {
  script_new(2, (double[]){100, 100});
  script->fails_at[0] = 1;
  script_race(fixed(3));
  expect_end(0, RACE_END_FAILED, 0);
  expect_end(1, RACE_END_ROUNDS, 3);
  script_free();
}

Test(race, a_race_ends_when_all_configs_are_refused) {
  script_new(2, (double[]){100, 100});
  script->fails_at[0] = script->fails_at[1] = 1;
  script_race(fixed(3));
  cr_expect_eq(script->n_left, 2);
  cr_expect_eq(script->race.n_rounds, 0);
  script_free();
}

Test(race, no_config_is_reported_of_a_block_that_spoils_the_problem) {
  script_new(3, (double[]){100, 1000, 100});
  script->fails_at[1] = 2;
  script->fails_fatally = true;
  script_race(fixed(6));
  cr_expect(script->problem.is_spoiled);
  cr_expect_eq(script->n_left, 0);
  cr_expect_eq(script->turns[script->n_turns - 1], RACE_NO_CONFIG);
  script_free();
}

Test(race, only_the_config_that_spoils_the_problem_is_reported) {
  struct race_limits limits = fixed(6);
  limits.is_serial = true;
  script_new(3, (double[]){100, 1000, 100});
  script->fails_at[1] = 2;
  script->fails_fatally = true;
  script_race(limits);
  cr_expect(script->problem.is_spoiled);
  cr_expect_eq(script->n_left, 1);
  expect_end(1, RACE_END_FAILED, 0);
  cr_expect_eq(script->turns[script->n_turns - 1], 1);
  script_free();
}

Test(race, a_baseline_that_is_refused_spoils_the_problem_in_its_turn) {
  script_new(2, (double[]){100, 100});
  script->fails_at[2] = 1;
  script_race(fixed(6));
  cr_expect(script->problem.is_spoiled);
  cr_expect_eq(script->n_left, 0);
  cr_expect_eq(script->turns[script->n_turns - 1], BASELINE);
  script_free();
}

Test(race, a_listener_can_end_the_race) {
  script_new(4, (double[]){100, 300, 300, 101});
  script->leaves_heard = 1;
  script_race(screen);
  cr_expect_eq(script->n_left, 1);
  cr_expect_eq(script->race.n_rounds, 1);
  script_free();
}

Test(race, a_race_without_configs_ends_at_once) {
  script_new(0, NULL);
  script_race(screen);
  cr_expect_eq(script->n_turns, 0);
  script_free();
}
