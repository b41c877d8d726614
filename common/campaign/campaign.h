/* A campaign: how one kernel is tuned for one key, from the first measurement to the verdict. A job
 * of the server is one, and so is each key of `wavetune-agent tune`; both call campaign_next() when
 * a stage has nothing left to measure.
 *
 *     screen ──▶ halving ──▶ final ──▶ done
 *        └──────────────────▲  ▲│
 *                              └┘ one more process
 *
 * Screen: every config once, in one process; of a search every batch. Warm-start configs, which won
 * for similar keys, are tried first. What is measured in one lease is raced together: its ratios to
 * the baseline are of the same minutes.
 *
 * Halving: only where more configs than a final takes are close to the best and they come from
 * several leases. The best HALVING_MAX of them race once more, together. From then on only the
 * halving's ratios count; where it measured nothing correctly, those of the screen do.
 *
 * Final: the finalists race in FINAL_PROCESSES fresh processes (or more, where it is spread over
 * more devices). They are the best, the baseline and the default wherever they rank, and what is
 * close to the best. A finalist that fails in one process is dropped. While the verdict is not
 * settled (common/verdict/verdict.h), and while no config was correct in enough processes for a
 * verdict, one more process is added, up to FINAL_PROCESSES_MAX. The budget may end a campaign with
 * a verdict that is not settled (common/verdict/budget.h).
 *
 * A campaign whose configs disagree with the default (common/verdict/agreement.h) ends after any
 * stage, without a winner.
 *
 * Memory: arguments are borrowed; a step owns its configs and its verdict. Threads: pure
 * functions. */
#ifndef WAVETUNE_COMMON_CAMPAIGN_CAMPAIGN_H
#define WAVETUNE_COMMON_CAMPAIGN_CAMPAIGN_H

#include "common/search/search.h"
#include "common/space/key.h"
#include "common/verdict/budget.h"
#include "common/verdict/verdict.h"

/* The first configs, and the batches of a search */

/* a quarter of the first batch of an agent's race and of a search */
#define WARM_STARTS_MAX 16

/* A config that won for a key of the same kernel. */
struct known_winner {
  const struct key *key;
  uint64_t config;   /* its ordinal in the space that is tuned now */
  bool is_elsewhere; /* in another environment: counts for the same key only */
};

/* The warm-start configs of `key`, each once: winners of the same environment, nearest keys first,
 * then those of the same key in other environments. Of equally near ones the newest comes first;
 * `winners` are in that order. Returns how many. */
size_t warm_starts_choose(const struct key *key, const struct known_winner *winners, size_t n,
                          uint64_t ret[WARM_STARTS_MAX]);

/* How different two keys of a kernel are: the sum over their numbers of |log2| of the quotient, and
 * KEY_DIFFERS for each other member that differs, as much as a factor of 256. 0: they are the
 * same. */
#define KEY_DIFFERS 8.0
double key_distance(const struct key *a, const struct key *b);

/* The first configs of a search: the baseline and the default, which are finalists in any case, and
 * the warm starts. Some may occur twice. Returns how many. */
#define SEARCH_FIRST_MAX (WARM_STARTS_MAX + 2)
size_t search_first(uint64_t baseline, bool has_default, uint64_t default_config,
                    const uint64_t *warm_starts, size_t n_warm_starts,
                    uint64_t ret[SEARCH_FIRST_MAX]);

struct search_result {
  uint64_t config; /* the first member: searched by compare_ordinals */
  double ratio;    /* to the baseline; INFINITY when it was not correct */
};

/* The batch of round `round` of a search, the first being 0, replayed from what was measured.
 * `told`: all results of the rounds before, by rising ordinal; a config that was requested and not
 * measured counts as not correct. *ret_n is 0 when the search is over. */
must_check bool search_round(const struct space *space, const struct space_facts *facts,
                             const struct search_options *options, const struct search_result *told,
                             size_t n_told, int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX],
                             size_t *ret_n, struct error *error);

/* Stages */

#define FINALISTS_MAX 16
/* A config whose ratio is more than this factor above the best's is dropped. bench/bench_verdict.c
 * prints how often that, and FINALISTS_MAX, drops the best and all that are as good. */
#define FINALISTS_SPAN 1.07
/* A config that left its race early was surely slower than the best by the margin of that race or
 * more, whatever the median of its few rounds is: those may have been slow ones of the baseline.
 * It counts as at least this factor above the best of those that stayed. */
