/* Cuts the valid configs of a job, in ordinal order, into leases of about equal predicted device
 * time; and cuts off the part of a held lease that an idle device takes over.
 *
 * Memory: a plan owns its ranges. Threads: one thread to a plan. */
#ifndef WAVETUNE_SERVER_MEASUREMENT_LEASE_PLAN_H
#define WAVETUNE_SERVER_MEASUREMENT_LEASE_PLAN_H

#include "common/space/space.h"

#define JOB_POINTS_MAX 1000000u    /* of one job */
#define JOB_STEPS_MAX 20000000u    /* partial points that an enumeration may visit */
#define BATCH_POINTS_MAX 20000000u /* of all new jobs of one request */

#define LEASE_CONFIGS_MIN 8     /* of a screen lease, and of each part of a split one */
#define LEASE_CONFIGS_MOST 4096 /* of a screen lease */
#define CONFIG_US_DEFAULT 30000 /* device time of a config when its kernel was never measured */
/* An idle device takes over 1 / SPLIT_PARTS of a held lease's remaining configs, when these are at
 * least SPLIT_CONFIGS_MIN, the lease was granted at least SPLIT_AGE_MS ago and has more predicted
 * device time left than SPLIT_LEFT_US. The holder of a lease that may be split renews it every
 * RENEW_SPLITTABLE_MS, to learn which configs remain. */
#define SPLIT_PARTS 2
#define SPLIT_CONFIGS_MIN (SPLIT_PARTS * LEASE_CONFIGS_MIN + 1)
#define SPLIT_LEFT_US 4000000
#define SPLIT_AGE_MS 2000
#define RENEW_SPLITTABLE_MS 2000

/* The origin of a job's baseline, the config that its measurements are paired with. */
#define BASELINE_ORIGINS(X)                                                                        \
  X(INCUMBENT, "incumbent") X(IMPORTED, "imported") X(DEFAULT, "default") X(FIRST, "first")
#define X(id, name) BASELINE_##id,
enum baseline_from { BASELINE_ORIGINS(X) BASELINE_FROM_COUNT };
#undef X
extern const char *const baseline_from_names[]; /* by value, ended by NULL */

struct lease_plan {
  uint64_t configs; /* valid configs; in a search, its trials */
  uint64_t baseline;
  enum baseline_from baseline_from;
  size_t n;
  struct config_ranges *leases; /* disjoint, in ordinal order */
};
void lease_plan_release(struct lease_plan *plan);
#define cleanup_lease_plan __attribute__((cleanup(lease_plan_release)))

/* The inputs for the size of a lease. */
struct lease_sizing {
  int64_t config_us; /* predicted device time of a config, > 0 */
  int64_t target_us; /* predicted device time of a lease */
  int64_t devices;   /* live devices that can run the job */
};
/* The number of configs in one screen lease, where `configs` of the job's `total` are cut at the
 * same time. A job that needs more than one lease gets at least two for each device, so that all
 * devices end at about the same time. */
uint64_t lease_plan_size(uint64_t configs, uint64_t total, const struct lease_sizing *sizing);

/* Enumerates the space and cuts it. The baseline is the default, else the first valid config.
 * Refuses a space without valid configs or with more than `points_max`, and a default that is not
 * valid. Errors have pointers relative to the space. */
must_check bool lease_plan_make(const struct space *space, const struct space_facts *facts,
                                uint64_t points_max, const struct lease_sizing *sizing,
                                struct lease_plan *ret_plan, struct error *error);

/* Sets the baseline only, for a space that is not enumerated: the default, which must be valid,
 * else the first valid config. */
must_check bool lease_plan_baseline(const struct space *space, const struct space_facts *facts,
                                    struct lease_plan *plan, struct error *error);

/* Cuts a batch of a search of `total` trials into leases of `plan`, which has none yet. Sorts
 * `configs`. */
void lease_plan_cut(uint64_t *configs, size_t n, uint64_t total, const struct lease_sizing *sizing,
                    struct lease_plan *plan);

/* Whether a lease has enough configs to be split. */
static inline bool lease_is_large(const struct config_ranges *configs) {
  return config_ranges_count(configs) >= SPLIT_CONFIGS_MIN;
}

/* The last 1 / SPLIT_PARTS of a lease's remaining configs, which an idle device takes over; the
 * caller's. Empty unless the lease is large. */
struct config_ranges lease_tail(const struct config_ranges *remaining);

#endif
