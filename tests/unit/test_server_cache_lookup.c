/* Finding the environment that stated members mean, or the nearest one. */
#include <criterion/criterion.h>

#include "server/cache/cache_rules.h"

#define MI300X                                                                                     \
  "\"gpu\": \"AMD Instinct MI300X\", \"arch\": \"gfx942\", \"compute_units\": 304, "               \
  "\"partition\": \"SPX/NPS1\""
static const char *const spx = "{\"rocm\": \"6.4.1\", " MI300X "}";
static const char *const spx_triton = "{\"rocm\": \"6.4.1\", \"triton\": \"3.3.1\", " MI300X "}";
static const char *const older = "{\"rocm\": \"6.3.0\", " MI300X "}";
static const char *const cpx =
    "{\"rocm\": \"6.4.1\", \"gpu\": \"AMD Instinct MI300X\", \"arch\": \"gfx942\","
    " \"compute_units\": 38, \"partition\": \"CPX/NPS4\"}";

static struct environment environment_of(const char *text) {
  struct error error;
  struct environment environment;
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error));
  cr_assert(environment_parse(json, &environment, &error), "%s", error.message);
  return environment;
}

/* Environments by their texts, freed with the fixture. */
struct there {
  size_t n;
  struct environment all[4];
  const struct environment *pointers[4];
};
static void there_release(struct there *there) {
  for (size_t i = 0; i < there->n; i++)
    environment_release(&there->all[i]);
}
#define cleanup_there __attribute__((cleanup(there_release)))
static void there_add(struct there *there, const char *text) {
  there->all[there->n] = environment_of(text);
  there->pointers[there->n] = &there->all[there->n];
  there->n++;
}

static enum cache_match lookup(const char *asked, const struct there *there, size_t *ret_index) {
  cleanup_environment struct environment environment = environment_of(asked);
  return cache_lookup(&environment, there->pointers, there->n, ret_index);
}

Test(cache_lookup, no_rows_match_nothing) {
  size_t index;
  struct there there = {0};
  cr_assert_eq(lookup(spx, &there, &index), CACHE_MATCH_NONE);
}

Test(cache_lookup, members_that_only_one_row_has_identify_it) {
  size_t index = 9;
  cleanup_there struct there there = {0};
  there_add(&there, spx);
  there_add(&there, cpx);
  cr_assert_eq(lookup("{\"compute_units\": 38}", &there, &index), CACHE_MATCH_ONE);
  cr_assert_eq(index, 1);
}

Test(cache_lookup, members_that_two_rows_have_identify_neither) {
  size_t index;
  cleanup_there struct there there = {0};
  there_add(&there, spx);
  there_add(&there, cpx);
  cr_assert_eq(lookup("{\"gpu\": \"AMD Instinct MI300X\"}", &there, &index), CACHE_MATCH_SEVERAL);
}

Test(cache_lookup, a_row_equal_to_the_stated_members_precedes_rows_that_state_more) {
  size_t index = 9;
  cleanup_there struct there there = {0};
  there_add(&there, spx_triton);
  there_add(&there, spx);
  cr_assert_eq(lookup(spx, &there, &index), CACHE_MATCH_ONE);
  cr_assert_eq(index, 1);
}

Test(cache_lookup, a_member_that_no_row_states_matches_nothing) {
  size_t index;
  cleanup_there struct there there = {0};
  there_add(&there, spx);
  cr_assert_eq(lookup("{\"rocm\": \"6.4.1\", \"torch\": \"2.7.1\"}", &there, &index),
               CACHE_MATCH_NONE);
}

Test(cache_lookup, a_query_without_members_means_the_only_row) {
  size_t index = 9;
  cleanup_there struct there there = {0};
  there_add(&there, cpx);
  cr_assert_eq(lookup("{}", &there, &index), CACHE_MATCH_ONE);
  cr_assert_eq(index, 0);
}

Test(cache_lookup, fitting_lists_exactly_the_rows_that_fit) {
  cleanup_there struct there there = {0};
  there_add(&there, spx);
  there_add(&there, older);
  there_add(&there, cpx);
  cleanup_environment struct environment asked = environment_of("{\"rocm\": \"6.4.1\"}");
  cleanup_json json_t *fitting = cache_fitting(&asked, there.pointers, there.n);
  cr_assert_eq(json_array_size(fitting), 2);
  cr_assert_eq(json_integer_value(json_object_get(json_array_get(fitting, 1), "compute_units")),
               38);
}

