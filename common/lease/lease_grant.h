/* A task of the kind measure as a server grants it: the answer to POST /v1/leases.
 *
 * Memory: a grant that was read owns its members (record_release). Threads: one for each grant. */
#ifndef WAVETUNE_COMMON_LEASE_LEASE_GRANT_H
#define WAVETUNE_COMMON_LEASE_LEASE_GRANT_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"
#include "common/space/space.h"
#include "common/task/task.h"
#include "common/verdict/verdict.h"

struct lease_grant {
  struct task_grant task;
  int64_t job;
  struct digest kernel;
  json_t *manifest, *key, *space; /* objects; the order of their members matters */
  struct digest build;            /* none: the agent compiles */
  struct config_ranges configs;   /* to be measured */
  json_t *signatures; /* arrays, of the kernel and of the build; NULL: the agent trusts no keys */
  json_t *build_signatures;
  json_t *likely;    /* array: the warm-start configs, which are measured first; NULL: none */
  double best_ratio; /* least ratio to the baseline so far, of the whole job; NaN: none */
  int64_t device_us, budget_us; /* limits of device time, of this lease and of all leases of
                                   its stage together; FIELD_NONE: none */
  int64_t baseline;
  enum stage stage;
  int64_t round, process, seed;
  enum regime regime;
};
extern const struct record lease_grant_record;

#endif
