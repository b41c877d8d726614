/* How a job is cut into leases: the points of its space that hold, in ordinal order, in pieces of
 * so many predicted seconds; and what of a held lease an idle device takes over.
 *
 * Memory: a plan owns its ranges. Threads: one to a plan. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_PLAN_H
#define WAVETUNE_SERVER_LEASE_LEASE_PLAN_H

#include "common/space/space.h"

#define JOB_POINTS_MAX 1000000u    /* of one job */
#define JOB_STEPS_MAX 20000000u    /* partial points visited while they are enumerated */
#define BATCH_POINTS_MAX 20000000u /* of all new jobs of one request */

#define LEASE_CONFIGS_MIN 8     /* of a screen lease, and of what a split leaves or takes */
#define LEASE_CONFIGS_MOST 4096 /* of a screen lease */
#define CONFIG_US_DEFAULT 30000 /* device time of a config of a kernel that was never measured */
/* a held lease with more predicted device time left than this may be split */
#define SPLIT_LEFT_US 4000000
#define SPLIT_AGE_MS 2000 /* when it was granted so long ago */
/* so often the holder of such a lease asks what is still its own */
#define RENEW_SPLITTABLE_MS 2000

/* Where the config that a job's measurements are paired with comes from. */
#define BASELINE_ORIGINS(X)                                                                        \
  X(INCUMBENT, "incumbent") X(IMPORTED, "imported") X(DEFAULT, "default") X(FIRST, "first")
#define X(id, name) BASELINE_##id,
enum baseline_from { BASELINE_ORIGINS(X) BASELINE_FROM_COUNT };
#undef X
extern const char *const baseline_from_names[]; /* by value, ended by NULL */

struct lease_plan {
  uint64_t configs; /* points that hold; of a search its trials */
  uint64_t baseline;
  enum baseline_from baseline_from;
  size_t n;
  struct config_ranges *leases; /* disjoint, in ordinal order */
};
void lease_plan_release(struct lease_plan *plan);
#define cleanup_lease_plan __attribute__((cleanup(lease_plan_release)))

/* What the size of a lease follows from. */
struct lease_sizing {
  int64_t config_us; /* predicted device time of a config, > 0 */
  int64_t target_us; /* of a lease */
  int64_t devices;   /* live ones that can run it */
};
/* Configs of one screen lease for `configs` that are open at the same time, of a job with `total`
 * in all. A job longer than one lease has at least two for each device, so that all end
 * together. */
uint64_t lease_plan_size(uint64_t configs, uint64_t total, const struct lease_sizing *sizing);

/* Enumerates and cuts. The baseline is the default, else the first point. Refuses a space without
 * points or with more than `points_max`, and a default that does not hold; errors have pointers
 * relative to the space. */
must_check bool lease_plan_make(const struct space *space, const struct space_facts *facts,
                                uint64_t points_max, const struct lease_sizing *sizing,
                                struct lease_plan *ret_plan, struct error *error);

/* The default where it holds, else the first point that holds, for a space that is not
 * enumerated. */
must_check bool lease_plan_baseline(const struct space *space, const struct space_facts *facts,
                                    struct lease_plan *plan, struct error *error);

/* Cuts a batch that a search asked for, of `total` trials, into leases of `plan`, which has none
 * yet. Sorts `configs`. */
void lease_plan_cut(uint64_t *configs, size_t n, uint64_t total, const struct lease_sizing *sizing,
                    struct lease_plan *plan);

/* Whether it may be worth splitting at all. */
static inline bool lease_is_large(const struct config_ranges *configs) {
  return config_ranges_count(configs) > 2 * LEASE_CONFIGS_MIN;
}

/* The later half of what remains of a lease; the caller's. Nothing when either part had less than
 * LEASE_CONFIGS_MIN. */
struct config_ranges lease_tail(const struct config_ranges *remaining);

#endif
