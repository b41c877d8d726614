/* The verdict: which config wins, which are as good, and how sure that is. Recomputable from stored samples alone.
 *
 * Input are pairs: for a config measured in a process, samples_us[i] and baseline_us[i] were taken one after the other,
 * in random order, in round i. All finalists of one process share its rounds, so index i pairs across configs too.
 * A config's figure in a process is the median over i of samples_us[i] / baseline_us[i]; processes are a random effect
 * (a whole process lands in a performance band: ROCm/TransformerEngine#637), so bounds come from a two-level bootstrap:
 * draw processes with replacement, then rounds within each. The ratio of two configs in a process is the median over i
 * of the quotients of their paired ratios; over processes the geometric mean is taken.
 *
 * Only configs measured correctly in at least VERDICT_PROCESSES_MIN processes are finalists. The best is the finalist
 * with the least geometric mean or, where another beats it in their direct comparison, that one. The equivalence set: finalists whose upper bound (97.5th percentile: the upper end of
 * a two-sided 95 % interval) of the ratio to the best is <= VERDICT_EQUIVALENCE, and the best itself. The winner: among
 * those whose ratio's point estimate to the best is <= 1 + VERDICT_TIE, the first by (spills, lds_bytes, vgprs,
 * ordinal). The regret bound: the 97.5th percentile over draws of winner / (least of all finalists in that draw) - 1.
 *
 * Two finalists are compared in the processes that both have, there over the rounds that both have (a common prefix).
 * With fewer than VERDICT_PROCESSES_MIN in common they are not equivalent: the ratio is that of their figures, upper is
 * infinite, and the regret bound leaves the finalist out. The winner against the baseline uses the winner's own pairs:
 * FASTER when upper < 1, SLOWER when lower > 1, else SAME when the interval lies within [1 / VERDICT_EQUIVALENCE,
 * VERDICT_EQUIVALENCE], else AMBIGUOUS; a winner that is the baseline config is SAME, with ratio 1.
 * Every series of one verdict is drawn from the same seed, so that a draw is joint over finalists of equal shape.
 *
 * Memory: a verdict owns its arrays. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_H
#define WAVETUNE_COMMON_VERDICT_H

#include "common/json.h"

#define VERDICT_PROCESSES_MIN 3
#define VERDICT_EQUIVALENCE 1.02
#define VERDICT_TIE 0.005
#define VERDICT_DRAWS 2000
#define VERDICT_US_MIN 1e-6 /* of a time that can have been measured */
#define VERDICT_US_MAX 1e12

/* One config in one process; of several for one such pair (a lease that was measured again) the longest is used.
 * `n` pairs, n >= 1, all from VERDICT_US_MIN to VERDICT_US_MAX. Arrays are borrowed. */
struct verdict_sample {
  uint64_t config;
  int64_t process;
  size_t n;
  const double *samples_us;
  const double *baseline_us;
  int64_t spills, lds_bytes, vgprs; /* 0 where not known; the largest of a config's samples counts */
};

enum verdict_outcome { VERDICT_FASTER, VERDICT_SAME, VERDICT_SLOWER, VERDICT_AMBIGUOUS };
const char *verdict_outcome_name(enum verdict_outcome outcome); /* "FASTER", … */

struct verdict_finalist {
  uint64_t config;
  double ratio;        /* to the best: point estimate, 1 for the best */
  double lower, upper; /* its 95 % interval; upper is INFINITY where it cannot be known */
  double median_us;    /* median of all its samples */
  bool equivalent;
};

struct verdict {
  uint64_t winner;
  size_t n_finalists;
  struct verdict_finalist *finalists; /* by rising ratio, then ordinal */
  size_t n_equivalents;
  uint64_t *equivalents; /* rising ordinals; holds the winner */
  double regret_bound;
  /* winner against the baseline, as time ratio winner / baseline: < 1 is faster */
  double baseline_ratio, baseline_lower, baseline_upper;
  enum verdict_outcome outcome;  /* of the winner against the baseline */
  double winner_us, baseline_us; /* medians over the winner's samples and over all finalists' baselines */
  size_t n_samples;              /* pairs used, all finalists */
  size_t n_processes;
};

/* Decides among `samples`, measured against config `baseline`. Deterministic in (samples as a set, baseline, seed).
 * False, with a sentence, when no config has enough processes or a sample is not as said above. */
must_check bool verdict_decide(const struct verdict_sample *samples, size_t n, uint64_t baseline, uint64_t seed,
                               struct verdict *ret_verdict, struct error *error);
void verdict_release(struct verdict *verdict);
#define cleanup_verdict __attribute__((cleanup(verdict_release)))

/* {"winner": 17, "equivalence_set": [17, 19], "regret_bound": 0.004, "verdict": "FASTER", "speedup": 1.31, …}. */
must_check json_t *verdict_to_json(const struct verdict *verdict);

/* The screen's rank: median of paired ratios of one config in one process. What picks the finalists. */
double verdict_paired_ratio(const double *samples_us, const double *baseline_us, size_t n);

#endif
