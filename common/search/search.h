/* Strategies that look for a good config where a space is too large to be measured whole: ask and
 * tell.
 *
 * - random: valid configs, each equally probable, none twice.
 * - descent: coordinate descent as Inductor's autotuner does it: from the best of the warm-start
 *   configs and the default (else a random one) each parameter in turn is moved to its neighbouring
 *   values, and the best neighbour is the next point; at a local optimum it starts again from a
 *   random point.
 * - evolution: regularised (aging) evolution, Real, Aggarwal, Huang, Le, "Regularized Evolution for
 *   Image Classifier Architecture Search", AAAI 2019 (arXiv:1802.01548), with mutation to
 *   neighbouring values as well as to any.
 * The requested configs are a function of (space, facts, options) and of the reported results,
 * batch by batch; the order of results in a batch does not matter. So a search can be rebuilt from
 * stored measurements, with the same batches on every node.
 *
 * Memory: a search borrows space and facts. Threads: one for each search. */
#ifndef WAVETUNE_COMMON_SEARCH_SEARCH_H
#define WAVETUNE_COMMON_SEARCH_SEARCH_H

#include "common/space/space.h"

#define SEARCH_BATCH_MAX 64
#define SEARCH_TRIALS_MAX 100000

enum search_strategy { SEARCH_RANDOM, SEARCH_DESCENT, SEARCH_EVOLUTION, SEARCH_STRATEGY_COUNT };
extern const char *const search_strategy_names[]; /* by value, ended by NULL */
const char *
search_strategy_name(enum search_strategy strategy); /* "random", "descent", "evolution" */
must_check bool search_strategy_parse(const char *name, enum search_strategy *ret);

/* Random candidates that are tried before a search reports that no config is valid. */
#define SEARCH_WORK_DEFAULT (1u << 24)

struct search_options {
  enum search_strategy strategy;
  uint64_t seed;
  uint64_t trials; /* configs requested in all; 1 to SEARCH_TRIALS_MAX */
  /* Configs of the first batch, such as winners of neighbouring keys. Borrowed during search_new.
   * Invalid ones are left out, and those beyond SEARCH_BATCH_MAX. */
  size_t n_likely;
  const uint64_t *likely;
  uint64_t work_limit; /* 0: SEARCH_WORK_DEFAULT, some seconds */
};

struct search;
/* False: the conditions of the space fail, or no valid config was found. */
must_check bool search_new(const struct space *space, const struct space_facts *facts,
                           const struct search_options *options, struct search **ret_search,
                           struct error *error);
void search_free(struct search *search);
DEFINE_CLEANUP(struct search *, cleanup_search_free, search_free)
#define cleanup_search cleanup_by(cleanup_search_free)

/* The next batch: valid configs that were not in an earlier one, at most SEARCH_BATCH_MAX, in the
 * order in which they should be tried. 0: the trials are used up, or nothing is left or found. A
 * config whose result is not reported before the next batch counts as INFINITY. */
size_t search_ask(struct search *search, uint64_t configs[SEARCH_BATCH_MAX]);
/* `ratio` to the baseline, > 0; INFINITY when it was not measured correctly. Of two results for a
 * config the lesser is used; a config that is not in the latest batch is ignored. */
void search_tell(struct search *search, uint64_t config, double ratio);

#endif
