/* Heartbeats in memory. */
#include <criterion/criterion.h>

#include "server/agent/agents.h"

TestSuite(agents);

#define A "0123456789abcdef0123456789abcdef"
#define B "fedcba9876543210fedcba9876543210"

static struct agent_table *table;
static void setup(void) { table = agent_table_new(); }
static void teardown(void) { agent_table_free(table); }
static bool draining;

static enum agent_beat beat(const char *id, const char *boot, int64_t now_ms) {
  return agent_table_beat(table, id, boot, NULL, now_ms, &draining);
}

Test(agents, an_enrolled_agent_beats, .init = setup, .fini = teardown) {
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  cr_expect_eq(beat(A, "b1", 1), AGENT_BEATS);
  cr_expect_not(draining);
}

Test(agents, an_agent_belongs_to_the_token_it_enrolled_with_and_to_none_while_unknown,
     .init = setup, .fini = teardown) {
  cr_expect_eq(beat(B, "b1", 0), AGENT_LOOKUP);
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {7, true}}, 0);
  cr_expect_eq(agent_table_owner(table, A).token, 7);
  cr_expect(agent_table_owner(table, A).has_token);
  cr_expect_eq(agent_table_owner(table, B).token, 0);
}

Test(agents, an_unknown_agent_is_looked_up_once, .init = setup, .fini = teardown) {
  char asked[4][AGENT_ID_SIZE];
  cr_expect_eq(beat(A, "b1", 1), AGENT_LOOKUP);
  cr_expect_eq(beat(A, "b1", 2), AGENT_LOOKUP);
  cr_assert_eq(agent_table_lookups(table, 4, asked), 1);
  cr_expect_str_eq(asked[0], A);
  agent_table_found(table, &(struct agent_brief){A, "b1", true, {0}}, 3);
  cr_expect_eq(beat(A, "b1", 4), AGENT_BEATS);
  cr_expect(draining);
  cr_expect_eq(agent_table_lookups(table, 4, asked), 0);
}

Test(agents, an_id_that_the_database_does_not_have_is_absent_for_a_while, .init = setup,
     .fini = teardown) {
  cr_expect_eq(beat(A, "b1", 1), AGENT_LOOKUP);
  agent_table_absent(table, A, 2);
  cr_expect_eq(beat(A, "b1", 3), AGENT_ABSENT);
  cr_expect_eq(beat(A, "b1", 2 + AGENT_ABSENT_MS), AGENT_LOOKUP);
}

Test(agents, another_process_with_the_same_id_is_absent_until_its_enrolment_is_found, .init = setup,
     .fini = teardown) {
  char asked[4][AGENT_ID_SIZE];
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  cr_expect_eq(beat(A, "b2", 1), AGENT_ABSENT);
  cr_expect_eq(beat(A, "b1", 2), AGENT_BEATS);
  cr_expect_eq(agent_table_lookups(table, 4, asked), 1);
  agent_table_found(table, &(struct agent_brief){A, "b2", false, {0}}, 3);
  cr_expect_eq(beat(A, "b2", 4), AGENT_BEATS);
  cr_expect_eq(beat(A, "b1", 5), AGENT_ABSENT);
}

Test(agents, a_row_read_before_an_agent_enrolled_does_not_replace_the_enrolment, .init = setup,
     .fini = teardown) {
  char asked[4][AGENT_ID_SIZE];
  cr_expect_eq(beat(A, "b2", 1), AGENT_LOOKUP);
  cr_assert_eq(agent_table_lookups(table, 4, asked), 1);
  agent_table_put(table, &(struct agent_brief){A, "b2", false, {7, true}}, 2);
  agent_table_found(table, &(struct agent_brief){A, "b1", true, {3, false}}, 3);

  cr_expect_eq(beat(A, "b2", 4), AGENT_BEATS);
  cr_expect_eq(agent_table_owner(table, A).token, 7);
  cr_expect_not(draining);
}

Test(agents, a_malformed_id_is_never_looked_up, .init = setup, .fini = teardown) {
  char asked[4][AGENT_ID_SIZE];
  cr_expect_eq(beat("../../etc", "b1", 1), AGENT_ABSENT);
  cr_expect_eq(beat("0123456789ABCDEF0123456789ABCDEF", "b1", 1), AGENT_ABSENT);
  cr_expect_eq(agent_table_lookups(table, 4, asked), 0);
}

Test(agents, the_number_of_unknown_ids_is_bounded, .init = setup, .fini = teardown) {
  char id[AGENT_ID_SIZE];
  for (int i = 0; i < AGENTS_LOOKUP_MAX; i++) {
    snprintf(id, sizeof id, "%032x", i);
    cr_assert_eq(beat(id, "b", 1), AGENT_LOOKUP);
  }
  cr_expect_eq(beat(A, "b", 1), AGENT_ABSENT);
  agent_table_absent(table, id, 1);
  agent_table_forget(table, 100000, 1000);
  cr_expect_eq(beat(A, "b", 100000), AGENT_LOOKUP);
}

