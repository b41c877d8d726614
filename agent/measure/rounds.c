/* Rounds of paired samples. Memory: see rounds.h. Threads: one. */
#include "agent/measure/rounds.h"

#include "common/rng.h"
#include "common/verdict.h"

#define CALLS_MAX 100000

void timed_release(struct timed *timed) {
  free(timed->samples_us);
  free(timed->baseline_us);
}

static struct device_timing timing_of(struct problem *problem, const struct timed *timed) {
  return (struct device_timing){candidate_launch(timed->candidate), &problem->rotation, timed->calls, 0};
}

/* More calls when a sample is too short. Where caches are displaced before a sample only its first call is cold. */
static bool calls_raise(const struct problem *problem, struct timed *timed) {
  double sample_us = timed->estimate_us * timed->calls;
  if (sample_us >= SAMPLE_US || problem->rotation.displace || timed->calls == CALLS_MAX)
    return false;
  double needed = 1.2 * SAMPLE_US / timed->estimate_us;
  timed->calls = needed > CALLS_MAX ? CALLS_MAX : needed > timed->calls + 1 ? (unsigned)needed : timed->calls + 1;
  return true;
}

bool timed_warm_up(struct problem *problem, struct timed *timed, double warm_up_us, struct error *error) {
  int64_t start = clock_monotonic_ns();
  const struct device_ops *ops = problem->device->ops;
  timed->calls = 1;
  struct device_timing first = timing_of(problem, timed);
  if (!ops->time(problem->device, &first, 1, error))
    return false;
  bool raised, is_first = true;
  do {
    struct device_timing timing = timing_of(problem, timed);
    if (!ops->time(problem->device, &timing, 1, error))
      return false;
    /* The least of all: what another process delayed must not look like a slow kernel. */
    timed->estimate_us = is_first || timing.us < timed->estimate_us ? timing.us : timed->estimate_us;
    is_first = false;
    raised = calls_raise(problem, timed);
  } while (raised || (double)(clock_monotonic_ns() - start) / 1000 < warm_up_us);
  timed->device_ns += clock_monotonic_ns() - start;
  return true;
}

static void shuffle(struct rng *rng, size_t *order, size_t n) {
  for (size_t i = n; i > 1; i--) {
    size_t k = rng_below(rng, i), kept = order[i - 1];
    order[i - 1] = order[k];
    order[k] = kept;
  }
}

static void fail(struct problem *problem, struct timed *timed, const struct error *error) {
  timed->failed = true;
  timed->error = *error;
  timed->n = 0;
  problem_ask_device(problem, true);
}

static bool wants_round(const struct timed *timed, size_t round, size_t rounds) {
  if (timed->failed)
    return false;
  if (round < ROUNDS_MIN)
    return true;
  return (!timed->is_slow || round < rounds / 4) && (double)timed->timing_ns / 1000 <= ROUNDS_TIME_MAX_US;
}

static void pair_time(struct problem *problem, struct timed *baseline, struct timed *timed, bool is_first) {
  struct device_timing pair[2];
  struct error error;
  int64_t start = clock_monotonic_ns();
  pair[is_first ? 0 : 1] = timing_of(problem, timed);
  pair[is_first ? 1 : 0] = timing_of(problem, baseline);
  if (!problem->device->ops->time(problem->device, pair, 2, &error)) {
    fail(problem, timed, &error);
    return;
  }
  int64_t spent_ns = clock_monotonic_ns() - start;
  timed->timing_ns += spent_ns;
  timed->device_ns += spent_ns;
  timed->samples_us[timed->n] = pair[is_first ? 0 : 1].us;
  timed->baseline_us[timed->n] = pair[is_first ? 1 : 0].us;
  timed->n++;
  timed->n_first += is_first;
  if (timed->n == ROUNDS_MIN)
    timed->is_slow = verdict_paired_ratio(timed->samples_us, timed->baseline_us, timed->n) > ROUNDS_SLOW_RATIO;
}

void rounds_run(struct problem *problem, struct timed *baseline, struct timed *configs, size_t n, size_t rounds,
                uint64_t seed, const struct turn *turn) {
  struct rng rng = rng_seeded(seed);
  size_t *order = xcalloc(n, sizeof *order);
  bool *is_first = xcalloc(n, sizeof *is_first);
  struct error error;
  turn->take(turn->context, baseline->candidate->config);
  struct device_timing awake = timing_of(problem, baseline);
  if (!problem->device->ops->time(problem->device, &awake, 1, &error))
    problem->is_spoiled = true; /* the baseline worked when the problem was opened */
  for (size_t i = 0; i < n; i++) {
    order[i] = i;
    configs[i].samples_us = xcalloc(rounds, sizeof(double));
    configs[i].baseline_us = xcalloc(rounds, sizeof(double));
    if (configs[i].failed || problem->is_spoiled)
      continue;
    turn->take(turn->context, configs[i].candidate->config);
    if (!timed_warm_up(problem, &configs[i], WARM_UP_CONFIG_US, &error))
      fail(problem, &configs[i], &error);
  }
  for (size_t round = 0; round < rounds && !problem->is_spoiled; round++) {
    shuffle(&rng, order, n);
    for (size_t k = 0; k < n && !problem->is_spoiled; k++) {
      struct timed *timed = &configs[order[k]];
      bool *first = &is_first[order[k]];
      *first = round % 2 ? !*first : rng_next(&rng) & 1;
      if (!wants_round(timed, round, rounds))
        continue;
      turn->take(turn->context, timed->candidate->config);
      pair_time(problem, baseline, timed, *first);
    }
  }
  free(order);
  free(is_first);
}
