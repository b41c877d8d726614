/* What `tune` knows of one key: its configs with what became of them, the samples of its finals, its verdict.
 *
 * Memory: a key_tuning owns what it holds. Threads: one. */
#ifndef WAVETUNE_AGENT_TUNE_KEY_TUNING_H
#define WAVETUNE_AGENT_TUNE_KEY_TUNING_H

#include "agent/lease/lease.h"
#include "common/verdict/verdict.h"

#define KEY_CONFIGS_MAX 1000000u

struct key_config {
  uint64_t config;
  bool is_measured;
  bool is_behind;       /* the halving left it out */
  bool left_early;      /* of the race that `ratio` is of: it is higher than that says */
  enum outcome outcome; /* is_measured only */
  double ratio;         /* to the baseline, of the last race before the finals; correct only */
};

/* The code of a finalist, as a measurement told it. */
struct key_code {
  uint64_t config;
  struct code_resources resources;
  int64_t occupancy;
};

struct key_tuning {
  struct key key;
  char *job; /* a text that tells it from other keys and kernels */
  uint64_t baseline;
  size_t n, capacity;
  struct key_config *configs; /* from the place `sorted_from` on in rising order */
  size_t sorted_from;         /* a search adds its batches behind what it asked for before; 0 once it has ended */
  struct build_objects *objects;
  size_t n_finalists;
  uint64_t *finalists;
  size_t n_samples, samples_capacity;
  struct verdict_sample *samples; /* of the finals; they own their arrays */
  size_t n_codes, codes_capacity;
  struct key_code *codes;        /* of the finals */
  char *examples[OUTCOME_COUNT]; /* why the first config with this outcome has it */
  char *baseline_failure, *finalist_failure;
  char *failure;               /* why there is no winner; NULL: none so far */
  int64_t device_us, final_us; /* spent on it, with opening it; of that in its finals */
  int64_t opening_us;          /* of device_us: opening the kernel for it */
  int64_t openings;            /* leases in which it was opened */
  int64_t n_measurements;
  bool is_spent;               /* what its budget leaves the screen */
  int64_t n_processes;         /* of finals, so far */
  double seconds[STAGE_COUNT]; /* of wall time */
  bool is_decided, is_ended;   /* is_ended: nothing is measured for it any more */
  struct verdict verdict;      /* is_decided only */
};

void key_tuning_release(struct key_tuning *tuning);

/* Lists the configs that hold, and chooses the baseline: the default, else the first. `only` >= 0: that config alone. */
must_check bool key_tuning_list(struct key_tuning *tuning, const struct space *space, const struct space_facts *facts,
                                int64_t only, struct error *error);

/* The baseline alone, for a space that is searched. */
must_check bool key_tuning_find_baseline(struct key_tuning *tuning, const struct space *space,
                                         const struct space_facts *facts, struct error *error);

/* Adds a batch that a search asked for; those before have their measurements. */
void key_tuning_add(struct key_tuning *tuning, const uint64_t *configs, size_t n);
void key_tuning_all_added(struct key_tuning *tuning);

/* Of a config that is listed; while a search adds batches, of the last one. NULL: it is not there. */
must_check struct key_config *key_tuning_find(const struct key_tuning *tuning, uint64_t config);

/* Keeps what a measurement says. False: the baseline does not work, so nothing can be compared. */
must_check bool key_tuning_take(struct key_tuning *tuning, const struct lease *lease,
                                const struct measurement *measurement);

/* Counts what opening the kernel took in one of its leases; 0: it was open. */
void key_tuning_opened(struct key_tuning *tuning, enum stage stage, int64_t opening_us);

/* The correct configs that go on, as finalists_choose says: at most `most`, the baseline among them. */
size_t key_tuning_choose(const struct key_tuning *tuning, size_t most, uint64_t *ret);

/* The correct config with the least ratio of those that did not leave their race; NULL: there is none. */
must_check const struct key_config *key_tuning_best(const struct key_tuning *tuning);

/* Decides over the samples of finalists that failed in no process. */
must_check bool key_tuning_decide(struct key_tuning *tuning, uint64_t seed, struct error *error);

/* Nothing more is measured for it. Without a verdict whose winner works, `error` is its failure. */
void key_tuning_fail(struct key_tuning *tuning, const struct error *error);

/* Whether a listed config was measured and does not work. */
bool key_tuning_failed_config(const struct key_tuning *tuning, uint64_t config);

/* How far two keys of one kernel are apart: |log2| of the quotients of their numbers, added up. */
double key_distance(const struct key *a, const struct key *b);

#endif