#define FINALISTS_LEFT 1.04
/* the baseline and the default: the winner must be compared with them */
#define FINALISTS_ALWAYS 2
#define HALVING_MAX 64    /* configs of one race: as many as the agent races at once */
#define FINAL_PROCESSES 3 /* the fewest with a meaningful variance between processes */
#define FINAL_PROCESSES_MAX 6
#define FINAL_DEVICES_MAX 16 /* devices that a final can be spread over */

_Static_assert(FINAL_PROCESSES >= VERDICT_PROCESSES_MIN, "a final's first processes can decide");
_Static_assert(FINAL_PROCESSES_MAX - FINAL_PROCESSES + 1 == VERDICT_LOOKS,
               "an interval's error is shared by the looks");

/* The processes that a final has at first, on so many devices. */
static inline int64_t final_processes(int64_t devices) {
  return devices > FINAL_PROCESSES ? devices : FINAL_PROCESSES;
}

/* A config that a screen or a halving measured correctly. */
struct campaign_candidate {
  uint64_t config;
  double ratio;    /* verdict_paired_ratio: finite, > 0 */
  bool left_early; /* it left its race before that was decided */
  int64_t lease;   /* that it was raced in, any numbering */
};

/* What a screen or a halving measured. Of the candidates, in any order, only these are needed: the
 * HALVING_MAX with the least ratios of those that stayed in their race, as many of those that left
 * early (of equal ratios the lower ordinals), the baseline and the default. */
struct campaign_race {
  size_t n;
  const struct campaign_candidate *candidates;
  int64_t outcomes[OUTCOME_COUNT]; /* of all configs */
  const char *example;             /* why one of them failed; NULL: not known */
};

/* What a final measured: one for each config in each process. */
struct final_measurement {
  enum outcome outcome;
  struct verdict_sample sample; /* n = 0 unless correct */
};

struct campaign_facts {
  /* What was requested. */
  uint64_t baseline, seed;
  bool has_default;
  uint64_t default_config;
  size_t finalists_max;         /* BUDGET_FINALISTS_MIN in any case */
  int64_t processes;            /* of the final at first, FINAL_PROCESSES at least */
  int64_t processes_max;        /* of the final with added ones; may be less than `processes` */
  struct budget budget;         /* with what was spent */
  const char *budget_larger_by; /* how to get a larger one, for the sentence of a failure */

  /* What was measured so far. `screen` also counts after a halving, and both are not read after a
   * final. */
  enum stage stage; /* that has ended */
  bool is_cut;      /* the budget ended a lease of the screen or the halving */
  struct campaign_race screen, halving;
  int64_t processes_begun; /* of the final */
  size_t n_measurements;
  const struct final_measurement *measurements; /* of the final */
  const char *final_example;                    /* why a finalist failed; NULL: not known */
  struct agreement_summary agreement;           /* of all stages */
};

enum campaign_step_kind {
  CAMPAIGN_HALVING,   /* `configs` race once more, in one process */
  CAMPAIGN_FINAL,     /* `configs` race in each of the processes [first_process, first_process +
                         n_processes) */
  CAMPAIGN_DONE,      /* `verdict` is the last one */
  CAMPAIGN_FAILED,    /* `reason`: why there is no verdict */
  CAMPAIGN_DISAGREED, /* `reason`: how the configs disagree, so that none may win */
};
struct campaign_step {
  enum campaign_step_kind kind;
  size_t n_configs;
  uint64_t *configs; /* rising */
  int64_t first_process, n_processes;
  bool has_verdict; /* of CAMPAIGN_DONE; of CAMPAIGN_FINAL where there is one that is not settled */
  struct verdict verdict;
  struct error reason;
};
void campaign_step_release(struct campaign_step *step);
#define cleanup_campaign_step cleanup_by(campaign_step_release)

/* Decides the next step when a stage has nothing left to measure. */
void campaign_next(const struct campaign_facts *facts, struct campaign_step *ret_step);

/* Whether the screen and the halving have spent their budget: then a search requests no further
 * batch, and there is no halving. */
must_check bool campaign_screen_is_spent(const struct campaign_facts *facts);

/* Writes at most `most` configs to `ret`, in rising order of the ordinals; returns how many. First
 * the best of the n, then each of `always` that is among them, whatever its ratio, then those with
 * the least ratios, none above FINALISTS_SPAN times the least. Of equal ratios (those of configs
 * that left early are raised to FINALISTS_LEFT), the one with the lesser measured ratio comes
 * first, then the one with the lower ordinal. `ret` has room for `most`. */
size_t finalists_choose(const struct campaign_candidate *candidates, size_t n,
                        const uint64_t *always, size_t n_always, size_t most, uint64_t *ret);

#endif
