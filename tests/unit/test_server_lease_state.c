/* The transitions of a lease's state, and when a lease is done. */
#include <criterion/criterion.h>

#include "server/measurement/leases.h"

TestSuite(lease_state);

Test(lease_state, only_an_open_lease_is_granted) {
  for (int from = 0; from < LEASE_STATE_COUNT; from++)
    if (from != LEASE_HELD)
      cr_expect_eq(lease_may_change((enum lease_state)from, LEASE_HELD), from == LEASE_OPEN,
                   "from %d", from);
}

Test(lease_state, a_cancelled_lease_never_changes_again) {
  for (int to = 0; to < LEASE_STATE_COUNT; to++)
    if (to != LEASE_CANCELLED)
      cr_expect_not(lease_may_change(LEASE_CANCELLED, (enum lease_state)to), "to %d", to);
}

Test(lease_state, a_done_lease_only_opens_again) {
  cr_expect(lease_may_change(LEASE_DONE, LEASE_OPEN));
  cr_expect_not(lease_may_change(LEASE_DONE, LEASE_HELD));
  cr_expect_not(lease_may_change(LEASE_DONE, LEASE_CANCELLED));
}

Test(lease_state, open_and_held_leases_may_end_or_open) {
  for (enum lease_state from = LEASE_OPEN; from <= LEASE_HELD; from++) {
    cr_expect(lease_may_change(from, LEASE_OPEN));
    cr_expect(lease_may_change(from, LEASE_DONE));
    cr_expect(lease_may_change(from, LEASE_CANCELLED));
  }
}

Test(lease_state, late_results_are_counted_in_any_state) {
  for (int state = 0; state < LEASE_STATE_COUNT; state++)
    cr_expect(lease_may_change((enum lease_state)state, (enum lease_state)state));
}

static struct config_ranges ranges_of(uint64_t first, uint64_t count) {
  struct config_ranges ranges = {0};
  for (uint64_t i = 0; i < count; i++)
    config_ranges_add(&ranges, first + i);
  return ranges;
}

Test(lease_state, a_lease_is_done_when_nothing_remains) {
  cleanup_config_ranges struct config_ranges remaining = ranges_of(8, 4), less = ranges_of(8, 3);
  cr_expect_eq(lease_state_after(&remaining, &less, LEASE_HELD), LEASE_HELD);
  cr_expect_eq(lease_state_after(&remaining, &less, LEASE_OPEN), LEASE_OPEN);
  config_ranges_add(&less, 11);
  cr_expect_eq(lease_state_after(&remaining, &less, LEASE_OPEN), LEASE_DONE);
}

Test(lease_state, configs_that_the_lease_does_not_have_change_nothing) {
  cleanup_config_ranges struct config_ranges remaining = ranges_of(8, 4), less = ranges_of(20, 9);
  cr_expect_eq(lease_state_after(&remaining, &less, LEASE_HELD), LEASE_HELD);
}

Test(lease_state, names_are_those_of_the_database) {
  cr_expect_str_eq(lease_state_name(LEASE_OPEN), "open");
  cr_expect_str_eq(lease_state_name(LEASE_CANCELLED), "cancelled");
  cr_expect_null(lease_state_names[LEASE_STATE_COUNT]);
}
