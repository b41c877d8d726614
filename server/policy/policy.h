/* Policies: which captures and demand become jobs by themselves, and which winners are proposed to
 * a channel. Each belongs to the token that set it, is in the database, and is followed by all
 * servers until that token ends. The jobs are the token's, with its share and its limits.
 *
 *   off        nothing is made
 *   suggest    GET /v1/policy/suggestions lists the jobs that would be made, with their estimated
 *              device time; POST /v1/policy/run makes them
 *   automatic  the servers make them
 *
 * Only captures and demand of the tokens that it names count ("*": of all tokens); patterns of
 * images only leave some of these out, because an image is what a container says of itself. Any
 * token may be named: a submitter may make the same jobs by hand. A captured key gets one job when
 * no job of its kernel, key and hardware exists, whoever made that: of two policies that cover a
 * key the older one makes it. The policy's jobs are those that its token submitted with its run.
 *
 * Estimate of a job: its configs times the mean device time of a config in the last 16 done jobs of
 * the kernel (all their leases with their openings, divided by all their configs); where the kernel
 * has none, in the last 64 of any kernel; where there are none, CONFIG_US_DEFAULT.
 *
 * Budget: in an hour, the policy makes at most jobs_per_hour jobs, each with the budget
 * device_seconds_per_job; without that, one for demand has the budget of the kernel's newest done
 * job. In a day (UTC), its jobs use at most device_seconds_per_day. What is left is
 * that less what leases granted today measured, less what jobs that are not finished are estimated
 * to need still. A job that does not fit is left for another day, and others are tried. One that is
 * estimated above a whole day's budget is made on a day on which nothing was used, with the day's
 * budget as its own.
 *
 * Proposals: server/policy/proposals.h.
 *
 * Memory: a policy owns its texts. Threads: a worker's own; policy_main has a thread of its own, of
 * which one at a time works in all servers that share a database (policy_lock). */
#ifndef WAVETUNE_SERVER_POLICY_POLICY_H
#define WAVETUNE_SERVER_POLICY_POLICY_H

#include "common/record/record.h"
#include "common/verdict/agreement.h"
#include "server/db/db.h"
#include "server/server.h"

#define POLICY_NAMES_MAX 100  /* tokens, and patterns of images */
#define POLICY_RUN "policy"   /* where the policy states none */
#define POLICY_PRIORITY (-50) /* below that of submitted jobs, above that of demand */
#define POLICY_JOBS_MAX 1000  /* of one request */
#define POLICY_AT_ONCE 16     /* jobs of one pass */
/* A key of which no job could be made is tried again. */
#define POLICY_RETRY_S 300

enum policy_mode { POLICY_OFF, POLICY_SUGGEST, POLICY_AUTOMATIC };

struct policy {
  int64_t id;
  enum policy_mode mode;
  double device_seconds_per_day, device_seconds_per_job; /* NaN: no limit */
  int64_t jobs_per_hour, configs_max;                    /* FIELD_NONE: no limit */
  char *run;                                             /* of its jobs */
  struct texts tokens, images;
  char *channel;                      /* where proposals go; NULL: none are made */
  enum agreement_requirement require; /* of winners of proposals */
  bool promote; /* proposals of a channel that needs no signature are promoted at once */
  char *set_at, *set_by;
  int64_t set_by_id;
  int64_t token; /* the live one of that name, FIELD_NONE: there is none; */
  char *roles;   /* its roles */
  bool acts;     /* its mode is not off, and its token has not ended */
  /* Of the jobs that it made, in seconds, and how many it may make now; set by policy_budget: */
  double used_today, open;
  int64_t jobs_left; /* INT64_MAX: no limit */
};
extern const struct record policy_record;
void policy_release(struct policy *policy);
#define cleanup_policy __attribute__((cleanup(policy_release)))

/* That of the token of this name: one that is off where it has none. */
must_check bool policy_load(struct db *db, const char *owner, struct policy *ret,
                            struct error *error);
/* Sets used_today, open and jobs_left, and *ret_left, in seconds: INFINITY without a budget. */
must_check bool policy_budget(struct db *db, struct policy *policy, double *ret_left,
                              struct error *error);

/* One at a time changes what the policy made. `waits`: for another one, until the deadline of the
 * connection; else *ret_locked may be false. */
must_check bool policy_lock(struct db *db, bool waits, bool *ret_locked, struct error *error);
void policy_unlock(struct db *db);

/* Makes at most `most` of the jobs that the policy suggests, under policy_lock. Adds to `answers` a
 * PolicyDecision of each. */
must_check bool policy_jobs_make(struct worker *worker, struct policy *policy, int64_t most,
                                 json_t *answers, struct error *error);

/* The main function of the thread that follows the policies; takes its struct worker. */
void *policy_main(void *worker);

#endif
