/* Outcomes of measurements and stages of jobs, and the verdict: which config wins, which are as
 * good, and how sure that is. Recomputable from stored samples alone.
 *
 * The input is pairs: for a config measured in a process, samples_us[i] and baseline_us[i] were
 * taken in one round, in random order. All finalists of one process share its rounds, so index i
 * pairs across configs too. The distance of two configs in a process is the median over i of the
 * logarithms of the quotients of their paired ratios; over processes the mean is taken.
 *
 * Processes are a random effect: a whole process lands in a performance band
 * (ROCm/TransformerEngine#637), so rounds carry no information about the error of the mean over
 * processes, and a bootstrap over three processes is far too narrow. The variance of distances
 * between processes is moderated: each finalist's own is shrunk towards that pooled over all
 * finalists (Smyth, "Linear models and empirical Bayes methods for assessing differential
 * expression in microarray experiments", 2004), never below what the rounds within processes and
 * the timer's resolution leave; intervals are Student's t with the moderated degrees of freedom
 * (common/verdict/verdict_interval.h has the formulas, docs/measurement.md the whole way). An
 * interval of the winner against the baseline or another finalist is simultaneous over all
 * finalists, because the winner was chosen among them, and over the verdicts of a job (Bonferroni):
 * its error is VERDICT_FAMILY_ERROR / VERDICT_LOOKS / (the number of finalists that are not the
 * baseline).
 *
 * Only configs measured correctly in at least VERDICT_PROCESSES_MIN processes are finalists. The
 * best is the finalist with the least mean or, where another beats it in their direct comparison,
 * that one. The equivalence set: finalists whose upper bound (97.5 %) of the ratio to the best is
 * <= VERDICT_EQUIVALENCE, and the best itself. The winner: among those of the set whose ratio's
 * point estimate to the best is <= 1 + VERDICT_TIE, the first by (spills, lds_bytes, vgprs,
 * ordinal). The regret bound is how far the winner's time may be above the least of all finalists',
 * with 95 % confidence, whichever finalist was chosen: multiple comparisons with the best (Hsu,
 * "Simultaneous confidence intervals for all distances from the 'best'", Annals of Statistics 9,
 * 1981). For each other finalist the mean of the winner's distance to it plus q standard errors;
 * the largest counts, and 0 at least. q is what the greatest of as many numbers exceeds in 5 % of
 * VERDICT_DRAWS draws, each Student's t, with the correlation 1/2 that distances to one config have
 * (Dunnett's critical value).
 *
 * Two finalists are compared in the processes that both have, there over the rounds that both have
 * (a common prefix). With fewer than VERDICT_PROCESSES_MIN in common they are not equivalent: the
 * ratio is that of their figures, upper is infinite, and the regret bound leaves the finalist out.
 * The winner against the baseline uses the winner's own pairs: FASTER when upper < 1, SLOWER when
 * lower > 1, else SAME when the interval is within [1 / VERDICT_EQUIVALENCE, VERDICT_EQUIVALENCE],
 * else AMBIGUOUS; a winner that is the baseline config is SAME, with ratio 1.
 *
 * Memory: a verdict owns its arrays, device_ratios its rows; samples are borrowed; names are
 * static. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_VERDICT_H
#define WAVETUNE_COMMON_VERDICT_VERDICT_H

#include "common/base/base.h"
#include "common/base/json.h"
#include "common/verdict/agreement.h"

/* The outcome of a measurement (Kernel Tuner's T4 vocabulary), and the stage of a job that it
 * belongs to: the words that agents, the server and its database share. */
#define OUTCOMES(X)                                                                                \
  X(CORRECT, "correct")                                                                            \
  X(COMPILE, "compile")                                                                            \
  X(RUNTIME, "runtime")                                                                            \
  X(CORRECTNESS, "correctness")                                                                    \
  X(TIMEOUT, "timeout")                                                                            \
  X(CONSTRAINTS, "constraints")
#define STAGES(X)                                                                                  \
  X(SCREEN, "screen")                                                                              \
  X(HALVING, "halving")                                                                            \
  X(FINAL, "final")

#define X(id, name) OUTCOME_##id,
enum outcome { OUTCOMES(X) OUTCOME_COUNT };
#undef X
#define X(id, name) STAGE_##id,
enum stage { STAGES(X) STAGE_COUNT };
#undef X

/* By value, ended by NULL, as fields of records take them (common/record/record.h). */
extern const char *const outcome_names[];
extern const char *const stage_names[];
const char *outcome_name(enum outcome outcome);
/* Of a baseline: it does not compile, fit or run, so another config may be it. One that hangs, or
 * computes what the reference does not, is a fault that its author must see. */
