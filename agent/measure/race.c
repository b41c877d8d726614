/* Runs a race: warms configs up, samples them in rounds, decides when it ends. Which config leaves
 * is decided in race_rules.c. */
#include "agent/measure/race.h"

#include <math.h>

#include "agent/measure/race_rules.h"
#include "common/base/numbers.h"
#include "common/verdict/budget.h"
#include "common/verdict/verdict.h"

#define CALLS_MAX 100000

_Static_assert(WARM_UP_CONFIG_US == BUDGET_WARM_UP_US, "the budget's estimate of the least final");

struct running {
  const struct race_setup *setup;
  struct race *race;
  struct rng rng;
  struct race_order order;
  struct race_spread spread;
  double *baselines_us; /* samples of the baseline in this round, one a block */
  size_t n_baselines, n_in;
  bool *is_in;
  bool *is_cut;       /* its warm-up was short because it looked slow */
  double *clocks_mhz; /* of the rounds; 0: not known */
  int64_t start_ns;
  bool is_abandoned; /* by the listener */
  bool is_decided;
};

const char *race_end_name(enum race_end end) {
  static const char *const names[] = {"far", "behind", "decided", "rounds", "budget", "failed"};
  ALWAYS((size_t)end < ARRAY_LENGTH(names));
  return names[end];
}

void timed_release(struct timed_config *timed) {
  free(timed->samples_us);
  free(timed->baseline_us);
  timed->samples_us = timed->baseline_us = NULL;
}

struct device_timing timed_sample(struct problem *problem, const struct timed_config *timed) {
  return (struct device_timing){config_launch(timed->loaded), &problem->rotation, timed->calls, 0};
}

bool timed_warm_up(struct problem *problem, struct timed_config *timed, double warm_up_us,
                   double enough_us, struct error *error) {
  int64_t start = clock_monotonic_ns();
  bool ok, goes_on = true;
  timed->calls = 1;
  timed->estimate_us = INFINITY;

  do {
    struct device_timing timing = timed_sample(problem, timed);
    ok = problem->device->ops->time(problem->device, &timing, 1, error);
    if (!ok)
      break;
    /* The minimum: a delay by another process must not look like a slow kernel. */
    timed->estimate_us = fmin(timed->estimate_us, timing.us);
    if (enough_us > 0 && timed->estimate_us > enough_us && timed->estimate_us >= SLOW_US)
      break;

    /* More calls when a sample is too short. Where something is prepared before a sample, only its
     * first call sees that. */
    bool is_short = timed->estimate_us * timed->calls < SAMPLE_US &&
                    !rotation_prepares(&problem->rotation) && timed->calls < CALLS_MAX;
    if (is_short) {
      double needed = fmax(1.2 * SAMPLE_US / timed->estimate_us, timed->calls + 1);
      timed->calls = needed > CALLS_MAX ? CALLS_MAX : (unsigned)needed;
    }
    goes_on = is_short || (double)(clock_monotonic_ns() - start) / 1000 < warm_up_us;
  } while (goes_on);

  timed->device_ns += clock_monotonic_ns() - start;
  return ok;
}

static void turn_take(const struct running *running, const struct timed_config *timed) {
  const struct race_listener *listener = &running->setup->listener;
  listener->take(listener->context, timed ? timed->loaded->config : RACE_NO_CONFIG);
}

/* Whether nothing more is to be sampled. */
static bool must_stop(const struct running *running) {
  return running->setup->problem->is_spoiled || running->is_abandoned;
}

static bool is_budget_spent(struct running *running) {
  int64_t bound_us = running->setup->limits->device_us;
  struct race *race = running->race;
  race->device_ns = clock_monotonic_ns() - running->start_ns;
  race->is_over_budget = race->is_over_budget || (bound_us && race->device_ns / 1000 >= bound_us);
  return race->is_over_budget;
}

static bool is_rejected(const struct running *running, size_t round) {
  double clock_mhz = running->clocks_mhz[round];
  return clock_mhz > 0 && clock_mhz < RACE_CLOCK * running->race->clock_mhz;
}

/* Ends a config's sampling, without the rounds that are rejected. */
static void leave(struct running *running, size_t i, enum race_end end) {
  const struct race_listener *listener = &running->setup->listener;
  struct timed_config *timed = &running->setup->configs[i];
  size_t kept = 0;
  running->is_in[i] = false;
  running->n_in--;
  timed->end = end;
  for (size_t r = 0; r < timed->n; r++) {
    if (is_rejected(running, r))
      continue;
    timed->samples_us[kept] = timed->samples_us[r];
    timed->baseline_us[kept++] = timed->baseline_us[r];
  }

  timed->n = kept;

  if (listener->left && !running->is_abandoned)
    running->is_abandoned = !listener->left(listener->context, timed);
}

