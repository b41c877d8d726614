/* Jobs that the server makes of demand (server/demand/), and of captures for a policy or a
 * submitter (server/policy/), as a person would submit them.
 *
 * Memory: a wish borrows what it points to. Threads: a worker's own. */
#ifndef WAVETUNE_SERVER_JOB_JOB_WISH_H
#define WAVETUNE_SERVER_JOB_JOB_WISH_H

#include "common/regime/regime.h"
#include "server/job/submit.h"

struct job_wish {
  struct digest kernel;
  json_t *key, *space, *environment; /* the environment may be partial */
  const char *tag, *run;
  enum regime regime;
  int64_t priority;
  double budget_s; /* NaN: none */
  bool may_wait;   /* also where no live agent matches */
};

/* Makes the job, or finds it where it is there already. ret->id: 0 when it was refused for the
 * reason in *refused, whose kind is ERROR_UNAVAILABLE where an agent that enrols would change that.
 * Fails only if the database does. */
must_check bool job_wish_submit(struct worker *worker, const struct job_wish *wish,
                                const struct author *author, struct job_known *ret,
                                struct error *refused, struct error *error);

#endif
