/* Winners that turned out slower than the default.
 *
 * Memory: plain values. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_AGENT_FLAG_STORE_H
#define WAVETUNE_SERVER_AGENT_FLAG_STORE_H

#include "server/agent/flags.h"
#include "server/db/db.h"

struct flag_facts {
  uint64_t baseline, default_config, seed;
  bool has_default;  /* the space has one */
  bool has_earlier;  /* some job that was done when it was submitted has a winner that can be flagged */
  int64_t n_lacking; /* samples of the final that were quarantined and not measured again */
};
must_check bool flag_facts_load(struct db *db, int64_t job, struct flag_facts *ret, struct error *error);

/* Flags the winners with these values (JSON, of flags[i]) of jobs that were done when `job` was submitted, of the same kernel,
 * key, environment, tag and regime, with the event, in the caller's transaction. Those that are flagged already stay as they are. */
must_check bool flags_store(struct db *db, int64_t job, const char *const *config_values, const struct flag *flags,
                            size_t n, size_t *ret_flagged, struct error *error);

#endif
