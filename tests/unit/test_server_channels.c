/* Entity tags of channels, and what a PUT decides. */
#include <criterion/criterion.h>

#include "server/core/channels.h"

static struct channel_state state_at(int64_t counter, const char *release) {
  return (struct channel_state){counter, digest_of(release, strlen(release))};
}

static enum channel_decision decide(const struct channel_state *state, const char *wanted, const char *if_match,
                                    const char *if_none_match) {
  struct digest digest = digest_of(wanted, strlen(wanted));
  return channel_decide(state, &digest, if_match, if_none_match);
}

Test(channel, etag_is_the_counter_and_the_digest_of_the_release) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = state_at(4, "");
  cr_assert_str_eq(channel_etag(&state, etag), "4-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

Test(channel, etag_of_the_largest_counter_fits) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = state_at(INT64_MAX, "");
  cr_assert_eq(strlen(channel_etag(&state, etag)), 19 + 1 + 64);
}

Test(channel, etag_differs_when_an_older_release_comes_back) {
  char before[CHANNEL_ETAG_SIZE], after[CHANNEL_ETAG_SIZE];
  struct channel_state first = state_at(1, "a"), again = state_at(3, "a");
  cr_assert_str_neq(channel_etag(&first, before), channel_etag(&again, after));
}

Test(precondition, may_be_absent_a_tag_a_list_or_a_star) {
  struct error error;
  cr_assert(channel_precondition_check(NULL, NULL, &error));
  cr_assert(channel_precondition_check("\"1-ab\"", NULL, &error));
  cr_assert(channel_precondition_check("\"1-ab\" , W/\"2-cd\"", NULL, &error));
  cr_assert(channel_precondition_check("*", NULL, &error));
  cr_assert(channel_precondition_check(NULL, "*", &error));
}

Test(precondition, that_cannot_be_understood_is_refused_rather_than_ignored) {
  struct error error;
  cr_assert_not(channel_precondition_check("1-ab", NULL, &error));
  cr_assert_not(channel_precondition_check("\"1-ab", NULL, &error));
  cr_assert_not(channel_precondition_check("\"1-ab\" \"2-cd\"", NULL, &error));
  cr_assert_not(channel_precondition_check("", NULL, &error));
  cr_assert_str_eq(error.message, "If-Match takes * or the quoted ETag of the entry, not ");
}

Test(precondition, if_none_match_takes_only_a_star) {
  struct error error;
  cr_assert_not(channel_precondition_check(NULL, "\"1-ab\"", &error));
}

Test(precondition, both_headers_together_are_refused) {
  struct error error;
  cr_assert_not(channel_precondition_check("*", "*", &error));
}

Test(decision, without_a_precondition_a_new_and_an_old_channel_move) {
  struct channel_state none = {0}, old = state_at(3, "a");
  cr_assert_eq(decide(&none, "b", NULL, NULL), CHANNEL_MOVE);
  cr_assert_eq(decide(&old, "b", NULL, NULL), CHANNEL_MOVE);
}

Test(decision, a_channel_that_points_there_already_is_kept_whatever_the_precondition) {
  struct channel_state state = state_at(3, "a");
  cr_assert_eq(decide(&state, "a", NULL, NULL), CHANNEL_KEEP);
  cr_assert_eq(decide(&state, "a", "\"2-00\"", NULL), CHANNEL_KEEP);
  cr_assert_eq(decide(&state, "a", NULL, "*"), CHANNEL_KEEP);
}

Test(decision, if_match_moves_from_that_state_only) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state seen = state_at(3, "a"), moved = state_at(4, "c");
  cleanup_free char *list = xasprintf("\"9-00\", \"%s\"", channel_etag(&seen, etag));
  cr_assert_eq(decide(&seen, "b", list, NULL), CHANNEL_MOVE);
  cr_assert_eq(decide(&moved, "b", list, NULL), CHANNEL_REFUSE);
}

Test(decision, if_match_with_the_same_release_at_another_counter_is_refused) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state seen = state_at(1, "a"), rolled_back = state_at(3, "a");
  cleanup_free char *list = xasprintf("\"%s\"", channel_etag(&seen, etag));
  cr_assert_eq(decide(&rolled_back, "b", list, NULL), CHANNEL_REFUSE);
}

Test(decision, a_weak_tag_never_matches) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state seen = state_at(3, "a");
  cleanup_free char *list = xasprintf("W/\"%s\"", channel_etag(&seen, etag));
  cr_assert_eq(decide(&seen, "b", list, NULL), CHANNEL_REFUSE);
}

Test(decision, if_match_never_makes_a_channel) {
  struct channel_state none = {0};
  cr_assert_eq(decide(&none, "b", "*", NULL), CHANNEL_REFUSE);
  cr_assert_eq(decide(&none, "b", "\"0-00\"", NULL), CHANNEL_REFUSE);
}

Test(decision, if_match_star_moves_any_channel_there_is) {
  struct channel_state state = state_at(3, "a");
  cr_assert_eq(decide(&state, "b", "*", NULL), CHANNEL_MOVE);
}

Test(decision, if_none_match_star_only_makes_a_channel) {
  struct channel_state none = {0}, state = state_at(3, "a");
  cr_assert_eq(decide(&none, "b", NULL, "*"), CHANNEL_MOVE);
  cr_assert_eq(decide(&state, "b", NULL, "*"), CHANNEL_REFUSE);
}
