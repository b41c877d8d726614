/* Strategies: what they ask, that it holds and never comes twice, that they end, and that they find
 * what is good. */
#include <criterion/criterion.h>
#include <math.h>

#include "common/base/numbers.h"
#include "common/search/search.h"

static struct space *space_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct space *space = NULL;
  struct error error = {0};
  cr_assert(json_parse(text, strlen(text), &json, &error) && space_parse(json, &space, &error),
            "%s: %s %s", text, error.pointer, error.message);
  return space;
}

static struct search *search_of(const struct space *space, const struct search_options *options) {
  struct search *search = NULL;
  struct error error = {0};
  cr_assert(search_new(space, NULL, options, &search, &error), "%s %s", error.pointer,
            error.message);
  return search;
}

/* {"parameters": {"p0": [0, …, values - 1], …}, MORE} */
static struct space *grid(int parameters, int values, const char *more) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  fputs("{\"parameters\": {", out);
  for (int p = 0; p < parameters; p++) {
    fprintf(out, "%s\"p%d\": [", p ? ", " : "", p);
    for (int v = 0; v < values; v++)
      fprintf(out, "%s%d", v ? ", " : "", v);
    fputs("]", out);
  }
  fprintf(out, "}%s}", more);
  fclose(out);
  struct space *space = space_of(text);
  free(text);
  return space;
}

/* What a config is worth: a smooth bowl over the places of its values, whose lowest point is off
 * the middle. */
static double bowl(const struct space *space, uint64_t config) {
  struct value values[SPACE_PARAMETERS_MAX];
  cr_assert(space_config(space, config, values));
  double ratio = 1;
  for (size_t i = 0; i < space->n_parameters; i++) {
    double distance =
        (double)values[i].integer - (double)((3 * i + 2) % space->parameters[i].n_values);
    ratio += 0.1 * distance * distance;
  }
  return ratio;
}

typedef double landscape(const struct space *space, uint64_t config);

/* Anything: every config a value of its own, every seventh fails. */
static double noise(const struct space *space, uint64_t config) {
  (void)space;
  struct rng rng = rng_seeded(config);
  double ratio = 0.5 + rng_unit(&rng);
  return rng_below(&rng, 7) ? ratio : INFINITY;
}

struct asked_all {
  size_t n, capacity, n_batches;
  uint64_t *configs;
};

static void asked_all_release(struct asked_all *all) { free(all->configs); }
#define cleanup_asked __attribute__((cleanup(asked_all_release)))

/* Runs a search to its end; asserts that every config holds and comes once. `order`: 0 tells in the
 * order asked, else shuffled by that seed. */
static struct asked_all run(const struct space *space, const struct search_options *options,
                            landscape *ratio, uint64_t order) {
  cleanup_search struct search *search = search_of(space, options);
  struct asked_all all = {0};
  struct rng rng = rng_seeded(order);
  uint64_t batch[SEARCH_BATCH_MAX];
  for (size_t n; (n = search_ask(search, batch)) > 0; all.n_batches++) {
    cr_assert_leq(n, SEARCH_BATCH_MAX);
    for (size_t i = 0; i < n; i++) {
      GROW(all.configs, all.n, all.capacity);
      all.configs[all.n++] = batch[i];
    }
    for (size_t i = n; order && i-- > 1;) {
      size_t j = rng_below(&rng, i + 1);
      uint64_t other = batch[i];
      batch[i] = batch[j];
      batch[j] = other;
    }
    for (size_t i = 0; i < n; i++)
      search_tell(search, batch[i], ratio(space, batch[i]));
  }
  cr_assert_leq(all.n, options->trials);
  return all;
}

static int ordinals_compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void expect_distinct_and_holding(const struct space *space, struct asked_all *all) {
  qsort(all->configs, all->n, sizeof *all->configs, ordinals_compare);
  for (size_t i = 0; i < all->n; i++) {
    bool holds = false;
    struct error error;
    cr_expect(i == 0 || all->configs[i - 1] < all->configs[i], "%llu was asked for twice",
              (unsigned long long)all->configs[i]);
    cr_expect(space_is_valid(space, NULL, all->configs[i], &holds, &error) && holds);
  }
}

#define CONSTRAINED                                                                                \
  ", \"conditions\": [\"p0 >= p1 or p2 == 3\", \"(p0 + p1) * p2 <= 20\", \"p3 != p4\"]"