static void fail(struct running *running, size_t i, const struct error *error) {
  struct timed_config *timed = &running->setup->configs[i];
  timed->error = *error;
  timed->n = 0;
  problem_check_device(running->setup->problem, true);
  leave(running, i, RACE_END_FAILED);
}

/* The baseline worked when the problem was opened: if it fails now, the device is the reason. */
static void baseline_time(struct running *running, struct device_timing *timing) {
  struct problem *problem = running->setup->problem;
  struct error error;
  turn_take(running, running->setup->baseline);
  if (!problem->device->ops->time(problem->device, timing, 1, &error))
    problem->is_spoiled = true;
}

/* Warms configs up in their order; a config is called once only if it is far behind the best of
 * those before it. Once the budget is spent the rest leaves. */
static void warm_up_all(struct running *running) {
  const struct race_setup *setup = running->setup;
  double best_us = setup->baseline->estimate_us;
  if (setup->limits->best_ratio > 0)
    best_us *= fmin(1, setup->limits->best_ratio);

  for (size_t i = 0; i < setup->n && !must_stop(running); i++) {
    struct timed_config *timed = &setup->configs[i];
    struct error error;
    if (i && !setup->limits->is_whole && is_budget_spent(running)) {
      leave(running, i, RACE_END_BUDGET);
      continue;
    }

    turn_take(running, timed);
    if (!timed_warm_up(setup->problem, timed, WARM_UP_CONFIG_US, RACE_FAR * best_us, &error)) {
      fail(running, i, &error);
      continue;
    }
    running->is_cut[i] = best_us > 0 && timed->estimate_us > RACE_FAR * best_us;
    if (best_us <= 0 || timed->estimate_us < best_us)
      best_us = timed->estimate_us;
  }

  running->race->warm_up_ns = clock_monotonic_ns() - running->start_ns;
}

static void block_run(struct running *running, const size_t *places, size_t n) {
  const struct race_setup *setup = running->setup;
  struct device *device = setup->problem->device;
  struct device_timing timings[RACE_BLOCK + 1];
  struct error error;
  bool is_timed = false;
  for (size_t k = 0; k < n; k++)
    timings[k] = timed_sample(
        setup->problem, places[k] == ORDER_BASELINE ? setup->baseline : &setup->configs[places[k]]);

  if (!setup->limits->is_serial && !device->ops->is_synchronous) {
    turn_take(running, NULL);
    is_timed = device->ops->time(device, timings, n, &error);
    if (!is_timed)
      problem_check_device(setup->problem, true);
  }

  for (size_t k = 0; k < n && !is_timed && !must_stop(running); k++) {
    if (places[k] == ORDER_BASELINE) {
      baseline_time(running, &timings[k]);
      continue;
    }
    turn_take(running, &setup->configs[places[k]]);
    if (!device->ops->time(device, &timings[k], 1, &error))
      fail(running, places[k], &error);
  }

  for (size_t k = 0; k < n && !must_stop(running); k++) {
    if (places[k] == ORDER_BASELINE) {
      running->baselines_us[running->n_baselines++] = timings[k].us;
      continue;
    }
    struct timed_config *timed = &setup->configs[places[k]];
    if (!running->is_in[places[k]])
      continue;
    *APPEND(timed->samples_us, timed->n) = fmax(timings[k].us, VERDICT_US_MIN);
  }
}

/* Samples every config once and pairs the samples with the baseline's median. The
 * round's time is charged to the configs in proportion to their samples. */
