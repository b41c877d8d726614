/* Which configs are likely to win: what won elsewhere, nearest first. */
#include <criterion/criterion.h>

#include "server/job/likely.h"

TestSuite(likely);

static const struct digest here = {{1}}, elsewhere = {{2}};

static json_t *json_of(const char *text) {
  json_t *json;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

static struct past_winner winner_of(const char *key, const char *values, const struct digest *environment) {
  json_t *json = json_of(key);
  char *text = json_canonical(json);
  struct past_winner winner = {digest_of(text, strlen(text)), *environment, json, json_of(values)};
  free(text);
  return winner;
}

/* The likely configs of {"A": [1, 2, 4, 8]} at key {"M": 64}, as text. */
static char *likely_of(struct past_winner *winners, size_t n) {
  cleanup_json json_t *space_json = json_of("{\"parameters\": {\"A\": [1, 2, 4, 8]}}");
  cleanup_space struct space *space = NULL;
  struct error error;
  cr_assert(space_parse(space_json, &space, &error));
  struct past_winner mine = winner_of("{\"M\": 64}", "{}", &here);
  uint64_t likely[LIKELY_MAX];
  size_t n_likely = likely_choose(space, mine.key, &mine.key_digest, &here, winners, n, likely);
  json_t *found = json_array();
  for (size_t i = 0; i < n_likely; i++)
    json_array_append_new(found, json_integer((json_int_t)likely[i]));
  char *text = json_canonical(found);
  json_decref(found);
  json_decref(mine.key);
  json_decref(mine.config_values);
  for (size_t i = 0; i < n; i++) {
    json_decref(winners[i].key);
    json_decref(winners[i].config_values);
  }
  return text;
}

Test(likely, the_nearest_key_comes_first) {
  struct past_winner winners[] = {winner_of("{\"M\": 4096}", "{\"A\": 8}", &here),
                                  winner_of("{\"M\": 128}", "{\"A\": 1}", &here),
                                  winner_of("{\"M\": 16}", "{\"A\": 4}", &here)};
  cleanup_free char *likely = likely_of(winners, ARRAY_LENGTH(winners));
  cr_expect_str_eq(likely, "[0,2,3]");
}

Test(likely, another_environment_says_something_of_the_same_key_only_and_comes_last) {
  struct past_winner winners[] = {winner_of("{\"M\": 64}", "{\"A\": 8}", &elsewhere),
                                  winner_of("{\"M\": 32}", "{\"A\": 4}", &elsewhere),
                                  winner_of("{\"M\": 4096}", "{\"A\": 2}", &here)};
  cleanup_free char *likely = likely_of(winners, ARRAY_LENGTH(winners));
  cr_expect_str_eq(likely, "[1,3]");
}

Test(likely, a_config_is_named_once_and_one_that_is_no_point_is_left_out) {
  struct past_winner winners[] = {
      winner_of("{\"M\": 64}", "{\"A\": 16}", &here), winner_of("{\"M\": 32}", "{\"A\": 2}", &here),
      winner_of("{\"M\": 16}", "{\"A\": 2}", &here), winner_of("{\"M\": 64}", "{\"B\": 2}", &here)};
  cleanup_free char *likely = likely_of(winners, ARRAY_LENGTH(winners));
  cr_expect_str_eq(likely, "[1]");
}

static double distance_of(const char *left, const char *right) {
  cleanup_json json_t *a = json_of(left), *b = json_of(right);
  return key_distance(a, b);
}

Test(likely, keys_are_apart_by_their_logarithms_and_by_what_is_no_number) {
  cr_expect_float_eq(distance_of("{\"M\": 64, \"N\": 64}", "{\"M\": 16, \"N\": 128}"), 3, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 64, \"t\": \"fp16\"}", "{\"M\": 64, \"t\": \"fp32\"}"), KEY_DIFFERS, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 0, \"t\": true}", "{\"M\": 0, \"t\": true}"), 0, 1e-12);
  cr_expect_float_eq(distance_of("{\"M\": 0}", "{\"M\": 8}"), KEY_DIFFERS, 1e-12);
}
