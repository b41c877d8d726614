/* A search that is rebuilt from what was measured of it. */
#include <criterion/criterion.h>

#include <math.h>

#include "server/job/search_rounds.h"

TestSuite(search_rounds);

#define TRIALS 150

static struct space *space_large(void) {
  static const char text[] = "{\"parameters\": {\"A\": [1,2,3,4,5,6,7,8,9,10], \"B\": [1,2,3,4,5,6,7,8,9,10],"
                             " \"C\": [1,2,3,4,5,6,7,8,9,10]}}";
  cleanup_json json_t *json = NULL;
  struct space *space;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error));
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  return space;
}

static int by_config(const void *a, const void *b) {
  uint64_t x = ((const struct search_told *)a)->config, y = ((const struct search_told *)b)->config;
  return (x > y) - (x < y);
}

static double ratio_of(uint64_t config) { return config % 7 == 0 ? INFINITY : 1 + (double)(config % 100) / 100; }

Test(search_rounds, a_search_goes_on_from_what_was_measured_as_if_it_had_never_stopped) {
  cleanup_space struct space *space = space_large();
  struct space_facts facts = {0};
  struct search_options options = {.strategy = SEARCH_EVOLUTION, .seed = 7, .trials = TRIALS};
  struct search_told told[TRIALS];
  uint64_t once[SEARCH_BATCH_MAX], again[SEARCH_BATCH_MAX];
  struct error error;
  size_t n_told = 0, n_once, n_again;
  int64_t round = 0;
  cleanup_search struct search *search = NULL;
  cr_assert(search_new(space, &facts, &options, &search, &error), "%s", error.message);
  do {
    n_once = search_ask(search, once);
    qsort(told, n_told, sizeof *told, by_config);
    cr_assert(search_round(space, &facts, &options, told, n_told, round, again, &n_again, &error), "%s", error.message);
    cr_assert_eq(n_again, n_once, "round %lld", (long long)round);
    cr_expect_arr_eq(again, once, n_once * sizeof *once);
    for (size_t i = 0; i < n_once; i++) {
      told[n_told++] = (struct search_told){once[i], ratio_of(once[i])};
      search_tell(search, once[i], ratio_of(once[i]));
    }
    round++;
  } while (n_once > 0);
  cr_expect_eq(n_told, TRIALS);
  cr_expect_geq(round, 3);
}

Test(search_rounds, what_nobody_measured_counts_as_not_correct) {
  cleanup_space struct space *space = space_large();
  struct space_facts facts = {0};
  struct search_options options = {.strategy = SEARCH_RANDOM, .seed = 7, .trials = TRIALS};
  uint64_t batch[SEARCH_BATCH_MAX];
  struct error error;
  size_t n;
  cr_assert(search_round(space, &facts, &options, NULL, 0, 1, batch, &n, &error), "%s", error.message);
  cr_expect_gt(n, 0);
}

Test(search_rounds, a_space_without_points_is_refused) {
  cleanup_json json_t *json = json_pack("{s:{s:[i]}, s:[s]}", "parameters", "A", 1, "conditions", "A > 1");
  cleanup_space struct space *space = NULL;
  struct space_facts facts = {0};
  struct search_options options = {.strategy = SEARCH_RANDOM, .seed = 7, .trials = 5};
  uint64_t batch[SEARCH_BATCH_MAX];
  struct error error = {0};
  size_t n;
  cr_assert(space_parse(json, &space, &error));
  cr_expect_not(search_round(space, &facts, &options, NULL, 0, 0, batch, &n, &error));
  cr_expect_neq(strlen(error.message), 0);
}
