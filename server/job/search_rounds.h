/* What a search asks for next: rebuilt, round by round, from what was measured of it (common/search/search.h).
 *
 * Memory: everything is borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_SEARCH_ROUNDS_H
#define WAVETUNE_SERVER_JOB_SEARCH_ROUNDS_H

#include "common/search/search.h"
#include "server/job/likely.h"

#define SEARCH_FIRST_MAX (LIKELY_MAX + 2)

struct search_told {
  uint64_t config;
  double ratio; /* to the baseline; INFINITY when it was not correct */
};

/* What a search asks for first: the baseline and the default, which are finalists in any case, and likely winners. Returns how
 * many; some may be there twice. */
size_t search_first(uint64_t baseline, bool has_default, uint64_t default_config, const uint64_t *likely,
                    size_t n_likely, uint64_t ret[SEARCH_FIRST_MAX]);

/* The batch of round `round`, the first being 0. `told`: all that was measured in the rounds before, by rising ordinal; what
 * a round asked for and nobody measured counts as not correct. *ret_n is 0 when the search is over. */
must_check bool search_round(const struct space *space, const struct space_facts *facts,
                             const struct search_options *options, const struct search_told *told, size_t n_told,
                             int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX], size_t *ret_n, struct error *error);

#endif
