/* Sets of configs as ranges of their ordinals, as in leases.
 *
 * Memory: a config_ranges owns its array. Threads: one for each set while it is written. */
#ifndef WAVETUNE_COMMON_BASE_CONFIG_RANGES_H
#define WAVETUNE_COMMON_BASE_CONFIG_RANGES_H

#include "common/base/json.h"

/* The ranges [first, first + count) are sorted, disjoint and not adjacent. */
struct config_range {
  uint64_t first;
  uint64_t count;
};
struct config_ranges { /* starts as {0} */
  size_t n, capacity;
  struct config_range *ranges;
};

/* Adds an ordinal that is greater than all in the set. */
void config_ranges_add(struct config_ranges *ranges, uint64_t ordinal);

uint64_t config_ranges_count(const struct config_ranges *ranges);
bool config_ranges_contain(const struct config_ranges *ranges, uint64_t ordinal);

/* To and from [[first, count], …], like [[0, 48], [50, 22]]. */
must_check json_t *config_ranges_to_json(const struct config_ranges *ranges);
must_check bool config_ranges_from_json(const json_t *json, struct config_ranges *ret_ranges,
                                        struct error *error);

void config_ranges_release(struct config_ranges *ranges);
#define cleanup_config_ranges cleanup_by(config_ranges_release)

#endif
