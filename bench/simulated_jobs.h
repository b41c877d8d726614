/* Simulated jobs whose true times are known: the verdict is applied to finals with random effects
 * of processes, noise of rounds and outliers. bench_verdict.c runs them by the ten thousand,
 * tests/unit/test_verdict_calibration.c by the hundred.
 *
 * In a process every config has its own effect, also the baseline (it has its own addresses and its
 * own code), and all share one. In a round every config is sampled once, and the baseline once for
 * each block of 8. One sample in 20 is an outlier, delayed by up to ten times the noise. The
 * baseline is a finalist, as in a job.
 *
 * Memory: a final owns its arrays. Threads: plain values. */
#ifndef WAVETUNE_BENCH_SIMULATED_JOBS_H
#define WAVETUNE_BENCH_SIMULATED_JOBS_H

#include <math.h>

#include "common/base/numbers.h"
#include "common/verdict/verdict.h"

#define SIMULATED_CONFIGS_MAX 32
#define SIMULATED_PROCESSES_MAX 6
#define SIMULATED_ROUNDS_MAX 60
#define SIMULATED_BLOCK 8

/* The distribution of the effects of configs in processes. */
enum simulated_effects {
  EFFECTS_NORMAL,
  EFFECTS_BANDS,  /* in one process of four a config is slower by twice the effect */
  EFFECTS_UNLIKE, /* every second config varies 8 times as much as the rest; the root mean square is
                     as stated */
  EFFECTS_LOUD,   /* the baseline varies 8 times as much as the rest, which vary as stated */
};

struct simulated {
  size_t n_configs;                     /* finalists: config 0 is the baseline */
  double ratios[SIMULATED_CONFIGS_MAX]; /* true times over the baseline's; 0: 1 */
  double effect, noise;
  enum simulated_effects effects;
  size_t rounds_min, rounds_max;
  size_t processes_min,
      processes_max; /* more than the minimum only while the verdict is undecided, as in a job */
};

static inline double simulated_normal(struct rng *rng) {
  double u, v, square;
  do {
    u = 2 * rng_unit(rng) - 1;
    v = 2 * rng_unit(rng) - 1;
    square = u * u + v * v;
  } while (square >= 1 || square == 0);
  return u * sqrt(-2 * log(square) / square);
}

static inline double simulated_noise(struct rng *rng, double noise) {
  double value = noise * simulated_normal(rng);
  return rng_below(rng, 20) == 0 ? value + 10 * noise * rng_unit(rng) : value;
}

static inline double simulated_effect(struct rng *rng, const struct simulated *job, size_t config) {
  if (job->effects == EFFECTS_BANDS)
    return rng_below(rng, 4) == 0 ? 2 * job->effect : 0;
  if (job->effects == EFFECTS_LOUD)
    return job->effect * (config == 0 ? 8 : 1) * simulated_normal(rng);
  double scale = job->effects == EFFECTS_NORMAL ? 1
                 : config % 2                   ? 1.4033
                                                : 0.1754; /* 8 : 1, mean square 1 */
  return job->effect * scale * simulated_normal(rng);
}

static inline double simulated_ratio(const struct simulated *job, size_t config) {
  return job->ratios[config] > 0 ? job->ratios[config] : 1;
}

struct simulated_final {
  size_t n;
  struct verdict_sample samples[SIMULATED_CONFIGS_MAX * SIMULATED_PROCESSES_MAX];
};

static inline void simulated_final_release(struct simulated_final *ended) {
  for (size_t i = 0; i < ended->n; i++) {
    free((double *)ended->samples[i].samples_us);
    free((double *)ended->samples[i].baseline_us);
  }
}

/* Adds process `process` of the job's final. The baseline takes about 100 us. */
static inline void simulated_process(const struct simulated *job, size_t process, struct rng *rng,
                                     struct simulated_final *ended) {
  size_t n_blocks = (job->n_configs + SIMULATED_BLOCK - 1) / SIMULATED_BLOCK;
  size_t n_rounds = job->rounds_min + rng_below(rng, job->rounds_max - job->rounds_min + 1);
  double band = 0.05 * simulated_normal(rng), of_baseline = 0;
  double blocks[SIMULATED_CONFIGS_MAX / SIMULATED_BLOCK + 1][SIMULATED_ROUNDS_MAX];
  for (size_t c = 0; c < job->n_configs; c++) {
    double effect = simulated_effect(rng, job, c);
    if (c == 0) { /* the baseline is a finalist with the same code and so the same effect */
      of_baseline = effect;
      for (size_t block = 0; block < n_blocks; block++)
        for (size_t i = 0; i < n_rounds; i++)
          blocks[block][i] = 100 * exp(band + of_baseline + simulated_noise(rng, job->noise));
    }
    double *samples = xcalloc(n_rounds, sizeof *samples);
    for (size_t i = 0; i < n_rounds; i++)
      samples[i] =
          100 * simulated_ratio(job, c) * exp(band + effect + simulated_noise(rng, job->noise));
    ended->samples[ended->n++] = (struct verdict_sample){
        .config = c,
        .process = (int64_t)process,
        .n = n_rounds,
        .samples_us = samples,
        .baseline_us = xmemdup(blocks[c / SIMULATED_BLOCK], n_rounds * sizeof(double))};
  }
}

