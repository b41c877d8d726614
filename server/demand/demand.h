/* Demand: the keys that deployments report to use, and which untuned ones of them become jobs; and
 * the keys that programs which start tuned missed, whose functions become jobs when they are
 * captured.
 *
 * Reports are hints that are not trusted: only registered kernels are counted, tokens of the role
 * demand can do nothing else, each token may post DEMAND_POSTS_PER_MINUTE reports, and jobs are
 * queued only by a submitter, or by a policy (server/policy/). With --demand off reports are
 * answered and dropped; with suggest they are stored, and GET /v1/demand ranks the untuned keys.
 *
 * Rank: the GPU time that tuning would have saved so far,
 *
 *   tuning_ms + (hits + misses) * kernel_ms * gain
 *
 * where gain is the mean share of time that the kernel's winners save against the default of their
 * space (in a space without one, against the baseline), DEMAND_GAIN where it has none yet. Savings
 * compared with an incumbent do not count. A job for demand takes the space and budget of the
 * kernel's newest done job, with a priority below that of submitted jobs. Both the gain and the
 * newest job leave out jobs that revalidated a few configs.
 *
 * Memory: a report owns what it holds; JSON that is returned is the caller's. Threads: reading is
 * pure; the rest belongs to a worker. */
#ifndef WAVETUNE_SERVER_DEMAND_DEMAND_H
#define WAVETUNE_SERVER_DEMAND_DEMAND_H

#include "common/base/base.h"
#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"
#include "server/db/db.h"
#include "server/server.h"

#define DEMAND_ITEMS_MAX 1000
#define DEMAND_COUNT_MAX INT64_C(1000000000)
#define DEMAND_MS_MAX 1e9
/* shorter times count as not known, because their products might underflow */
#define DEMAND_MS_MIN 1e-6
#define DEMAND_TOTAL_MAX INT64_C(1000000000000000) /* the limit of a key's counts */
#define DEMAND_POSTS_PER_MINUTE 60
#define DEMAND_ROWS_MAX 100000 /* that are stored; further keys are dropped */
#define DEMAND_MISS_DAYS 7    /* that a miss of a program stays listed after it was reported last */
#define DEMAND_QUEUE_MAX 1000 /* jobs of one request */
#define DEMAND_GAIN 0.1
#define DEMAND_PRIORITY (-100)

struct token_rates *server_demand_rates(const struct server *server); /* of the reports */
/* Makes jobs for reported misses (--demand). The housekeeper's. */
void demand_housekeep(struct worker *worker);

extern const char *const demand_policy_names[]; /* by value, ended by NULL */
must_check bool demand_policy_parse(const char *name, enum demand_policy *ret_policy);

struct demand_item {
  char *name; /* of a kernel, or its hash */
  json_t *key;
  int64_t hits, misses;
  double tuning_ms, kernel_ms; /* NaN: not known */
  bool has_hash;               /* `name` is the hash, */
  struct digest kernel;        /* this one */
};
/* A key for which a program that starts tuned had no config, of any function. */
struct demand_miss {
  struct digest function; /* its closure */
  char *name, *why;
  RECORD_ARRAY(char *, n_key, key);
  double tuning_ms; /* NaN: not known */
};
struct demand_report {
  char *image, *tag;
  enum regime regime;
  struct records items; /* of struct demand_item */
  RECORD_ARRAY(struct demand_miss, n_missed, missed);
  struct environment environment;
};
extern const struct record demand_report_record;
must_check bool demand_report_parse(const json_t *json, struct demand_report *ret,
                                    struct error *error);
void demand_report_release(struct demand_report *report);
#define cleanup_demand_report __attribute__((cleanup(demand_report_release)))

/* The untuned keys that were missed and are not decided yet, those that save most GPU time first;
 * for a list also those that wait for an agent to enrol. `policy`: only those that this policy
 * covers (server/policy/); 0: all. */
enum demand_use { DEMAND_LIST, DEMAND_QUEUE };
must_check bool demand_wanted_read(struct db *db, int64_t limit, enum demand_use use,
                                   int64_t policy, struct db_rows **ret_rows, struct error *error);
/* Notes the job that was queued for a key, or where that is 0, why there is none (job_wish.h). */
must_check bool demand_decide(struct db *db, int64_t id, int64_t job, const struct error *refused,
                              struct error *error);

#endif
