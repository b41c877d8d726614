/* Warm-start configs, and a search that is replayed from what was measured. */
#include "common/campaign/campaign.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(warm_start);
TestSuite(search_rounds);

static struct key key_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct key key;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(key_parse(json, NULL, 0, &key, &error), "%s", error.message);
  return key;
}

/* A winner for {"M": m}. */
#define WINNERS 20
static struct key keys[WINNERS];
static struct known_winner winners[WINNERS];

static void winner_set(size_t i, int m, uint64_t config, bool is_elsewhere) {
  cleanup_free char *text = xasprintf("{\"M\": %d}", m);
  key_release(&keys[i]);
  keys[i] = key_of(text);
  winners[i] = (struct known_winner){&keys[i], config, is_elsewhere};
}

/* Of {"M": 64}. */
static void expect_warm_starts(size_t n, size_t n_expected, const uint64_t *expected) {
  cleanup_key struct key key = key_of("{\"M\": 64}");
  uint64_t found[WARM_STARTS_MAX];
  cr_assert_eq(warm_starts_choose(&key, winners, n, found), n_expected);
  for (size_t i = 0; i < n_expected; i++)
    cr_expect_eq(found[i], expected[i], "place %zu has config %llu", i,
                 (unsigned long long)found[i]);
}

Test(warm_start, the_nearest_key_comes_first) {
  winner_set(0, 4096, 8, false);
  winner_set(1, 128, 1, false);
  winner_set(2, 16, 4, false);
  expect_warm_starts(3, 3, (uint64_t[]){1, 4, 8});
}

Test(warm_start, of_equally_near_keys_the_newest_comes_first) {
  winner_set(0, 32, 5, false);
  winner_set(1, 128, 3, false);
  expect_warm_starts(2, 2, (uint64_t[]){5, 3});
}

Test(warm_start, another_environment_says_something_of_the_same_key_only_and_comes_last) {
  winner_set(0, 64, 8, true);
  winner_set(1, 32, 4, true);
  winner_set(2, 4096, 2, false);
  expect_warm_starts(3, 2, (uint64_t[]){2, 8});
}

Test(warm_start, a_config_is_named_once) {
  winner_set(0, 32, 2, false);
  winner_set(1, 16, 2, false);
  winner_set(2, 64, 2, true);
  expect_warm_starts(3, 1, (uint64_t[]){2});
}

Test(warm_start, of_many_the_nearest_are_chosen) {
  for (size_t i = 0; i < WINNERS; i++)
    winner_set(i, 64 << (WINNERS - i), i, false);
  uint64_t expected[WARM_STARTS_MAX];
  for (size_t i = 0; i < WARM_STARTS_MAX; i++)
    expected[i] = WINNERS - 1 - i;
  expect_warm_starts(WINNERS, WARM_STARTS_MAX, expected);
}

static double distance_of(const char *left, const char *right) {
  cleanup_key struct key a = key_of(left), b = key_of(right);
  return key_distance(&a, &b);
}

Test(warm_start, keys_differ_by_their_logarithms_and_by_what_is_no_number) {
  cr_expect_float_eq(distance_of("{\"M\": 64, \"N\": 64}", "{\"M\": 16, \"N\": 128}"), 3, 1e-12);
  cr_expect_float_eq(distance_of("{\"N\": 64, \"M\": 64}", "{\"M\": 16, \"N\": 128}"), 3, 1e-12);
  cr_expect_float_eq(distance_of("{\"x\": 0.5}", "{\"x\": 4}"), 3, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 64, \"t\": \"fp16\"}", "{\"M\": 64, \"t\": \"fp32\"}"),
                     KEY_DIFFERS, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 0, \"t\": true}", "{\"M\": 0, \"t\": true}"), 0, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 0}", "{\"M\": 8}"), KEY_DIFFERS, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 8}", "{\"N\": 8}"), KEY_DIFFERS, 1e-12);
}

Test(search_rounds, a_search_asks_for_the_baseline_the_default_and_the_warm_starts_first) {
  uint64_t first[SEARCH_FIRST_MAX];
  cr_assert_eq(search_first(9, true, 4, (uint64_t[]){7, 9}, 2, first), 4);
  cr_expect_arr_eq(first, ((uint64_t[]){9, 4, 7, 9}), 4 * sizeof *first);
  cr_assert_eq(search_first(9, false, 0, NULL, 0, first), 1);
}

#define TRIALS 150

static struct space *space_large(void) {
  static const char text[] =
      "{\"parameters\": {\"A\": [1,2,3,4,5,6,7,8,9,10], \"B\": [1,2,3,4,5,6,7,8,9,10],"
      " \"C\": [1,2,3,4,5,6,7,8,9,10]}}";
  cleanup_json json_t *json = NULL;
  struct space *space;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error));
  cr_assert(space_parse(json, &space, &error), "%s", error.message);
  return space;
}

static int by_config(const void *a, const void *b) {
  uint64_t x = ((const struct search_result *)a)->config,
           y = ((const struct search_result *)b)->config;
  return (x > y) - (x < y);
}

static double ratio_of(uint64_t config) {
  return config % 7 == 0 ? INFINITY : 1 + (double)(config % 100) / 100;
}

Test(search_rounds, a_search_goes_on_from_what_was_measured_as_if_it_had_never_stopped) {
  cleanup_space struct space *space = space_large();
  struct space_facts facts = {0};
  struct search_options options = {.strategy = SEARCH_EVOLUTION, .seed = 7, .trials = TRIALS};
  struct search_result told[TRIALS];
  uint64_t once[SEARCH_BATCH_MAX], again[SEARCH_BATCH_MAX];
  struct error error;
  size_t n_told = 0, n_once, n_again;
  int64_t round = 0;
  cleanup_search struct search *search = NULL;
  cr_assert(search_new(space, &facts, &options, &search, &error), "%s", error.message);
  do {
    n_once = search_ask(search, once);
    qsort(told, n_told, sizeof *told, by_config);
    cr_assert(search_round(space, &facts, &options, told, n_told, round, again, &n_again, &error),
              "%s", error.message);
    cr_assert_eq(n_again, n_once, "round %lld", (long long)round);
    cr_expect_arr_eq(again, once, n_once * sizeof *once);
    for (size_t i = 0; i < n_once; i++) {
      told[n_told++] = (struct search_result){once[i], ratio_of(once[i])};
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
  cr_assert(search_round(space, &facts, &options, NULL, 0, 1, batch, &n, &error), "%s",
            error.message);
  cr_expect_gt(n, 0);
}

Test(search_rounds, a_space_without_points_is_refused) {
  cleanup_json json_t *json =
      json_pack("{s:{s:[i]}, s:[s]}", "parameters", "A", 1, "conditions", "A > 1");
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