Test(search, names_are_read_as_they_are_written) {
  for (int i = 0; i < SEARCH_STRATEGY_COUNT; i++) {
    enum search_strategy strategy;
    cr_expect(search_strategy_parse(search_strategy_name((enum search_strategy)i), &strategy));
    cr_expect_eq(strategy, i);
  }
  enum search_strategy strategy;
  cr_expect_not(search_strategy_parse("annealing", &strategy));
  cr_expect_not(search_strategy_parse(NULL, &strategy));
}

Test(search, the_seed_decides_the_configs) {
  cleanup_space struct space *space = grid(5, 8, CONSTRAINED);
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 7, 300, 0, NULL, 0};
    cleanup_asked struct asked_all one = run(space, &options, noise, 0),
                                   again = run(space, &options, noise, 0);
    options.seed = 8;
    cleanup_asked struct asked_all other = run(space, &options, noise, 0);
    cr_assert_eq(one.n, 300);
    cr_assert_eq(again.n, 300);
    cr_assert_eq(other.n, 300);
    cr_expect_eq(memcmp(one.configs, again.configs, 300 * sizeof *one.configs), 0);
    cr_expect_neq(memcmp(one.configs, other.configs, 300 * sizeof *one.configs), 0);
  }
}

Test(search, does_not_depend_on_the_order_in_which_a_batch_is_told) {
  cleanup_space struct space *space = grid(5, 8, CONSTRAINED);
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 3, 400, 0, NULL, 0};
    cleanup_asked struct asked_all in_order = run(space, &options, noise, 0),
                                   shuffled = run(space, &options, noise, 5);
    cr_assert_eq(in_order.n, shuffled.n);
    cr_expect_eq(memcmp(in_order.configs, shuffled.configs, in_order.n * sizeof *in_order.configs),
                 0);
  }
}

Test(search, returns_valid_configs_and_none_twice) {
  cleanup_space struct space *space = grid(5, 8, CONSTRAINED);
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 11, 2000, 0, NULL, 0};
    cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
    cr_expect_eq(all.n, 2000);
    expect_distinct_and_holding(space, &all);
  }
}

Test(search, returns_every_valid_config_when_trials_allow) {
  static const char *const texts[] = {
      "{\"parameters\": {\"a\": [1, 2, 3, 4, 5, 6, 7], \"b\": [true, false], \"c\": [\"x\", \"y\", "
      "null]},"
      " \"conditions\": [\"a > 2 or b\", \"c != 'y' or a == 4\"], \"default\": {\"a\": 3, \"b\": "
      "true, \"c\": \"x\"}}",
      "{\"configs\": [{\"a\": 1, \"b\": \"u\"}, {\"a\": 4, \"b\": \"u\"}, {\"a\": 2, \"b\": "
      "\"v\"}, {\"a\": 2, \"b\": "
      "\"u\"}, {\"a\": 9, \"b\": null}]}",
      "{\"parameters\": {\"only\": [1]}}",
      "{\"parameters\": {\"a\": [1, 2], \"b\": [3, 4]}, \"conditions\": [\"1 < 2\"]}"};
  for (size_t t = 0; t < ARRAY_LENGTH(texts); t++) {
    cleanup_space struct space *space = space_of(texts[t]);
    uint64_t count;
    struct error error;
    cr_assert(space_count(space, NULL, 1000, 1000, &count, &error), "%s", error.message);
    for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
      struct search_options options = {(enum search_strategy)strategy, 1, 1000, 0, NULL, 0};
      cleanup_asked struct asked_all all = run(space, &options, noise, 0);
      cr_expect_eq(all.n, count, "%s of %s asked for %zu of %llu",
                   search_strategy_name(options.strategy), texts[t], all.n,
                   (unsigned long long)count);
      expect_distinct_and_holding(space, &all);
    }
  }
}

Test(search, stops_at_the_number_of_trials) {
  cleanup_space struct space *space = grid(4, 10, "");
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    for (uint64_t trials = 1; trials < 200; trials += 66) {
      struct search_options options = {(enum search_strategy)strategy, 1, trials, 0, NULL, 0};
      cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
      cr_expect_eq(all.n, trials);
    }
  }
}

