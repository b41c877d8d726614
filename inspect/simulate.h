/* What `wavetune simulate` replays: the measured configs of each (kernel, key). Private to
 * simulate*.c.
 *
 * Memory: landscapes own what they point at. Threads: one. */
#ifndef WAVETUNE_INSPECT_SIMULATE_H
#define WAVETUNE_INSPECT_SIMULATE_H

#include "common/search/search.h"

struct measured_config {
  uint64_t config; /* its ordinal where it was measured */
  json_t *values;
  bool has_failed; /* in one of its measurements */
  size_t n, capacity;
  double *ratios; /* of each correct measurement; sorted once all are read */
  double ratio;   /* their median; INFINITY when it has failed */
};

/* One (kernel, key) with what was measured of it. Configs that were not are not there: the space is
 * the list of those that were, in the order of their ordinals. */
struct landscape {
  char *kernel;
  json_t *key;
  size_t n, capacity;
  struct measured_config *configs;
  json_t *places; /* of configs: {"17": 0} while rows are added */
  int64_t baseline;
  size_t n_failed;
  size_t best;         /* place of the config with the least ratio */
  double worst;        /* greatest ratio of one that did not fail */
  struct space *space; /* its ordinals are places */
};

struct landscapes {
  size_t n, capacity;
  struct landscape *all;
  json_t *places; /* by kernel and key */
};
void landscapes_release(struct landscapes *landscapes);
#define cleanup_landscapes __attribute__((cleanup(landscapes_release)))

/* The landscape of a (kernel, key), which is made when it is new. */
struct landscape *landscapes_get(struct landscapes *landscapes, const char *kernel,
                                 const json_t *key);

/* Adds one measurement: a row of --samples or of a job, both of which have "outcome", "samples_us"
 * and "baseline_us". */
must_check bool landscape_add(struct landscape *landscape, uint64_t config, const json_t *values,
                              const json_t *row, struct error *error);

/* Adds all lines of a file that `wavetune-agent tune --samples` wrote. */
must_check bool landscapes_read(const char *path, struct landscapes *landscapes,
                                struct error *error);

/* Once all rows were added. */
must_check bool landscapes_finish(struct landscapes *landscapes, struct error *error);

#endif
