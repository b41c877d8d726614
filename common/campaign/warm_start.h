/* The first configs that a campaign tries: warm-start configs, which won for similar keys, and the
 * batches of a search that begins with them.
 *
 * Memory: everything is borrowed. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CAMPAIGN_WARM_START_H
#define WAVETUNE_COMMON_CAMPAIGN_WARM_START_H

#include "common/search/search.h"
#include "common/space/key.h"

/* a quarter of the first batch of an agent's race and of a search */
#define WARM_STARTS_MAX 16

/* A config that won for a key of the same kernel. */
struct known_winner {
  const struct key *key;
  uint64_t config;   /* its ordinal in the space that is tuned now */
  bool is_elsewhere; /* in another environment: counts for the same key only */
};

/* The warm-start configs of `key`, each once: winners of the same environment, nearest keys first,
 * then those of the same key in other environments. Of equally near ones the newest comes first;
 * `winners` are in that order. Returns how many. */
size_t warm_starts_choose(const struct key *key, const struct known_winner *winners, size_t n,
                          uint64_t ret[WARM_STARTS_MAX]);

/* How different two keys of a kernel are: the sum over their numbers of |log2| of the quotient, and
 * KEY_DIFFERS for each other member that differs, as much as a factor of 256. 0: they are the
 * same. */
#define KEY_DIFFERS 8.0
double key_distance(const struct key *a, const struct key *b);

/* The first configs of a search: the baseline and the default, which are finalists in any case, and
 * the warm starts. Some may occur twice. Returns how many. */
#define SEARCH_FIRST_MAX (WARM_STARTS_MAX + 2)
size_t search_first(uint64_t baseline, bool has_default, uint64_t default_config,
                    const uint64_t *warm_starts, size_t n_warm_starts,
                    uint64_t ret[SEARCH_FIRST_MAX]);

struct search_told {
  uint64_t config; /* the first member: searched by compare_ordinals */
  double ratio;    /* to the baseline; INFINITY when it was not correct */
};

/* The batch of round `round` of a search, the first being 0, replayed from what was measured.
 * `told`: all results of the rounds before, by rising ordinal; a config that was requested and not
 * measured counts as not correct. *ret_n is 0 when the search is over. */
must_check bool search_round(const struct space *space, const struct space_facts *facts,
                             const struct search_options *options, const struct search_told *told,
                             size_t n_told, int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX],
                             size_t *ret_n, struct error *error);

#endif