/* The results of one kind of job. */
struct simulated_counts {
  size_t n, processes;
  size_t outcomes[VERDICT_AMBIGUOUS + 1];
  size_t replaced;             /* FASTER, and by at least VERDICT_MIN_GAIN */
  size_t covered_baseline;     /* the interval against the baseline contains the true ratio of the
                                  winner */
  size_t pairs, covered_pairs; /* intervals to the best */
  size_t below_regret;         /* the true regret is above the bound */
  size_t equivalents;
  /* Configs, except the baseline, that are truly slower than the best by more than
   * VERDICT_EQUIVALENCE; those of them in the set; jobs whose set contains a config that is slower
   * than the truly best one by more than that. */
  size_t slower, slower_equivalents, sets_with_slower;
  double regret, worst_regret; /* sum, most */
};

static inline void simulated_count(const struct simulated *job, const struct verdict *verdict,
                                   struct simulated_counts *counts) {
  const double slack = 1e-12;
  double winner = simulated_ratio(job, verdict->winner),
         best = simulated_ratio(job, verdict->finalists[0].config);
  double least = winner;
  for (size_t c = 0; c < job->n_configs; c++)
    least = fmin(least, simulated_ratio(job, c));
  for (size_t i = 1; i < verdict->n_finalists; i++) {
    const struct verdict_finalist *finalist = &verdict->finalists[i];
    double ratio = simulated_ratio(job, finalist->config) / best;
    counts->pairs++;
    counts->covered_pairs += finalist->lower <= ratio + slack && ratio - slack <= finalist->upper;
    counts->slower += finalist->config != 0 && ratio > VERDICT_EQUIVALENCE;
    counts->slower_equivalents +=
        finalist->config != 0 && finalist->equivalent && ratio > VERDICT_EQUIVALENCE;
  }
  counts->n++;
  counts->processes += verdict->n_processes;
  counts->outcomes[verdict->outcome]++;
  counts->replaced +=
      verdict->outcome == VERDICT_FASTER && verdict->baseline_ratio <= 1 - VERDICT_MIN_GAIN;
  counts->covered_baseline +=
      verdict->baseline_lower <= winner + slack && winner - slack <= verdict->baseline_upper;
  counts->below_regret += verdict->regret_bound < winner / least - 1 - slack;
  counts->equivalents += verdict->n_equivalents;
  bool has_slower = false;
  for (size_t i = 0; i < verdict->n_equivalents; i++)
    has_slower |= simulated_ratio(job, verdict->equivalents[i]) / least > VERDICT_EQUIVALENCE;
  counts->sets_with_slower += has_slower;
  counts->regret += winner / least - 1;
  counts->worst_regret = fmax(counts->worst_regret, winner / least - 1);
}

/* Runs one job from its first process to its verdict. */
static inline void simulated_run(const struct simulated *job, uint64_t seed,
                                 struct simulated_counts *counts) {
  struct rng rng = rng_seeded(seed);
  __attribute__((cleanup(simulated_final_release))) struct simulated_final final = {0};
  for (size_t process = 0; process < job->processes_max; process++) {
    cleanup_verdict struct verdict verdict = {0};
    struct error error;
    simulated_process(job, process, &rng, &final);
    if (process + 1 < job->processes_min)
      continue;
    if (!verdict_decide(final.samples, final.n, 0, seed, &verdict, &error))
      die("%s", error.message);
    if (process + 1 < job->processes_max && !verdict_is_settled(&verdict))
      continue;
    simulated_count(job, &verdict, counts);
    return;
  }
}

/* The interval of a share of n: Wilson, "Probable inference, the law of succession, and statistical
 * inference", JASA 22, 1927; z = 1.96. */
static inline void wilson_interval(size_t hits, size_t n, double *ret_lower, double *ret_upper) {
  double share = (double)hits / (double)n, z2 = 1.96 * 1.96 / (double)n;
  double middle = (share + z2 / 2) / (1 + z2);
  double half = sqrt(z2 * (share * (1 - share) + z2 / 4)) / (1 + z2);
  *ret_lower = middle - half;
  *ret_upper = middle + half;
}

#endif
