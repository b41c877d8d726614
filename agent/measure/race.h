/* A race: configs timed against one another in rounds until it is decided which of them can win.
 *
 * A round (race_rules.h) is a randomised complete block: every config still in is sampled once, in
 * random order, in blocks of at most RACE_BLOCK configs. The baseline is sampled once in each
 * block, at least RACE_BASELINES times in all. Sample i of every config is from round i, so that
 * samples of two configs can be paired too; baseline_us[i] is the median of the baseline's samples
 * of that round: a single slow one would make all samples that are paired with it look fast, and a
 * screen has too few samples for their median to correct that. A block is given to the device at
 * once and read once, unless the device is synchronous or the race serial: then each sample is
 * given alone, in a turn of its own.
 *
 * After each round configs are judged (race_rules.h). A config
 * - is far, and leaves after the first round, when it took more than RACE_FAR times the best of
 *   that round, and had done so when it was warmed up too: one slow sample can be the machine's;
 * - is behind, and leaves, when the lower bound of its ratio to the best is above 1 + margin;
 * - is decided when its interval is below 1 + margin, or is narrower than precision to either side.
 * The race ends when every config in it is decided, at rounds_max, or with the round that spends
 * the budget; a budget that is spent before the first round still gives one to those that are
 * warmed up then. A race that is to be whole takes rounds_min rounds of every config in any case.
 * `best_ratio` represents the best config of other leases and batches: the least ratio to the
 * baseline there.
 *
 * Rounds in which the clock was below RACE_CLOCK of its median are rejected: they are dropped from
 * all configs at the end.
 *
 * Memory: a timed config owns its arrays. Threads: one. */
#ifndef WAVETUNE_AGENT_MEASURE_RACE_H
#define WAVETUNE_AGENT_MEASURE_RACE_H

#include "agent/measure/problem.h"

/* The shortest sample: a shorter kernel is called several times in it. The time of a call
 * varies by about half a microsecond, however short it is (softmax on an
 * H200), and the work around a sample takes longer than 20 us: in samples of that
 * length a kernel of 5 us varied by 4 %. */
#define SAMPLE_US 60
#define SLOW_US 20 /* from here on a single call shows whether a config is far behind */
#define RACE_BLOCK 8
#define RACE_BASELINES 3
#define RACE_FAR 2.0
#define RACE_CLOCK 0.9
#define RACE_NO_CONFIG UINT64_MAX /* in place of a config while a block runs */
#define WARM_UP_CONFIG_US 300
#define WARM_UP_BASELINE_US 20000

struct race_limits {
  size_t rounds_min; /* before a config that is not far may leave; >= 1 */
  size_t rounds_max;
  double margin;    /* >= 0; INFINITY: none leaves */
  double precision; /* of the logarithm of a ratio: 0.01 is 1 %; 0: rounds_max rounds in any case */
  int64_t device_us; /* device time that may be spent, warm-up included; 0: no bound */
  double best_ratio; /* 0: none known */
  bool is_serial;
  bool is_whole; /* every config gets rounds_min rounds, whatever device_us is */
};

/* Why sampling ended. */
enum race_end {
  RACE_END_FAR,
  RACE_END_BEHIND,
  RACE_END_DECIDED,
  RACE_END_ROUNDS,
  RACE_END_BUDGET,
  RACE_END_FAILED
};
const char *race_end_name(enum race_end end); /* "far", "behind", … */

/* A loaded config with its samples. */
struct timed_config {
  struct loaded_config *loaded;
  unsigned calls;     /* in a sample */
  double estimate_us; /* of a call, from the warm-up; 0: not known */
  size_t n;           /* 0: the budget was spent before its first round, or it failed */
  double *samples_us, *baseline_us;
  int64_t device_ns; /* spent on this config, with its share of the baseline's samples */
  enum race_end end;
  struct error error; /* RACE_END_FAILED: why the device refused it */
};
void timed_release(struct timed_config *timed);
/* The device's input for one sample. */
struct device_timing timed_sample(struct problem *problem, const struct timed_config *timed);

/* The result of a race; up to date whenever a listener is called. */
struct race {
  size_t n_rounds, n_rejected;
  double clock_mhz;              /* median over the rounds; 0: not known */
  int64_t device_ns, warm_up_ns; /* of the race; of it, before the first round */
  bool is_over_budget;
};

/* Callbacks of a race. `take`: before a config, the baseline or a block (RACE_NO_CONFIG) runs, so
 * that a hang can be attributed. `left`: as soon as a config's sampling has ended, for every config
 * exactly once, unless another config spoiled the problem for it; may be NULL. A config that leaves
 * early has the rounds so far that count. */
struct race_listener {
  void *context;
  void (*take)(void *context, uint64_t config);
  /* False: the race ends, without more calls. */
  bool (*left)(void *context, struct timed_config *timed);
};

/* Runs a config for at least warm_up_us, but once only where that shows that it is slower than
 * `enough_us` a call (0: no such bound), and learns how many calls make a sample. */
must_check bool timed_warm_up(struct problem *problem, struct timed_config *timed,
                              double warm_up_us, double enough_us, struct error *error);

struct race_setup {
  struct problem *problem;
  struct timed_config *baseline; /* warmed up */
  struct timed_config *configs;  /* n, loaded and checked, in the order of their warm-up */
  size_t n;
  const struct race_limits *limits;
  uint64_t seed;
  struct race_listener listener;
};

/* Races the configs. Ends when the problem is spoiled: `take` has named the config that ran, and
 * `left` is not called for configs whose samples are then not complete. A block that the device
 * refuses without being spoiled by it is run again one by one, to find the config that is refused.
 */
void race_run(const struct race_setup *setup, struct race *race);

#endif