Test(agents, beats_are_flushed_once, .init = setup, .fini = teardown) {
  char ids[4][AGENT_ID_SIZE];
  int64_t ages[4];
  char *yielded[4] = {NULL};
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  agent_table_put(table, &(struct agent_brief){B, "b1", false, {0}}, 0);
  cr_expect_eq(beat(A, "b1", 10), AGENT_BEATS);
  cr_assert_eq(agent_table_take_seen(table, 25, 4, ids, ages, yielded), 1);
  cr_expect_str_eq(ids[0], A);
  cr_expect_eq(ages[0], 15);
  cr_expect_eq(agent_table_take_seen(table, 25, 4, ids, ages, yielded), 0);
}

Test(agents, a_flush_that_failed_is_tried_again, .init = setup, .fini = teardown) {
  char ids[4][AGENT_ID_SIZE];
  int64_t ages[4];
  char *yielded[4] = {NULL};
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  cr_expect_eq(beat(A, "b1", 10), AGENT_BEATS);
  cr_assert_eq(agent_table_take_seen(table, 25, 4, ids, ages, yielded), 1);
  agent_table_untake(table, ids, 1);
  cr_expect_eq(agent_table_take_seen(table, 35, 4, ids, ages, yielded), 1);
  cr_expect_eq(ages[0], 25);
}

Test(agents, what_a_heartbeat_states_of_yielded_devices_is_taken_once, .init = setup,
     .fini = teardown) {
  char ids[4][AGENT_ID_SIZE];
  int64_t ages[4];
  char *yielded[4] = {NULL};
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  cr_expect_eq(agent_table_beat(table, A, "b1", "[1]", 10, &draining), AGENT_BEATS);
  cr_expect_eq(agent_table_beat(table, A, "b1", "[]", 11, &draining), AGENT_BEATS);
  cr_expect_eq(beat(A, "b1", 12), AGENT_BEATS);
  cr_assert_eq(agent_table_take_seen(table, 25, 4, ids, ages, yielded), 1);
  cr_expect_str_eq(yielded[0], "[]", "the last statement counts");
  free(yielded[0]);
  cr_expect_eq(beat(A, "b1", 30), AGENT_BEATS);
  cr_assert_eq(agent_table_take_seen(table, 35, 4, ids, ages, yielded), 1);
  cr_expect_null(yielded[0]);
}

Test(agents, draining_follows_the_database, .init = setup, .fini = teardown) {
  const char *ids[] = {B, "00000000000000000000000000000000"};
  agent_table_put(table, &(struct agent_brief){A, "b1", true, {0}}, 0);
  agent_table_put(table, &(struct agent_brief){B, "b1", false, {0}}, 0);
  agent_table_set_draining(table, ids, 2);
  cr_expect_eq(beat(A, "b1", 1), AGENT_BEATS);
  cr_expect_not(draining);
  cr_expect_eq(beat(B, "b1", 1), AGENT_BEATS);
  cr_expect(draining);
  agent_table_drain(table, B, false);
  cr_expect_eq(beat(B, "b1", 2), AGENT_BEATS);
  cr_expect_not(draining);
}

Test(agents, an_agent_without_a_heartbeat_for_long_is_removed, .init = setup, .fini = teardown) {
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {0}}, 0);
  agent_table_put(table, &(struct agent_brief){B, "b1", false, {0}}, 900);
  agent_table_forget(table, 1000, 500);
  cr_expect_eq(beat(A, "b1", 1000), AGENT_LOOKUP);
  cr_expect_eq(beat(B, "b1", 1000), AGENT_BEATS);
}

Test(agents, heartbeats_of_a_former_process_do_not_restore_its_enrolment, .init = setup,
     .fini = teardown) {
  char asked[4][AGENT_ID_SIZE];
  agent_table_put(table, &(struct agent_brief){A, "b1", false, {3, false}}, 0);
  cr_expect_eq(beat(A, "b2", 1), AGENT_ABSENT);
  cr_assert_eq(agent_table_lookups(table, 4, asked), 1);
  agent_table_put(table, &(struct agent_brief){A, "b2", false, {7, false}}, 2);
  cr_expect_eq(beat(A, "b1", 3), AGENT_ABSENT);
  agent_table_found(table, &(struct agent_brief){A, "b1", false, {3, false}}, 4);

  cr_expect_eq(agent_table_owner(table, A).token, 7);
  cr_expect_eq(beat(A, "b2", 5), AGENT_BEATS);
}