Test(search, random_points_are_equally_likely) {
  /* 12 of 60 points hold; the first point of 6,000 searches. Chi-square with 11 degrees of
   * freedom: 31.3 at 0.1 %. */
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"a\": [0,1,2,3,4], \"b\": [0,1,2,3], \"c\": [0,1,2]}, "
               "\"conditions\": [\"a >= 2 + b\","
               " \"c != 1\"]}");
  double counts[60] = {0}, chi_square = 0, expected = 6000.0 / 12;
  for (uint64_t seed = 0; seed < 6000; seed++) {
    cleanup_search struct search *search =
        search_of(space, &(struct search_options){SEARCH_RANDOM, seed, 1, 0, NULL, 0});
    uint64_t batch[SEARCH_BATCH_MAX];
    cr_assert_eq(search_ask(search, batch), 1);
    counts[batch[0]]++;
  }
  size_t n = 0;
  for (size_t i = 0; i < 60; i++) {
    n += counts[i] > 0;
    if (counts[i] > 0)
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  cr_expect_eq(n, 12);
  cr_expect_lt(chi_square, 31.3);
}

Test(search, finds_points_where_one_in_a_million_of_10_to_the_12_holds) {
  cleanup_space struct space *space =
      grid(6, 100, ", \"conditions\": [\"p0 == p1\", \"p2 == p3\", \"p4 == p5\"]");
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 1, 500, 0, NULL, 0};
    cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
    cr_expect_eq(all.n, 500);
    expect_distinct_and_holding(space, &all);
  }
}

Test(search, finds_points_where_one_in_10_million_holds_and_asks_for_all_of_them) {
  /* The last condition cuts to 100 points what the others leave. */
  cleanup_space struct space *space =
      grid(9, 10,
           ", \"conditions\": [\"p8 == (p0 + p1) % 10\", \"p7 == p6\", \"p6 == p5\", "
           "\"p5 == p4\", \"p4 == p3\", \"p3 == p2\","
           " \"p2 == p1\"]");
  struct search_options options = {SEARCH_RANDOM, 1, 1000, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, noise, 0);
  cr_expect_eq(all.n, 100);
  expect_distinct_and_holding(space, &all);
}

Test(search, finds_points_of_a_condition_that_nothing_decides_early) {
  /* 495 of 9^8 points, one in 87,000, and every parameter is read. */
  cleanup_space struct space *space =
      grid(8, 9, ", \"conditions\": [\"p0 + p1 + p2 + p3 + p4 + p5 + p6 + p7 <= 4\"]");
  struct search_options options = {SEARCH_RANDOM, 1, 3, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, noise, 0);
  cr_expect_eq(all.n, 3);
  expect_distinct_and_holding(space, &all);
}

static void expect_refused(const char *text, const char *part) {
  cleanup_space struct space *space = space_of(text);
  struct search *search = NULL;
  struct error error = {0};
  cr_assert_not(search_new(space, NULL, &(struct search_options){SEARCH_RANDOM, 1, 10, 0, NULL, 0},
                           &search, &error));
  cr_expect(strstr(error.message, part), "%s: %s", text, error.message);
}

Test(search, refuses_a_space_in_which_nothing_holds) {
  expect_refused("{\"parameters\": {\"a\": [1, 2], \"b\": [3, 4]}, \"conditions\": [\"a > b\"]}",
                 "no config of the space is valid");
  expect_refused("{\"parameters\": {\"a\": [1, 2]}, \"conditions\": [\"2 < 1\"]}",
                 "no config of the space is valid");
}

Test(search, refuses_conditions_that_fail) {
  expect_refused(
      "{\"parameters\": {\"a\": [1, 2], \"b\": [0, 4]}, \"conditions\": [\"a // b >= 0\"]}",
      "condition 0, column 3");
  expect_refused("{\"parameters\": {\"a\": [1, 2]}, \"conditions\": [\"nothing > 1\"]}",
                 "condition 0");
}

Test(search, a_condition_may_guard_another_one) {
  cleanup_space struct space *space = space_of("{\"parameters\": {\"a\": [1, 2], \"b\": [0, 4]}, "
                                               "\"conditions\": [\"a // b >= 0\", \"b > 0\"]}");
  struct search_options options = {SEARCH_RANDOM, 1, 10, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, noise, 0);
  cr_expect_eq(all.n, 2);
}

Test(search, gives_up_on_a_space_in_which_it_finds_nothing) {
  struct search *search = NULL;
  struct error error = {0};
  cleanup_space struct space *space =
      grid(12, 10,
           ", \"conditions\": [\"p0 * p1 * p2 * p3 * p4 * p5 * p6 * p7 * p8 * "
           "p9 * p10 * p11 == 9 ** 12\"]");
  struct search_options options = {SEARCH_RANDOM, 1, 10, 0, NULL, 1000};
  cr_assert_not(search_new(space, NULL, &options, &search, &error));
  cr_expect(strstr(error.message, "no valid config was found among 1000 "), "%s", error.message);
  /* What is likely is asked for all the same. */
  options.n_likely = 1;
  options.likely = &(uint64_t){999999999999};
  cleanup_asked struct asked_all all = run(space, &options, noise, 0);
  cr_expect_eq(all.n, 1);
}

