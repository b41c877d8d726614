/* Random search: the baseline that others must beat. Memory and threads: as search.h says. */
#include "common/search/search_strategy.h"

static void random_fill(struct search *search) {
  while (search_add_random(search)) {
  }
}

const struct strategy search_random = {.fill = random_fill};
