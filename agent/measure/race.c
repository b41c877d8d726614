/* Running a race: who is sampled when, who is told, when it ends. What the samples say is
 * race_statistics.c's. Memory: see race.h. Threads: one. */
#include "agent/measure/race.h"

#include <math.h>

#include "agent/measure/race_order.h"
#include "agent/measure/race_statistics.h"
#include "common/base/numbers.h"
#include "common/verdict/budget.h"
#include "common/verdict/verdict.h"

_Static_assert(WARM_UP_CONFIG_US == BUDGET_WARM_UP_US, "what the least final takes");

struct running {
  struct problem *problem;
  struct timed *baseline, *configs;
  size_t n, n_in;
  const struct race_limits *limits;
  const struct race_listener *listener;
  struct race *race;
  struct rng rng;
  struct race_order order;
  double *baselines; /* samples of the baseline in this round, one a block */
  size_t n_baselines;
  bool *is_in;
  bool *is_cut;   /* its warm-up, because it looked slow */
  double *clocks; /* of the rounds; 0: not known */
  int64_t start_ns;
  bool is_unheard; /* nobody listens any more */
  bool is_decided;
};

const char *race_end_name(enum race_end end) {
  static const char *const names[] = {"far", "behind", "decided", "rounds", "budget", "failed"};
  ALWAYS((size_t)end < ARRAY_LENGTH(names));
  return names[end];
}

static void take(const struct running *running, uint64_t config) {
  running->listener->take(running->listener->context, config);
}

static bool is_over(const struct running *running) {
  return running->problem->is_spoiled || running->is_unheard;
}

static bool is_budget_spent(struct running *running) {
  running->race->device_ns = clock_monotonic_ns() - running->start_ns;
  if (running->limits->device_us && running->race->device_ns / 1000 >= running->limits->device_us)
    running->race->is_over_budget = true;
  return running->race->is_over_budget;
}

/* Of the rounds whose clock is known; 0 where none is. */
static double clock_median(const struct running *running) {
  size_t n = 0;
  cleanup_free double *known = xcalloc(running->race->n_rounds + 1, sizeof *known);
  for (size_t r = 0; r < running->race->n_rounds; r++)
    if (running->clocks[r] > 0)
      known[n++] = running->clocks[r];
  return n == 0 ? 0 : median_of(known, n);
}

static bool is_rejected(const struct running *running, size_t round) {
  double clock_mhz = running->clocks[round];
  return clock_mhz > 0 && clock_mhz < RACE_CLOCK * running->race->clock_mhz;
}

static void clock_look(struct running *running) {
  struct race *race = running->race;
  race->clock_mhz = clock_median(running);
  race->n_rejected = 0;
  for (size_t r = 0; r < race->n_rounds; r++)
    race->n_rejected += is_rejected(running, r);
}

static void samples_reject(const struct running *running, struct timed *timed) {
  size_t kept = 0;
  for (size_t r = 0; r < timed->n; r++) {
    if (is_rejected(running, r))
      continue;
    timed->samples_us[kept] = timed->samples_us[r];
    timed->baseline_us[kept++] = timed->baseline_us[r];
  }
  timed->n = kept;
}

/* Its sampling has ended. */
static void leave(struct running *running, size_t i, enum race_end end) {
  struct timed *timed = &running->configs[i];
  running->is_in[i] = false;
  running->n_in--;
  timed->end = end;
  samples_reject(running, timed);
  if (running->listener->left && !running->is_unheard)
    running->is_unheard = !running->listener->left(running->listener->context, timed);
}

static void fail(struct running *running, size_t i, const struct error *error) {
  struct timed *timed = &running->configs[i];
  timed->error = *error;
  timed->n = 0;
  problem_ask_device(running->problem, true);
  leave(running, i, RACE_END_FAILED);
}

/* The baseline worked when the problem was opened. */
static bool baseline_time(struct running *running, struct device_timing *timing) {
  struct error error;
  take(running, running->baseline->candidate->config);
  if (!running->problem->device->ops->time(running->problem->device, timing, 1, &error))
    running->problem->is_spoiled = true;
  return !running->problem->is_spoiled;
}

/* In the order of trial: those behind are compared with the best of those before. Once the budget
 * is spent the rest leaves. */