static inline bool outcome_does_not_run(enum outcome outcome) {
  return outcome == OUTCOME_COMPILE || outcome == OUTCOME_CONSTRAINTS || outcome == OUTCOME_RUNTIME;
}
#define BASELINES_MAX 64 /* of a job; each costs a lease in which nothing is measured */
const char *stage_name(enum stage stage);

/* False for any other text, and for NULL. */
must_check bool outcome_parse(const char *name, enum outcome *ret);

/* The index of `name` among `n` names. False for any other text, and for NULL. */
must_check bool name_find(const char *const *names, size_t n, const char *name, size_t *ret);

/* The verdict */

#define VERDICT_PROCESSES_MIN 3
#define VERDICT_EQUIVALENCE 1.02
#define VERDICT_TIE 0.005
#define VERDICT_ERROR 0.05 /* of the interval of one finalist's ratio to the best */
/* the probability that in a job one of the winner's intervals against other configs is wrong */
#define VERDICT_FAMILY_ERROR 0.02
/* verdicts of a job: after 3, 4, 5 and 6 processes, until one is settled */
#define VERDICT_LOOKS 4
#define VERDICT_REGRET 0.02 /* a bound above it leaves something to find */
#define VERDICT_DRAWS 2000
#define VERDICT_US_MIN 1e-6 /* the least time that can have been measured */
#define VERDICT_US_MAX 1e12

/* One config in one process; of several for one such pair (a lease that was measured again) the
 * longest is used. `n` pairs, n >= 1, all from VERDICT_US_MIN to VERDICT_US_MAX. Arrays are
 * borrowed. */
struct verdict_sample {
  uint64_t config;
  int64_t process;
  size_t n;
  const double *samples_us;
  const double *baseline_us;
  /* 0 where not known; the largest of a config's samples is used */
  int64_t spills, lds_bytes, vgprs;
  /* the device that it was measured on, any numbering; 0 where devices are not distinguished */
  int64_t device;
};

enum verdict_outcome { VERDICT_FASTER, VERDICT_SAME, VERDICT_SLOWER, VERDICT_AMBIGUOUS };
const char *verdict_outcome_name(enum verdict_outcome outcome); /* "FASTER", … */

struct verdict_finalist {
  uint64_t config;
  double ratio;        /* to the best: point estimate, 1 for the best */
  double lower, upper; /* its 95 % interval; upper is INFINITY where it cannot be known */
  /* The winner's time over this one's, with the simultaneous interval: < 1 where the winner is
   * faster; 1 for the winner */
  double winner_ratio, winner_lower, winner_upper;
  double median_us; /* median of all its samples */
  bool equivalent;
};

struct verdict {
  uint64_t winner;
  size_t n_finalists;
  struct verdict_finalist *finalists; /* by rising ratio, then ordinal */
  size_t n_equivalents;
  uint64_t *equivalents; /* rising ordinals; the winner is among them */
  double regret_bound;
  /* winner against the baseline, as time ratio winner / baseline: < 1 is faster */
  double baseline_ratio, baseline_lower, baseline_upper;
  enum verdict_outcome outcome; /* of the winner against the baseline */
  /* medians over the winner's samples and over all finalists' baselines */
  double winner_us, baseline_us;
  size_t n_samples; /* pairs used, all finalists */
  size_t n_processes;
  size_t n_devices;
};

/* Decides among `samples`, measured against config `baseline`. Deterministic in (samples as a set,
 * baseline, seed). False, with a sentence, when no config has enough processes or a sample is not
 * as above. */
must_check bool verdict_decide(const struct verdict_sample *samples, size_t n, uint64_t baseline,
                               uint64_t seed, struct verdict *ret_verdict, struct error *error);
/* The same with `config` in the winner's place: how it compares with the baseline and with each
 * finalist, in the same simultaneous intervals. False also where it is not a finalist. */
must_check bool verdict_decide_for(const struct verdict_sample *samples, size_t n,
                                   uint64_t baseline, uint64_t config, uint64_t seed,
                                   struct verdict *ret_verdict, struct error *error);
void verdict_release(struct verdict *verdict);
#define cleanup_verdict cleanup_by(verdict_release)

/* Whether no further process is needed: the outcome is not AMBIGUOUS, the regret bound is at most
 * VERDICT_REGRET, and no finalist that may be the fastest (lower <= 1) is kept out of the
 * equivalence set by a wide interval. */
must_check bool verdict_is_settled(const struct verdict *verdict);

/* What a winner must gain over a config that is served to replace it, as a part of that config's
 * time. */
