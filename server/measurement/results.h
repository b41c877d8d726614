/* What an agent posts of a lease, the body of POST /v1/leases/{id}/results, and what becomes of it.
 *
 * Memory: results own what was read: results_release. A judgement is the caller's:
 * judgement_release. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_RESULTS_H
#define WAVETUNE_SERVER_MEASUREMENT_RESULTS_H

#include "common/measurement/measurement.h"
#include "common/space/space.h"
#include "server/lease/lease_state.h"

#define RESULTS_MEASUREMENTS_MAX 1000

/* Whether the baseline could not be measured, so that nothing of the job can; then `detail` says
 * why. Older agents do not know the member "baseline_failed": their detail begins with "baseline:
 * ". A compiler's message may do that as well, so BY_DETAIL counts only where the config is the
 * job's baseline. */
enum baseline_failure { BASELINE_WORKED, BASELINE_FAILED, BASELINE_FAILED_BY_DETAIL };

/* What the server adds to a measurement that it reads. */
struct posted {
  double ratio; /* median of paired ratios; NaN without samples */
  enum baseline_failure baseline_failure;
  struct digest body; /* of the measurement as posted: tells a repetition from a contradiction */
};

struct results {
  int64_t epoch;
  struct records measurements; /* struct measurement */
  bool done;
  int64_t opening_us;    /* what opening the kernel took so far in this epoch; 0: not stated */
  struct posted *posted; /* one of each measurement */
};
extern const struct record results_record;
#define RESULTS_MEASUREMENT(results, i) (&((struct measurement *)(results)->measurements.all)[i])

must_check bool results_parse(const json_t *json, struct results *ret, struct error *error);
void results_release(struct results *results);
#define cleanup_results __attribute__((cleanup(results_release)))

/* Why the job's baseline could not be measured; NULL: it was not reported to have failed.
 * Borrowed. */
const char *results_baseline_failure(const struct results *results, int64_t baseline);

/* A lease as a post finds it, locked. */
struct posted_lease {
  int64_t job, round, process, epoch, epoch_opening_us, fruitless;
  int64_t posts; /* 0: no measurement of it was ever stored */
  enum stage stage;
  enum lease_state state;
  char *agent, *device; /* its holder, or its last one */
  struct config_ranges configs, remaining;
  int64_t baseline;  /* of its job, like the rest */
  double best_ratio; /* the least so far; NaN: none */
  bool has_budget;
  struct digest hardware_digest;
};

/* A measurement of this lease and epoch that is stored. */
struct known_measurement {
  int64_t seq;
  struct digest body;
};

enum post_verdict {
  POST_UNKNOWN,  /* there is no such lease */
  POST_NEVER,    /* its epoch was never granted */
  POST_CONFLICT, /* a seq is known with another body */
  POST_OUTSIDE,  /* a config, round or process is not the lease's */
  POST_TAKEN,    /* new measurements count */
  POST_LATE,     /* the lease is no longer this agent's: new measurements are kept as evidence */
};

struct judgement {
  enum post_verdict verdict;
  struct error refusal; /* of POST_UNKNOWN, POST_CONFLICT and POST_OUTSIDE: nothing is stored */
  size_t n_fresh;       /* measurements that are not stored yet, unless it is refused */
  size_t *fresh;        /* n_fresh: which */
  bool *is_late;        /* n_fresh: whether it moves nothing */
  size_t n_late;        /* how many of them */
  double best_ratio;    /* the least of those that count and did not leave their race early; NaN:
                           none */
  bool is_change;       /* the lease is written: as `change` says */
  struct lease_change change; /* its ranges are the judgement's */
};

/* What a post does. `lease` NULL: there is none of this id. `known`: those of its seqs that are
 * stored. */
struct judgement results_judge(const struct results *results, int64_t id,
                               const struct posted_lease *lease,
                               const struct known_measurement *known, size_t n_known);
/* Whether the lease is held no more after it. */
bool post_ends_lease(const struct judgement *judgement);
void judgement_release(struct judgement *judgement);

#endif