static void warm_up_all(struct running *running) {
  double best_us = running->baseline->estimate_us;
  if (running->limits->best_ratio > 0)
    best_us *= fmin(1, running->limits->best_ratio);
  for (size_t i = 0; i < running->n && !is_over(running); i++) {
    struct timed *timed = &running->configs[i];
    struct error error;
    if (i && !running->limits->is_whole && is_budget_spent(running)) {
      leave(running, i, RACE_END_BUDGET);
      continue;
    }
    take(running, timed->candidate->config);
    if (!timed_warm_up(running->problem, timed, WARM_UP_CONFIG_US, RACE_FAR * best_us, &error)) {
      fail(running, i, &error);
      continue;
    }
    running->is_cut[i] = best_us > 0 && timed->estimate_us > RACE_FAR * best_us;
    if (best_us <= 0 || timed->estimate_us < best_us)
      best_us = timed->estimate_us;
  }
  running->race->warm_up_ns = clock_monotonic_ns() - running->start_ns;
}

/* A first call that took long was not the config's fault when it is still in after a round. */
static void warm_up_rest(struct running *running) {
  for (size_t i = 0; i < running->n && !is_over(running); i++) {
    struct error error;
    if (!running->is_in[i] || !running->is_cut[i])
      continue;
    running->is_cut[i] = false;
    take(running, running->configs[i].candidate->config);
    if (!timed_warm_up(running->problem, &running->configs[i], WARM_UP_CONFIG_US, 0, &error))
      fail(running, i, &error);
  }
}

/* What it is paired with is known when the round has ended. */
static void sample_append(struct timed *timed, double us) {
  /* Room grows by doubling: it is full whenever n is a power of two, from 8 on. */
  if (timed->n == 0 || (timed->n >= 8 && (timed->n & (timed->n - 1)) == 0)) {
    size_t capacity = timed->n ? 2 * timed->n : 8;
    timed->samples_us = xreallocarray(timed->samples_us, capacity, sizeof(double));
    timed->baseline_us = xreallocarray(timed->baseline_us, capacity, sizeof(double));
  }
  timed->samples_us[timed->n++] = fmax(us, VERDICT_US_MIN);
}

/* One block while it is sampled. */
struct block {
  size_t n;
  const size_t *places;
  struct device_timing timings[RACE_BLOCK + 1];
};

/* False: the device refused one of them, and still works. */
static bool block_time_at_once(struct running *running, struct block *block) {
  struct device *device = running->problem->device;
  struct error error;
  if (running->limits->is_serial || device->ops->is_synchronous)
    return false;
  take(running, RACE_NOBODY);
  if (device->ops->time(device, block->timings, block->n, &error))
    return true;
  problem_ask_device(running->problem, true);
  return false;
}

static void block_time_one_by_one(struct running *running, struct block *block) {
  struct problem *problem = running->problem;
  for (size_t k = 0; k < block->n && !is_over(running); k++) {
    size_t i = block->places[k];
    struct error error;
    if (i == ORDER_BASELINE) {
      if (!baseline_time(running, &block->timings[k]))
        return;
      continue;
    }
    take(running, running->configs[i].candidate->config);
    if (!problem->device->ops->time(problem->device, &block->timings[k], 1, &error))
      fail(running, i, &error);
  }
}

static void block_run(struct running *running, struct block *block) {
  for (size_t k = 0; k < block->n; k++)
    block->timings[k] = timed_sample(running->problem, block->places[k] == ORDER_BASELINE
                                                           ? running->baseline
                                                           : &running->configs[block->places[k]]);
  if (!block_time_at_once(running, block) && !is_over(running))
    block_time_one_by_one(running, block);
  for (size_t k = 0; k < block->n && !is_over(running); k++) {
    if (block->places[k] == ORDER_BASELINE)
      running->baselines[running->n_baselines++] = block->timings[k].us;
    else if (running->is_in[block->places[k]])
      sample_append(&running->configs[block->places[k]], block->timings[k].us);
  }
}

/* Pairs the samples of a round that took spent_ns; its configs share that as they took it. */
static void round_pair(struct running *running, int64_t spent_ns) {
  double total_us = 0;
  qsort(running->baselines, running->n_baselines, sizeof *running->baselines, compare_doubles);
  double baseline_us = (running->baselines[(running->n_baselines - 1) / 2] +
                        running->baselines[running->n_baselines / 2]) /
                       2;
  for (size_t i = 0; i < running->n; i++)
    if (running->is_in[i])
      total_us +=
          running->configs[i].samples_us[running->race->n_rounds] * running->configs[i].calls;
  for (size_t i = 0; i < running->n; i++) {
    struct timed *timed = &running->configs[i];
    if (!running->is_in[i])
      continue;
    timed->baseline_us[timed->n - 1] = fmax(baseline_us, VERDICT_US_MIN);
    timed->device_ns +=
        (int64_t)((double)spent_ns * timed->samples_us[timed->n - 1] * timed->calls / total_us);
  }
}