#define VERDICT_MIN_GAIN 0.02

/* {"winner": 17, "equivalence_set": [17, 19], "regret_bound": 0.004, "verdict": "FASTER",
 *  "speedup": 1.31, "baseline_ratio": 0.76, "baseline_lower": 0.75, "baseline_upper": 0.77,
 *  "winner_us": 76, "baseline_us": 100, "samples": 180, "processes": 3, "devices": 1,
 *  "finalists": [{"config": 17, "ratio": 1, "lower": 1, "upper": 1, "winner_ratio": 1,
 *                 "winner_lower": 1, "winner_upper": 1, "median_us": 76, "equivalent": true}, …]}.
 * A bound that is infinite is left out with its lower one. Numbers have 9 significant digits: what
 * the last digit of another machine's logarithm changes does not show. */
must_check json_t *verdict_to_json(const struct verdict *verdict);

/* Whether the winner of a verdict's JSON may replace `served`, the config that a channel serves:
 * `served` was measured with the winner, as its job's baseline or as a finalist, is not in the
 * equivalence set, and the winner's simultaneous interval against it is below 1 and its estimate at
 * or below 1 - min_gain. False: it stays, for the reason in the error. The winner must be another
 * config than `served`. */
must_check bool verdict_json_replaces(const json_t *verdict, uint64_t baseline, uint64_t served,
                                      double min_gain, struct error *ret_reason);

/* The rank of a config in the screen, which chooses the finalists: the median of its paired ratios
 * in one process. */
double verdict_paired_ratio(const double *samples_us, const double *baseline_us, size_t n);

/* The ratios of a final on each device alone, to explain a verdict over several devices.
 *
 * A verdict treats processes as draws, whatever their device: a chip on which another config is
 * faster widens its intervals and is not named. Here the finalists are compared with one config on
 * each device alone. The distance of two configs in a process is that of a verdict; over the P
 * processes of a device the mean is taken, and its interval is that of verdict_interval.h: a shift
 * of one process must not be taken for a property of the device. Pooled are the distances of the
 * configs within SPREAD_NEAR of the one, on devices that measured both in two processes or more.
 * Those of one device share that config's noise, so m of them have (P - 1) m / (1 + (m - 1) / 4)
 * degrees of freedom; those of several devices share nothing and are added up:
 *
 *   d0 = sum over devices of (P - 1) m / (1 + (m - 1) / 4), less the row's own P - 1 where it is
 *   pooled, rounded down.
 *
 * Where nothing is pooled no device prefers anything; a row of one process then has the interval of
 * its rounds and the timer alone, exp(d -+ t sqrt(e^2 + q^2)), t with 60 degrees of freedom, about
 * as many as there are rounds.
 *
 * Each interval is a 95 % one by itself. With eight finalists on four devices in six processes, a
 * device that is like the others is named in fewer than 1 % of jobs where processes shift all
 * configs alike by 0.3 to 3 % (standard deviation), in up to one of four where the winner alone is
 * 8 % slower in one process of four: what is named should be measured again
 * (tests/unit/test_verdict_by_device.c). */

/* With fewer the order statistics of verdict_interval.h do not bound a median's error. */
#define DEVICE_ROUNDS_MIN 12

struct device_ratio {
  int64_t device; /* as the samples number it */
  uint64_t config;
  size_t n_processes; /* of that device, with both configs; >= 1 */
  double ratio;       /* the config's time over that of `to`; 1 for `to` itself */
  /* 95 %; upper is INFINITY where a process has fewer than DEVICE_ROUNDS_MIN rounds, or too coarse
   * ones. */
  double lower, upper;
  double median_us; /* of the config's samples in these processes */
};

struct device_ratios {
  size_t n;
  struct device_ratio *rows; /* by rising device, then ordinal */
  bool knows_processes; /* whether something is pooled: the intervals cover what a fresh process
                           shifts */
};

/* One row for each device and each config that it measured in a process with `to`. A device that
 * measured no such process (it had the rest of one that another had begun) has none. False, with a
 * sentence, where samples are not as above. */
must_check bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                                  struct device_ratios *ret, struct error *error);
void device_ratios_release(struct device_ratios *ratios);
#define cleanup_device_ratios cleanup_by(device_ratios_release)

/* The config that is better than `to` on the device of rows[0..n): of those whose upper bound is
 * below 1 / VERDICT_EQUIVALENCE the one of the least ratio. NULL where there is none. */
must_check const struct device_ratio *device_preference(const struct device_ratios *ratios,
                                                        const struct device_ratio *rows, size_t n);

#endif
