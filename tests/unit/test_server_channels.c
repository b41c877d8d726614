/* Entity tags of channels, and how moves and signatures are decided. */
#include <criterion/criterion.h>

#include "server/channel/channels.h"

static struct channel_state state_at(int64_t counter, const char *release) {
  return (struct channel_state){.counter = counter, .release = digest_of(release, strlen(release))};
}

static struct channel_entry entry_of(const struct channel_state *state) {
  return (struct channel_entry){.counter = state->counter, .release = state->release};
}

static enum channel_decision decide(const struct channel_state *state, const char *wanted,
                                    const char *if_match, const char *if_none_match) {
  struct channel_entry entry = entry_of(state);
  struct channel_move move = {.release = digest_of(wanted, strlen(wanted))};
  return channel_decide(state, &entry, &move, if_match, if_none_match);
}

Test(channel, etag_is_the_counter_the_signings_and_the_digest_of_the_release) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = state_at(4, "");
  cr_assert_str_eq(channel_etag(&state, etag),
                   "4.0-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

Test(channel, etag_of_the_largest_counter_fits) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = state_at(INT64_MAX, "");
  state.signings = INT64_MAX;
  cr_assert_eq(strlen(channel_etag(&state, etag)), 19 + 1 + 19 + 1 + 64);
}

Test(channel, etag_differs_when_an_older_release_comes_back) {
  char before[CHANNEL_ETAG_SIZE], after[CHANNEL_ETAG_SIZE];
  struct channel_state first = state_at(1, "a"), again = state_at(3, "a");
  cr_assert_str_neq(channel_etag(&first, before), channel_etag(&again, after));
}

Test(channel, etag_differs_when_a_signature_was_added) {
  char before[CHANNEL_ETAG_SIZE], after[CHANNEL_ETAG_SIZE];
  struct channel_state state = state_at(1, "a");
  channel_etag(&state, before);
  state.signings++;
  cr_assert_str_neq(channel_etag(&state, after), before);
}

Test(precondition, may_be_absent_a_tag_a_list_or_a_star) {
  struct error error;
  cr_assert(channel_precondition_check(NULL, NULL, &error));
  cr_assert(channel_precondition_check("\"1-ab\"", NULL, &error));
  cr_assert(channel_precondition_check("\"1-ab\" , W/\"2-cd\"", NULL, &error));
  cr_assert(channel_precondition_check("*", NULL, &error));
  cr_assert(channel_precondition_check(NULL, "*", &error));
}

Test(precondition, malformed_ones_are_refused_rather_than_ignored) {
  struct error error;
  cr_assert_not(channel_precondition_check("1-ab", NULL, &error));
  cr_assert_not(channel_precondition_check("\"1-ab", NULL, &error));
  cr_assert_not(channel_precondition_check("\"1-ab\" \"2-cd\"", NULL, &error));
  cr_assert_not(channel_precondition_check("", NULL, &error));
  cr_assert_str_eq(error.message, "If-Match must be * or the quoted ETag of the entry, not ");
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

Test(decision, a_channel_with_that_release_already_is_kept_whatever_the_precondition) {
  struct channel_state state = state_at(3, "a");
  cr_assert_eq(decide(&state, "a", NULL, NULL), CHANNEL_KEEP);
  cr_assert_eq(decide(&state, "a", "\"2-00\"", NULL), CHANNEL_KEEP);
  cr_assert_eq(decide(&state, "a", NULL, "*"), CHANNEL_KEEP);
}

Test(decision, if_match_moves_only_from_that_state) {
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

Test(decision, if_match_star_moves_any_existing_channel) {
  struct channel_state state = state_at(3, "a");
  cr_assert_eq(decide(&state, "b", "*", NULL), CHANNEL_MOVE);
}

Test(decision, if_none_match_star_only_makes_a_channel) {
  struct channel_state none = {0}, state = state_at(3, "a");
  cr_assert_eq(decide(&none, "b", NULL, "*"), CHANNEL_MOVE);
  cr_assert_eq(decide(&state, "b", NULL, "*"), CHANNEL_REFUSE);
}

#define RELEASE "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ZEROES                                                                                     \
  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="
#define SIGNATURE "{\"key\":\"" RELEASE "\",\"signature\":\"" ZEROES "\"}"

static struct channel_move move_of(const char *text) {
  struct error error;
  struct channel_move move = {0};
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && channel_move_parse(json, &move, &error), "%s: %s", text, error.message);
  return move;
}

static void expect_move_refused(const char *text, const char *pointer) {
  struct error error;
  struct channel_move move;
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && !channel_move_parse(json, &move, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer, "%s", error.pointer);
}

Test(move, reads_a_counter_an_expiry_and_signatures) {
  struct channel_move move =
      move_of("{\"release\":\"" RELEASE "\",\"counter\":7,\"expires\":\"2026-12-24T00:00:00Z\","
              "\"signatures\":[" SIGNATURE "]}");
  cr_expect_eq(move.counter, 7);
  cr_expect_eq(move.expires_s, 1798070400);
  cr_expect_eq(move.signatures.n, (size_t)1);
  cr_expect_str_eq(move.signatures.all[0].text, ZEROES);
}

Test(move, absent_members_stay_zero) {
  struct channel_move move = move_of("{\"release\":\"" RELEASE "\"}");
  cr_expect(move.counter == 0 && move.expires_s == 0 && move.signatures.n == 0);
}

Test(move, with_signatures_needs_the_counter_that_they_cover) {
  expect_move_refused("{\"release\":\"" RELEASE "\",\"signatures\":[" SIGNATURE "]}", "/counter");
}

Test(move, refuses_unknown_and_wrong_members) {
  expect_move_refused("{}", "/release");
  expect_move_refused("{\"release\":\"" RELEASE "\",\"expire\":\"2026-12-24T00:00:00Z\"}",
                      "/expire");
  expect_move_refused("{\"release\":\"" RELEASE "\",\"counter\":0}", "/counter");
  expect_move_refused("{\"release\":\"" RELEASE "\",\"expires\":\"7d\"}", "/expires");
  expect_move_refused("{\"release\":\"" RELEASE "\",\"counter\":1,\"signatures\":[{}]}",
                      "/signatures/0/key");
}

static enum channel_decision decide_move(const struct channel_state *state,
                                         const struct channel_entry *entry,
                                         const struct channel_move *move) {
  return channel_decide(state, entry, move, NULL, NULL);
}

Test(decision, a_counter_that_is_not_the_next_one_is_refused) {
  struct channel_state none = {0}, state = state_at(3, "a");
  struct channel_entry entry = entry_of(&state);
  struct channel_move move = {.release = digest_of("b", 1), .counter = 4};
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_MOVE);
  cr_expect_eq(decide_move(&none, &entry, &move), CHANNEL_REFUSE);
  move.counter = 3;
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_REFUSE);
  move.counter = 1;
  cr_expect_eq(decide_move(&none, &entry, &move), CHANNEL_MOVE);
}