static void round_run(struct running *running) {
  struct race *race = running->race;
  const struct race_order *order = &running->order;
  int64_t start = clock_monotonic_ns();
  if (is_over(running))
    return;
  if (race->n_rounds % 2)
    race_order_reverse(&running->order, running->is_in);
  else
    race_order_draw(&running->order, &running->rng, running->is_in, running->n);
  running->n_baselines = 0;
  for (size_t b = 0, begin = 0; b < order->n_blocks && !is_over(running);
       begin = order->ends[b++]) {
    struct block block = {.n = order->ends[b] - begin, .places = order->places + begin};
    block_run(running, &block);
  }
  if (is_over(running))
    return;
  round_pair(running, clock_monotonic_ns() - start);
  running->clocks[race->n_rounds++] =
      running->problem->device->ops->clock_mhz(running->problem->device);
  clock_look(running);
}

/* Lets leave who need not go on. */
static void round_judge(struct running *running, struct race_spread *spread) {
  size_t n_in = 0, n_decided = 0, n_leaving = 0;
  cleanup_free const struct timed **in = xcalloc(running->n, sizeof *in);
  cleanup_free enum race_standing *standings = xcalloc(running->n, sizeof *standings);
  for (size_t i = 0; i < running->n; i++)
    if (running->is_in[i])
      in[n_in++] = &running->configs[i];
  race_judge(spread, in, n_in, running->limits, standings);
  for (size_t k = 0; k < n_in && !is_over(running); k++) {
    bool is_far = standings[k] == STANDING_FAR, is_behind = standings[k] == STANDING_BEHIND;
    n_decided += standings[k] == STANDING_DECIDED;
    n_leaving += is_far || is_behind;
    if (is_far || is_behind)
      leave(running, (size_t)(in[k] - running->configs), is_far ? RACE_END_FAR : RACE_END_BEHIND);
  }
  running->is_decided = n_decided + n_leaving == n_in;
}

static bool goes_on(struct running *running) {
  size_t least = running->limits->is_whole ? running->limits->rounds_min : 1;
  return !is_over(running) && running->n_in && !running->is_decided &&
         running->race->n_rounds < running->limits->rounds_max &&
         (running->race->n_rounds < least || !is_budget_spent(running));
}

/* Those that nothing sent away. */
static void race_end(struct running *running) {
  enum race_end end = running->is_decided                                      ? RACE_END_DECIDED
                      : running->race->n_rounds >= running->limits->rounds_max ? RACE_END_ROUNDS
                                                                               : RACE_END_BUDGET;
  for (size_t i = 0; i < running->n && !is_over(running); i++)
    if (running->is_in[i])
      leave(running, i, end);
}

void race_run(struct problem *problem, struct timed *baseline, struct timed *configs, size_t n,
              const struct race_limits *limits, uint64_t seed, const struct race_listener *listener,
              struct race *ret_race) {
  *ret_race = (struct race){0};
  if (!n)
    return;
  __attribute__((cleanup(race_spread_release))) struct race_spread spread = {0};
  struct running running = {.problem = problem,
                            .baseline = baseline,
                            .configs = configs,
                            .n = n,
                            .n_in = n,
                            .limits = limits,
                            .listener = listener,
                            .race = ret_race,
                            .rng = rng_seeded(seed),
                            .order = race_order_new(n),
                            .baselines = xcalloc(race_order_blocks(n), sizeof(double)),
                            .is_in = xcalloc(n, sizeof(bool)),
                            .is_cut = xcalloc(n, sizeof(bool)),
                            .clocks = xcalloc(limits->rounds_max, sizeof(double)),
                            .start_ns = clock_monotonic_ns()};
  for (size_t i = 0; i < n; i++)
    running.is_in[i] = true;
  struct device_timing awake = timed_sample(problem, baseline);
  if (baseline_time(&running, &awake))
    warm_up_all(&running);
  while (goes_on(&running)) {
    if (ret_race->n_rounds == 1)
      warm_up_rest(&running);
    round_run(&running);
    if (!is_over(&running))
      round_judge(&running, &spread);
  }
  race_end(&running);
  ret_race->device_ns = clock_monotonic_ns() - running.start_ns;
  race_order_release(&running.order);
  free(running.baselines);
  free(running.is_in);
  free(running.is_cut);
  free(running.clocks);
}
