/* What an agent posts of a lease: the body of POST /v1/leases/{id}/results, read and checked.
 *
 * Memory: results own their array and its conditions; other texts are borrowed from the body. Threads: any. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_RESULTS_H
#define WAVETUNE_SERVER_MEASUREMENT_RESULTS_H

#include "common/base/json.h"
#include "common/verdict/outcome.h"
#include "server/job/job_state.h"

#define RESULTS_MEASUREMENTS_MAX 1000
#define MEASUREMENT_NONE INT64_MIN /* an integer that was not stated */

/* Whether the baseline could not be measured, so that nothing of the job can; then `detail` says why. Older agents do not
 * know the member "baseline_failed": their detail begins with "baseline: ". A compiler's message may do that as well, so
 * BY_DETAIL counts only where the config is the job's baseline. */
enum baseline_failure { BASELINE_WORKED, BASELINE_FAILED, BASELINE_FAILED_BY_DETAIL };

struct measurement {
  int64_t seq, config;
  int64_t process, round; /* MEASUREMENT_NONE: the lease's */
  enum outcome outcome;
  const char *detail, *timer, *regime;    /* NULL where not stated */
  const char *end;                        /* why sampling ended; NULL where not stated */
  const json_t *samples_us, *baseline_us; /* arrays of equal length of numbers, or NULL */
  double ratio;                           /* median of paired ratios; 0 without samples */
  double clock_mhz;                       /* 0: not stated */
#define X(member, least, most) int64_t member;
  MEASUREMENT_INTEGERS(X)
#undef X
  struct digest object; /* of the code that was timed, a blob; where has_object */
  bool has_object;
  char *conditions; /* text of a JSON object; NULL where not stated */
  enum baseline_failure baseline_failure;
  struct digest body; /* of the measurement as posted: tells a repetition from a contradiction */
};

#define OPENING_US_MAX INT64_C(1000000000000000)

struct results {
  int64_t epoch;
  int64_t opening_us; /* what opening the kernel took so far in this epoch; 0: not stated */
  bool done;
  size_t n;
  struct measurement *measurements;
};
must_check bool results_parse(const json_t *json, struct results *ret, struct error *error);
void results_release(struct results *results);

#endif