static void round_run(struct running *running) {
  const struct race_setup *setup = running->setup;
  const struct race_order *order = &running->order;
  struct race *race = running->race;
  int64_t start = clock_monotonic_ns();
  if (race->n_rounds % 2)
    race_order_reverse(&running->order, running->is_in);
  else
    race_order_draw(&running->order, &running->rng, running->is_in, setup->n);
  running->n_baselines = 0;

  for (size_t b = 0, begin = 0; b < order->n_blocks && !must_stop(running);
       begin = order->ends[b++])
    block_run(running, order->places + begin, order->ends[b] - begin);
  if (must_stop(running))
    return;

  double spent_ns = (double)(clock_monotonic_ns() - start), total_us = 0;
  double baseline_us = fmax(median_of(running->baselines_us, running->n_baselines), VERDICT_US_MIN);

  for (size_t i = 0; i < setup->n; i++)
    if (running->is_in[i])
      total_us += setup->configs[i].samples_us[race->n_rounds] * setup->configs[i].calls;

  for (size_t i = 0; i < setup->n; i++) {
    struct timed_config *timed = &setup->configs[i];
    if (!running->is_in[i])
      continue;
    double sample_us = timed->samples_us[race->n_rounds];
    size_t n_paired = race->n_rounds; /* the pairs of earlier rounds */
    *APPEND(timed->baseline_us, n_paired) = baseline_us;
    timed->device_ns += (int64_t)(spent_ns * sample_us * timed->calls / total_us);
  }

  /* The clock's median, and which rounds are rejected by it, change with each round. */
  struct device *device = setup->problem->device;
  running->clocks_mhz[race->n_rounds++] = device->ops->clock_mhz(device);
  cleanup_free double *known = xcalloc(race->n_rounds, sizeof *known);
  size_t n_known = 0;

  array_foreach (clock_mhz, running->clocks_mhz, race->n_rounds)
    if (*clock_mhz > 0)
      known[n_known++] = *clock_mhz;
  race->clock_mhz = n_known ? median_of(known, n_known) : 0;
  race->n_rejected = 0;

  for (size_t r = 0; r < race->n_rounds; r++)
    race->n_rejected += is_rejected(running, r);
}

/* Removes the configs that cannot win. */
static void round_judge(struct running *running) {
  const struct race_setup *setup = running->setup;
  cleanup_free const struct timed_config **in = xcalloc(setup->n, sizeof *in);
  cleanup_free enum race_standing *standings = xcalloc(setup->n, sizeof *standings);
  size_t n_in = 0, n_open = 0;

  for (size_t i = 0; i < setup->n; i++)
    if (running->is_in[i])
      in[n_in++] = &setup->configs[i];

  race_judge(&running->spread, in, n_in, setup->limits, standings);
  for (size_t k = 0; k < n_in && !must_stop(running); k++) {
    n_open += standings[k] == STANDING_OPEN;
    if (standings[k] == STANDING_FAR || standings[k] == STANDING_BEHIND)
      leave(running, (size_t)(in[k] - setup->configs),
            standings[k] == STANDING_FAR ? RACE_END_FAR : RACE_END_BEHIND);
  }

  running->is_decided = !must_stop(running) && n_open == 0;
}

void race_run(const struct race_setup *setup, struct race *race) {
  size_t n = setup->n, least = setup->limits->is_whole ? setup->limits->rounds_min : 1;
  *race = (struct race){0};
  if (!n)
    return;

  struct running running = {
      .setup = setup,
      .race = race,
      .rng = rng_seeded(setup->seed),
      .order = race_order_new(n),
      .baselines_us = xcalloc(race_order_blocks(n), sizeof(double)),
      .n_in = n,
      .is_in = xcalloc(n, sizeof(bool)),
      .is_cut = xcalloc(n, sizeof(bool)),
      .clocks_mhz = xcalloc(setup->limits->rounds_max, sizeof(double)),
      .start_ns = clock_monotonic_ns(),
  };
  memset(running.is_in, true, n);

  /* A call that ends the device's idling, before the warm-up. */
  struct device_timing awake = timed_sample(setup->problem, setup->baseline);
  baseline_time(&running, &awake);
  if (!must_stop(&running))
    warm_up_all(&running);

  while (!must_stop(&running) && running.n_in && !running.is_decided &&
         race->n_rounds < setup->limits->rounds_max &&
         (race->n_rounds < least || !is_budget_spent(&running))) {
    /* Warms up for longer the configs whose first call looked slow and that are still in after a
     * round: something else had slowed that call. */
    for (size_t i = 0; i < n && race->n_rounds == 1 && !must_stop(&running); i++) {
      struct error error;
      if (!running.is_in[i] || !running.is_cut[i])
        continue;
      turn_take(&running, &setup->configs[i]);
      if (!timed_warm_up(setup->problem, &setup->configs[i], WARM_UP_CONFIG_US, 0, &error))
        fail(&running, i, &error);
    }
    if (!must_stop(&running))
      round_run(&running);
    if (!must_stop(&running))
      round_judge(&running);
  }

  enum race_end end = running.is_decided                            ? RACE_END_DECIDED
                      : race->n_rounds >= setup->limits->rounds_max ? RACE_END_ROUNDS
                                                                    : RACE_END_BUDGET;

  for (size_t i = 0; i < n && !must_stop(&running); i++)
    if (running.is_in[i])
      leave(&running, i, end);
  race->device_ns = clock_monotonic_ns() - running.start_ns;
  race_order_release(&running.order);
  race_spread_release(&running.spread);
  free(running.baselines_us);
  free(running.is_in);
  free(running.is_cut);
  free(running.clocks_mhz);
}
