/* How a job is cut into leases: the points of its space that hold, in ordinal order, in pieces that are worth a trip.
 *
 * Memory: a plan owns its ranges. Threads: one to a plan. */
#ifndef WAVETUNE_SERVER_CORE_LEASE_PLAN_H
#define WAVETUNE_SERVER_CORE_LEASE_PLAN_H

#include "common/space.h"

#define JOB_POINTS_MAX 1000000u    /* of one job */
#define JOB_STEPS_MAX 20000000u    /* partial points visited while they are enumerated */
#define BATCH_POINTS_MAX 20000000u /* of all new jobs of one request */

struct lease_plan {
  uint64_t configs;  /* points that hold */
  uint64_t baseline; /* the default, else the first of them */
  size_t n;
  struct config_ranges *leases; /* disjoint, in ordinal order */
};
void lease_plan_release(struct lease_plan *plan);
#define cleanup_lease_plan __attribute__((cleanup(lease_plan_release)))

/* Configs of one screen lease for a job of `configs`: a 16th, but 8 to 256. */
uint64_t lease_plan_size(uint64_t configs);

/* Enumerates and cuts. Refuses a space without points or with more than `points_max`, and a default that does not hold;
 * errors have pointers relative to the space. */
must_check bool lease_plan_make(const struct space *space, const struct space_facts *facts, uint64_t points_max,
                                struct lease_plan *ret_plan, struct error *error);

#endif
