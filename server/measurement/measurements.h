/* Measurements: the results that an agent posts for a lease (POST /v1/leases/{id}/results), how the
 * post is judged and stored.
 *
 * Memory: results and judgements own what they point to; other results are the caller's. Threads:
 * functions without a db are pure; the others belong to the thread of their db. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H
#define WAVETUNE_SERVER_MEASUREMENT_MEASUREMENTS_H

#include "common/campaign/campaign.h"
#include "common/measurement/measurement.h"
#include "common/regime/regime.h"
#include "server/measurement/drift.h"
#include "server/measurement/leases.h"

#define RESULTS_MEASUREMENTS_MAX 1000

/* Whether the baseline could not be measured, so that no config of the job can; `detail` has the
 * reason. Older agents do not know the member "baseline_failed": their detail begins with
 * "baseline: ". The message of a compiler may begin with that, too; so BY_DETAIL counts only if the
 * config is the job's baseline. */
enum baseline_failure { BASELINE_WORKED, BASELINE_FAILED, BASELINE_FAILED_BY_DETAIL };

/* What the server adds to a measurement that it reads. */
struct posted {
  double ratio; /* median of paired ratios; NaN without samples */
  enum baseline_failure baseline_failure;
  struct digest body; /* of the posted measurement; tells a repetition from a contradiction */
};

struct results {
  int64_t epoch;
  struct records measurements; /* struct measurement */
  bool done;
  int64_t opening_us;    /* what opening the kernel took so far in this epoch; 0: not stated */
  struct posted *posted; /* one for each measurement */
};
extern const struct record results_record;
#define RESULTS_MEASUREMENT(results, i) (&((struct measurement *)(results)->measurements.all)[i])

must_check bool results_parse(const json_t *json, struct results *ret, struct error *error);
void results_release(struct results *results);
#define cleanup_results __attribute__((cleanup(results_release)))

/* How the job's baseline failed (borrowed); NULL: no failure was reported. */
const struct measurement *results_baseline_failure(const struct results *results, int64_t baseline);
/* Whether that failure is that it disagrees, and *ret_reason with what. */
must_check bool results_baseline_disagrees(const struct results *results, int64_t baseline,
                                           struct error *ret_reason);

/* A measurement of this lease and epoch that is stored. */
struct known_measurement {
  int64_t seq;
  struct digest body;
  bool refused; /* it came when the lease was no longer its holder's */
};

enum post_verdict {
  POST_UNKNOWN,  /* there is no such lease */
  POST_NEVER,    /* its epoch was never granted */
  POST_CONFLICT, /* a seq is known with another body */
  POST_OUTSIDE,  /* a config, round, process or regime is not the lease's */
  POST_TAKEN,    /* new measurements count */
  POST_LATE,     /* the lease is no longer this agent's: new measurements are kept as evidence,
                    and those that were refused before are refused again */
};

struct judgement {
  enum post_verdict verdict;
  struct error refusal; /* of POST_UNKNOWN, POST_CONFLICT and POST_OUTSIDE: nothing is stored */
  size_t n_fresh;       /* measurements that are not stored yet; 0 of a post that is refused */
  size_t *fresh;        /* their indices in the post */
  bool *is_late;        /* whether each of them is stored only as evidence */
  size_t n_late;        /* the number of those that are */
  bool is_refused;      /* of POST_LATE: some were not accepted, by this post or an earlier one */
  double best_ratio;    /* the lowest of the accepted ones that did not leave their race early; NaN:
                           none */
  bool is_change;       /* whether `change` is written */
  struct measure_change change; /* its ranges are the judgement's */
};

/* Decides what a post does. `lease` NULL: it does not exist. `known`: the posted seqs that are
 * stored already. */
struct judgement results_judge(const struct results *results, int64_t id, const struct lease *lease,
                               const struct known_measurement *known, size_t n_known);
/* Whether the lease is no longer held after the post. */
bool post_ends_lease(const struct judgement *judgement);
void judgement_release(struct judgement *judgement);

/* Those of the posted measurements that are stored already; `job` is the lease's. */
must_check bool results_known(struct db *db, int64_t job, int64_t lease,
                              const struct results *results, struct known_measurement **ret,
                              size_t *ret_n, struct error *error);

/* Stores the new measurements, what they change of the lease and its job, and, if it is no longer
 * held, the time of its baseline; in the transaction that locked the lease. */
must_check bool results_store(struct db *db, const struct lease *lease,
                              const struct results *results, const struct judgement *judgement,
                              struct drift_note *note, struct error *error);

#endif