Test(search, likely_configs_come_first_unless_they_are_invalid) {
  cleanup_space struct space *space = grid(3, 6, ", \"conditions\": [\"p0 <= p1\"]");
  /* 36 is (1, 0, 0), which does not hold; 999 is no point. */
  static const uint64_t likely[] = {215, 36, 42, 215, 999, 7};
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 1,      20,
                                     ARRAY_LENGTH(likely),           likely, 0};
    cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
    cr_assert_eq(all.n, 20);
    cr_expect_eq(all.configs[0], 215);
    cr_expect_eq(all.configs[1], 42);
    cr_expect_eq(all.configs[2], 7);
    expect_distinct_and_holding(space, &all);
  }
}

Test(search, ignores_what_is_told_of_other_batches_and_takes_the_lesser_of_two) {
  cleanup_space struct space *space = grid(3, 9, "");
  struct search_options options = {SEARCH_DESCENT, 1, 100, 0, NULL, 0};
  cleanup_search struct search *one = search_of(space, &options),
                               *other = search_of(space, &options);
  uint64_t batch[SEARCH_BATCH_MAX], other_batch[SEARCH_BATCH_MAX], first = 0;
  size_t n;
  while ((n = search_ask(one, batch)) > 0) {
    cr_assert_eq(search_ask(other, other_batch), n);
    cr_assert_eq(memcmp(batch, other_batch, n * sizeof *batch), 0);
    for (size_t i = 0; i < n; i++) {
      search_tell(one, batch[i], bowl(space, batch[i]));
      search_tell(other, batch[i], bowl(space, batch[i]));
      search_tell(other, batch[i], 99);
      search_tell(other, batch[i], NAN);
      search_tell(other, batch[i], -1);
    }
    if (first)
      search_tell(other, first, 0.001);
    first = batch[0];
  }
}

static double bowl_of_list(const struct space *space, uint64_t config) {
  struct value values[SPACE_PARAMETERS_MAX];
  cr_assert(space_config(space, config, values));
  return 1 + pow((double)values[0].integer - 40, 2) + pow((double)values[1].integer - 3, 2);
}

/* How many trials a search makes until it was told the least ratio there is. */
static size_t trials_until(const struct space *space, const struct search_options *options,
                           landscape *ratio, double least, size_t *ret_batches) {
  cleanup_search struct search *search = search_of(space, options);
  uint64_t batch[SEARCH_BATCH_MAX];
  size_t trials = 0;
  *ret_batches = 0;
  for (size_t n; (n = search_ask(search, batch)) > 0;) {
    ++*ret_batches;
    for (size_t i = 0; i < n; i++) {
      trials++;
      double told = ratio(space, batch[i]);
      if (told <= least)
        return trials;
      search_tell(search, batch[i], told);
    }
  }
  return SIZE_MAX;
}

Test(search, descent_finds_the_optimum_of_a_separable_convex_landscape) {
  /* Each parameter moves one value in a batch at least until it is at its best; a batch has two
   * configs at most. */
  cleanup_space struct space *space = grid(6, 12, "");
  for (uint64_t seed = 0; seed < 20; seed++) {
    size_t batches,
        trials =
            trials_until(space, &(struct search_options){SEARCH_DESCENT, seed, 5000, 0, NULL, 0},
                         bowl, 1, &batches);
    cr_expect_leq(batches, 6 * 12);
    cr_expect_leq(trials, 2 * 6 * 12);
  }
}

