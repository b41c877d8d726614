/* Paired, interleaved timing: in each round, in random order, every config is timed directly after or before the
 * baseline.
 *
 * Sample i of every config and its baseline sample come from round i, so index i pairs across configs too. Of the
 * rounds 2k and 2k + 1 a config is the first of its pair in one, drawn at random, and the second in the other. A
 * sample is at least SAMPLE_US long: a shorter kernel is called several times in it and the mean is the sample.
 * A config more than ROUNDS_SLOW_RATIO times slower than the baseline, and one that used ROUNDS_TIME_MAX_US, gets the
 * first rounds only (at least ROUNDS_MIN where as many are asked for): what is that slow needs no precision.
 *
 * Memory: a timed config owns its arrays. Threads: one. */
#ifndef WAVETUNE_AGENT_MEASURE_ROUNDS_H
#define WAVETUNE_AGENT_MEASURE_ROUNDS_H

#include "agent/measure/problem.h"

#define SAMPLE_US 20
#define ROUNDS_SLOW_RATIO 10
#define ROUNDS_MIN 3
#define ROUNDS_TIME_MAX_US 10e6
#define WARM_UP_CONFIG_US 1000
#define WARM_UP_BASELINE_US 20000

struct timed {
  struct candidate *candidate;
  unsigned calls;     /* in a sample */
  bool is_slow;       /* by the median of its first ROUNDS_MIN pairs */
  double estimate_us; /* of a call, from the warm-up */
  size_t n;
  double *samples_us, *baseline_us;
  size_t n_first;    /* pairs in which it came before the baseline */
  int64_t device_ns; /* spent on it, its baseline samples included */
  int64_t timing_ns; /* of that in rounds */
  bool failed;       /* the device refused: `error` says why, and n is 0 */
  struct error error;
};
void timed_release(struct timed *timed);

/* Told before a config (or the baseline) is run, so that a hang has a culprit. */
struct turn {
  void (*take)(void *context, uint64_t config);
  void *context;
};

/* Runs a config for at least warm_up_us and learns how many calls make a sample. */
must_check bool timed_warm_up(struct problem *problem, struct timed *timed, double warm_up_us, struct error *error);

/* Times all configs that have not failed. `baseline` was warmed up. Ends when a config spoils the problem: that config
 * has failed, and what the others have is not complete. */
void rounds_run(struct problem *problem, struct timed *baseline, struct timed *configs, size_t n, size_t rounds,
                uint64_t seed, const struct turn *turn);

#endif