Test(decision, the_next_counter_moves_to_the_same_release_again) {
  struct channel_state state = state_at(3, "a");
  struct channel_entry entry = entry_of(&state);
  struct channel_move move = {.release = state.release, .counter = 4};
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_MOVE);
}

Test(decision, another_expiry_of_the_same_release_is_a_move) {
  struct channel_state state = state_at(3, "a");
  struct channel_entry entry = entry_of(&state);
  struct channel_move move = {.release = state.release, .expires_s = 1000};
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_MOVE);
  entry.expires_s = 1000;
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_KEEP);
}

Test(decision, a_repeated_signed_move_is_kept_and_one_with_other_signatures_is_refused) {
  struct channel_move move =
      move_of("{\"release\":\"" RELEASE "\",\"counter\":3,\"signatures\":[" SIGNATURE "]}");
  struct channel_state state = {.counter = 3, .release = move.release};
  struct channel_entry entry = entry_of(&state);
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_REFUSE);
  entry.signatures.n = 2;
  entry.signatures.all[1] = move.signatures.all[0];
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_KEEP);
  entry.signatures.all[1].text[0] = 'B';
  cr_expect_eq(decide_move(&state, &entry, &move), CHANNEL_REFUSE);
}

static struct channel_signing signing_of(const char *text) {
  struct error error;
  struct channel_signing signing = {0};
  cleanup_json json_t *json = json_loads(text, 0, NULL);
  cr_assert(json && channel_signing_parse(json, &signing, &error), "%s: %s", text, error.message);
  return signing;
}

Test(signing, reads_which_entry_is_signed) {
  cleanup_channel_signing struct channel_signing signing = signing_of(
      "{\"environment\":{\"rocm\":\"6.4\"},\"tag\":\"t\",\"counter\":3,\"signature\":" SIGNATURE
      "}");
  cr_expect_str_eq(signing.environment.rocm, "6.4");
  cr_expect_str_eq(signing.tag, "t");
  cr_expect_eq(signing.counter, 3);
}

Test(signing, refuses_missing_and_wrong_members) {
  static const struct {
    const char *text, *pointer;
  } cases[] = {
      {"{\"counter\":3,\"signature\":" SIGNATURE "}", "/environment"},
      {"{\"environment\":{},\"signature\":" SIGNATURE "}", "/counter"},
      {"{\"environment\":{},\"counter\":3}", "/signature"},
      {"{\"environment\":{},\"counter\":3,\"signature\":{\"key\":\"" RELEASE
       "\",\"signature\":\"A\"}}",
       "/signature/signature"},
      {"{\"environment\":{\"x\":1},\"counter\":3,\"signature\":" SIGNATURE "}", "/environment/x"},
      {"{\"environment\":{},\"counter\":3,\"x\":1,\"signature\":" SIGNATURE "}", "/x"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct error error;
    struct channel_signing signing;
    cleanup_json json_t *json = json_loads(cases[i].text, 0, NULL);
    cr_assert(json && !channel_signing_parse(json, &signing, &error), "%s", cases[i].text);
    cr_expect_str_eq(error.pointer, cases[i].pointer, "%s", error.pointer);
  }
}

Test(signing, is_added_kept_replaced_or_refused_when_the_entry_is_full) {
  cleanup_channel_signing struct channel_signing signing =
      signing_of("{\"environment\":{},\"counter\":3,\"signature\":" SIGNATURE "}");
  struct channel_entry entry = {.counter = 3};
  cr_expect_eq(channel_signing_decide(&entry, &signing), SIGNING_ADD);
  entry.signatures.n = CHANNEL_SIGNATURES_MAX;
  cr_expect_eq(channel_signing_decide(&entry, &signing), SIGNING_FULL);
  entry.signatures.all[2] = signing.signature;
  cr_expect_eq(channel_signing_decide(&entry, &signing), SIGNING_KEEP);
  entry.signatures.all[2].text[0] = 'B';
  cr_expect_eq(channel_signing_decide(&entry, &signing), SIGNING_ADD);
  entry.counter = 4;
  cr_expect_eq(channel_signing_decide(&entry, &signing), SIGNING_STALE);
}