Test(search, descent_begins_at_the_default_and_goes_on_at_the_best_that_is_likely) {
  cleanup_space struct space *space =
      grid(3, 9, ", \"default\": {\"p0\": 4, \"p1\": 4, \"p2\": 4}");
  struct search_options options = {SEARCH_DESCENT, 1, 20, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
  cr_expect_eq(all.configs[0], space->default_ordinal);
  cr_expect_eq(all.configs[1], space->default_ordinal + 81);
  cr_expect_eq(all.configs[2], space->default_ordinal - 81);
  options.n_likely = 2;
  options.likely = (const uint64_t[]){0, (2 * 9 + 5) * 9 + 7};
  cleanup_asked struct asked_all likely = run(space, &options, bowl, 0);
  cr_expect_eq(likely.configs[2], space->default_ordinal);
  cr_expect_eq(likely.configs[3], options.likely[1] + 81);
}

Test(search, descent_steps_over_values_that_conditions_exclude) {
  cleanup_space struct space *space =
      grid(2, 40, ", \"conditions\": [\"p0 % 7 == 0\"], \"default\": {\"p0\": 14, \"p1\": 5}");
  struct search_options options = {SEARCH_DESCENT, 1, 3, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, bowl, 0);
  cr_expect_eq(all.configs[1], 21 * 40 + 5);
  cr_expect_eq(all.configs[2], 7 * 40 + 5);
}

Test(search, descent_tries_few_values_whole) {
  cleanup_space struct space *space =
      space_of("{\"parameters\": {\"layout\": [\"row\", \"column\", \"tile\"]}, "
               "\"default\": {\"layout\": \"row\"}}");
  struct search_options options = {SEARCH_DESCENT, 1, 10, 0, NULL, 0};
  cleanup_asked struct asked_all all = run(space, &options, noise, 0);
  cr_assert_eq(all.n, 3);
  cr_expect_eq(all.n_batches, 2);
}

Test(search, descent_starts_anew_where_its_first_point_fails) {
  cleanup_space struct space *space = grid(2, 5, ", \"default\": {\"p0\": 0, \"p1\": 0}");
  cleanup_search struct search *search =
      search_of(space, &(struct search_options){SEARCH_DESCENT, 1, 100, 0, NULL, 0});
  uint64_t batch[SEARCH_BATCH_MAX];
  cr_assert_eq(search_ask(search, batch), 1);
  search_tell(search, batch[0], INFINITY);
  cr_assert_eq(search_ask(search, batch), 1);
  search_tell(search, batch[0], 1.0);
  cr_expect_gt(search_ask(search, batch), 1);
}

Test(search, descent_walks_the_values_of_a_list_in_their_own_order) {
  /* Rows in any order; 40 and 3 are the best values, five steps from the default. */
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  fputs("{\"configs\": [", out);
  for (int i = 0; i < 60; i++)
    fprintf(out, "%s{\"a\": %d, \"b\": %d}", i ? ", " : "", 10 * (i * 7 % 10), i * 7 % 60 / 10);
  fputs("], \"default\": {\"a\": 10, \"b\": 1}}", out);
  fclose(out);
  cleanup_space struct space *space = space_of(text);
  free(text);
  size_t batches,
      trials = trials_until(space, &(struct search_options){SEARCH_DESCENT, 1, 60, 0, NULL, 0},
                            bowl_of_list, 1, &batches);
  cr_expect_leq(trials, 1 + 2 * 5);
}

static double mean_found(const struct space *space, enum search_strategy strategy, landscape *ratio,
                         uint64_t trials) {
  double sum = 0;
  for (uint64_t seed = 0; seed < 50; seed++) {
    struct search_options options = {strategy, seed, trials, 0, NULL, 0};
    cleanup_asked struct asked_all all = run(space, &options, ratio, 0);
    double least = INFINITY;
    for (size_t i = 0; i < all.n; i++)
      least = fmin(least, ratio(space, all.configs[i]));
    sum += least;
  }
  return sum / 50;
}

Test(search, evolution_beats_random_on_a_smooth_landscape) {
  cleanup_space struct space *space = grid(6, 10, ", \"conditions\": [\"p0 + p1 <= 14\"]");
  double random = mean_found(space, SEARCH_RANDOM, bowl, 300);
  double evolution = mean_found(space, SEARCH_EVOLUTION, bowl, 300);
  cr_expect_lt(evolution - 1, 0.5 * (random - 1), "evolution %g, random %g", evolution, random);
}

static double failing(const struct space *space, uint64_t config) {
  (void)space, (void)config;
  return INFINITY;
}

Test(search, goes_on_where_everything_fails) {
  cleanup_space struct space *space = grid(3, 8, "");
  for (int strategy = 0; strategy < SEARCH_STRATEGY_COUNT; strategy++) {
    struct search_options options = {(enum search_strategy)strategy, 1, 1000, 0, NULL, 0};
    cleanup_asked struct asked_all all = run(space, &options, failing, 0);
    cr_expect_eq(all.n, 512);
  }
}
