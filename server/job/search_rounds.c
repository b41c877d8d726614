/* Replaying a search. Memory and threads: as the header says. */
#include "server/job/search_rounds.h"

#include <math.h>

static int by_config(const void *a, const void *b) {
  const struct search_told *x = a, *y = b;
  return (x->config > y->config) - (x->config < y->config);
}

size_t search_first(uint64_t baseline, bool has_default, uint64_t default_config, const uint64_t *likely,
                    size_t n_likely, uint64_t ret[SEARCH_FIRST_MAX]) {
  size_t n = 0;
  ret[n++] = baseline;
  if (has_default)
    ret[n++] = default_config;
  ALWAYS(n_likely <= LIKELY_MAX);
  for (size_t i = 0; i < n_likely; i++)
    ret[n++] = likely[i];
  return n;
}

bool search_round(const struct space *space, const struct space_facts *facts, const struct search_options *options,
                  const struct search_told *told, size_t n_told, int64_t round, uint64_t ret_configs[SEARCH_BATCH_MAX],
                  size_t *ret_n, struct error *error) {
  cleanup_search struct search *search = NULL;
  if (!search_new(space, facts, options, &search, error))
    return false;
  size_t n = search_ask(search, ret_configs);
  for (; round > 0 && n > 0; round--) {
    for (size_t i = 0; i < n; i++) {
      struct search_told wanted = {ret_configs[i], 0};
      const struct search_told *found = n_told ? bsearch(&wanted, told, n_told, sizeof *told, by_config) : NULL;
      search_tell(search, ret_configs[i], found ? found->ratio : INFINITY);
    }
    n = search_ask(search, ret_configs);
  }
  *ret_n = n;
  return true;
}
