/* The state of one key in `tune`: its configs with their outcomes, the samples of its finals, its
 * verdict; and the facts from these by which the campaign (common/campaign/campaign.h) decides.
 *
 * Memory: a key_tuning owns what it holds. Threads: one. */
#ifndef WAVETUNE_AGENT_TUNE_KEY_TUNING_H
#define WAVETUNE_AGENT_TUNE_KEY_TUNING_H

#include "agent/lease/lease.h"
#include "common/campaign/campaign.h"
#include "common/regime/regime.h"

#define KEY_CONFIGS_MAX 1000000u

/* The options, for every key. */
struct campaign_terms {
  int64_t processes; /* least number of the finals' processes */
  size_t finalists;  /* at most; the best config and the baseline are in any case */
  int64_t seed;
  enum regime regime;
  int64_t budget_us;  /* device time of a key (common/verdict/budget.h); 0: no bound */
  bool is_exhaustive; /* no screen: every config is a finalist, in `processes` processes */
  bool is_search;     /* a strategy chooses the configs; else the whole space is screened */
  enum search_strategy strategy;
  uint64_t trials;
};

struct key_config {
  uint64_t config; /* first: arrays are searched with compare_ordinals */
  bool is_measured;
  enum outcome outcome; /* is_measured only: a failure stays, unless a later stage was correct */
  enum stage stage;     /* of `outcome` */
  bool is_screened;     /* correct in the screen; what follows is of the screen */
  bool left_early;      /* its race */
  double ratio;         /* to the baseline */
  int64_t lease;        /* that it was raced in */
  struct agreement_facts agreement;
};

/* The code of a finalist, as a measurement has it; FIELD_NONE: not known. */
struct key_code {
  uint64_t config;
  int64_t vgprs, spills, lds_bytes, occupancy;
};

struct key_tuning {
  struct key key;
  char *job; /* a text that identifies kernel and key */
  uint64_t baseline;
  int64_t n_baselines; /* that did not run, before this one */
  size_t n;
  struct key_config *configs; /* rising from index `sorted_from` on */
  size_t sorted_from;         /* where the last batch of a search begins; 0 once it has ended */
  struct build_objects *objects;
  int64_t n_leases; /* begun; configs of one lease raced together */
  int64_t screen_outcomes[OUTCOME_COUNT];
  size_t n_halved;
  struct campaign_candidate *halved; /* correct in the halving */
  size_t n_finalists;                /* at the beginning of the final */
  size_t n_racing;
  uint64_t *racing; /* the finalists that its next process measures; rising */
  size_t n_finals;
  struct final_measurement *finals; /* they own their samples */
  size_t n_codes;
  struct key_code *codes;        /* of the finals */
  char *examples[OUTCOME_COUNT]; /* why the first config with this outcome has it */
  char *baseline_failure, *finalist_failure;
  enum outcome baseline_outcome;             /* of that failure */
  struct agreement_facts baseline_agreement; /* as its failure stated it */
  char *disagreement;                        /* why the first config disagrees; NULL: none does */
  char *failure;                             /* why there is no winner; NULL: there may be one */
  int64_t device_us, final_us; /* spent on the key, with opening the kernel; of that in finals */
  int64_t opening_us;          /* of device_us: opening the kernel for it */
  int64_t openings;            /* leases in which it was opened */
  int64_t n_measurements;
  bool is_spent;               /* the screen's part of its budget */
  int64_t n_processes;         /* of finals, begun */
  double seconds[STAGE_COUNT]; /* of wall time */
  bool is_decided, is_ended;   /* is_ended: nothing is measured for it any more */
  struct verdict verdict;      /* is_decided only */
};

void key_tuning_release(struct key_tuning *tuning);

/* Lists the valid configs, and chooses the baseline: the default, else the first. `only` >= 0: that
 * config alone. */
must_check bool key_tuning_list(struct key_tuning *tuning, const struct space *space,
                                const struct space_facts *facts, int64_t only, struct error *error);

/* The baseline alone, for a space that is searched. */
must_check bool key_tuning_find_baseline(struct key_tuning *tuning, const struct space *space,
                                         const struct space_facts *facts, struct error *error);

/* After a failure of the baseline: takes the next valid config, if the old one does not run and
 * nothing was measured yet. */
must_check bool key_tuning_move_baseline(struct key_tuning *tuning, const struct space *space,
                                         const struct space_facts *facts);

/* Adds a batch of a search; earlier batches are measured. */
void key_tuning_add(struct key_tuning *tuning, const uint64_t *configs, size_t n);
void key_tuning_all_added(struct key_tuning *tuning);

/* A listed config; while a search adds batches, one of the last batch. NULL: it is not listed. */
must_check struct key_config *key_tuning_find(const struct key_tuning *tuning, uint64_t config);

/* The warm-start configs of a key: the best ones so far of the keys before it. Returns how many. */
size_t key_tuning_warm_starts(const struct key_tuning *tuning, const struct key_tuning *before,
                              size_t n_before, uint64_t ret[WARM_STARTS_MAX]);

/* Adds a measurement. False: the baseline does not work, so nothing can be compared. */
must_check bool key_tuning_take(struct key_tuning *tuning, const struct lease *lease,
                                const struct measurement *measurement);

/* Adds the time of opening the kernel in one of its leases (0: it was open already). */
void key_tuning_opened(struct key_tuning *tuning, enum stage stage, int64_t opening_us);

/* How the configs measured so far agree with the baseline, which is the default. */
struct agreement_summary key_tuning_agreement(const struct key_tuning *tuning);

/* Options of the search of the key's screen, which begins with the warm starts. `first` is where
 * the options have their first configs. */
struct search_options key_tuning_search(const struct key_tuning *tuning, const struct space *space,
                                        const struct campaign_terms *terms,
                                        const uint64_t *warm_starts, size_t n_warm_starts,
                                        uint64_t first[SEARCH_FIRST_MAX]);
/* Reports the ratios of a batch of the search. */
void key_tuning_tell(const struct key_tuning *tuning, struct search *search, const uint64_t *batch,
                     size_t n);

/* The config that was correct in the screen with the least ratio of those that stayed in their
 * race; NULL: there is none. */
must_check const struct key_config *key_tuning_best(const struct key_tuning *tuning);

/* The budget and what was spent of it. */
struct budget key_tuning_budget(const struct key_tuning *tuning,
                                const struct campaign_terms *terms);

/* The campaign's decision after a stage. */
void key_tuning_next(const struct key_tuning *tuning, const struct campaign_terms *terms,
                     enum stage stage, struct campaign_step *ret_step);

/* Takes the step's verdict, and the configs that its final measures next. */
void key_tuning_apply(struct key_tuning *tuning, struct campaign_step *step);

/* Whether a listed config failed in the final. */
must_check bool key_tuning_dropped_out(const struct key_tuning *tuning, uint64_t config);

/* Ends the key. Without a verdict whose winner works, `error` is its failure. */
void key_tuning_fail(struct key_tuning *tuning, const struct error *error);

#endif