Test(cache_nearest, is_null_without_rows) {
  char *sentence;
  cleanup_environment struct environment asked = environment_of(spx);
  cleanup_json json_t *nearest = cache_nearest(&asked, NULL, 0, &sentence);
  cr_assert(json_is_null(nearest));
  cr_assert_null(sentence);
}

Test(cache_nearest, is_the_row_with_the_fewest_differences_and_names_them) {
  cleanup_free char *sentence = NULL;
  cleanup_there struct there there = {0};
  there_add(&there, cpx);
  there_add(&there, older);
  cleanup_environment struct environment asked = environment_of(spx);
  cleanup_json json_t *nearest = cache_nearest(&asked, there.pointers, there.n, &sentence);
  cleanup_json json_t *expected =
      json_pack("{s:{s:s, s:s}}", "rocm", "asked", "6.4.1", "there", "6.3.0");
  cr_assert(json_equal(json_object_get(nearest, "differences"), expected));
  cr_assert(strstr(sentence, "which differs in rocm (asked 6.4.1, there 6.3.0)"), "%s", sentence);
}

Test(cache_nearest, of_rows_with_as_many_differences_prefers_the_same_hardware) {
  cleanup_free char *sentence = NULL;
  cleanup_there struct there there = {0};
  there_add(&there, older);
  there_add(&there, spx);
  cleanup_environment struct environment asked =
      environment_of("{\"rocm\": \"6.3.0\", \"torch\": \"2.7.1\", \"compute_units\": 304}");
  /* the first differs in torch, the second in rocm and torch */
  cleanup_json json_t *nearest = cache_nearest(&asked, there.pointers, there.n, &sentence);
  cr_assert_eq(json_object_size(json_object_get(nearest, "differences")), 1);
  cleanup_environment struct environment other =
      environment_of("{\"rocm\": \"6.4.1\", \"triton\": \"3.3.1\"}");
  cleanup_there struct there two = {0};
  there_add(&two, "{\"rocm\": \"6.3.0\", \"triton\": \"3.3.1\"}");
  there_add(&two, "{\"rocm\": \"6.4.1\", \"triton\": \"3.0.0\"}");
  cleanup_free char *second = NULL;
  cleanup_json json_t *same_hardware = cache_nearest(&other, two.pointers, two.n, &second);
  cr_assert(json_object_get(json_object_get(same_hardware, "differences"), "triton"), "%s", second);
}

Test(cache_nearest, names_members_that_the_row_does_not_state_and_quotes_an_empty_text) {
  cleanup_free char *sentence = NULL;
  cleanup_there struct there there = {0};
  there_add(&there, "{\"cpu\": \"gcc 12.2.0\", \"partition\": \"\"}");
  cleanup_environment struct environment asked =
      environment_of("{\"cpu\": \"gcc 12.2.0\", \"partition\": \"a\", \"compute_units\": 4}");
  cleanup_json json_t *nearest = cache_nearest(&asked, there.pointers, there.n, &sentence);
  cr_assert(json_is_object(nearest));
  cr_assert(strstr(sentence, "partition (asked a, there \"\")"), "%s", sentence);
  cr_assert(strstr(sentence, "compute_units (asked 4, there nothing)"), "%s", sentence);
}

/* A query of name and value pairs. */
static const char *pair_get(const void *context, const char *name) {
  for (const char *const *pair = context; pair[0]; pair += 2)
    if (strcmp(pair[0], name) == 0)
      return pair[1];
  return NULL;
}

Test(environment_from_texts, reads_the_stated_members) {
  struct error error;
  cleanup_environment struct environment environment = {0};
  const char *const query[] = {"cpu", "gcc 12.2.0", "partition", "", "compute_units", "8", NULL};
  cr_assert(environment_from_texts(pair_get, query, &environment, &error));
  cr_assert_str_eq(environment.cpu, "gcc 12.2.0");
  cr_assert_str_eq(environment.partition, "");
  cr_assert_eq(environment.compute_units, 8);
  cr_assert_null(environment.gpu);
}

Test(environment_from_texts, refuses_compute_units_that_are_not_a_number) {
  struct error error;
  struct environment environment;
  const char *const wrong[] = {"", "-1", "4x", "99999999999999999999", "0", NULL};
  for (size_t i = 0; wrong[i]; i++) {
    const char *const query[] = {"compute_units", wrong[i], NULL};
    cr_assert_not(environment_from_texts(pair_get, query, &environment, &error), "%s", wrong[i]);
  }
}

Test(environment_from_texts, refuses_two_platforms) {
  struct error error;
  struct environment environment;
  const char *const query[] = {"cpu", "gcc", "rocm", "6.4.1", NULL};
  cr_assert_not(environment_from_texts(pair_get, query, &environment, &error));
}
