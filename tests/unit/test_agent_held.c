/* The leases that an agent holds: when they are due, and when they are given up. */
#include "agent/run/held.h"

#include <criterion/criterion.h>
#include <sys/syscall.h>
#include <time.h>

/* How long the machine was suspended: CLOCK_MONOTONIC does not count that. This definition is the
 * program's, before the C library's. */
static _Atomic int64_t suspended_s;

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_BOOTTIME)
    now->tv_sec += suspended_s;
  return result;
}

static _Atomic uint64_t current = 17;

static struct held_grant grant_of(const char *lease, int64_t expires_in_ms,
                                  int64_t renew_every_ms) {
  return (struct held_grant){.lease = lease,
                             .epoch = 3,
                             .requested_ms = held_clock_ms(),
                             .expires_in_ms = expires_in_ms,
                             .renew_every_ms = renew_every_ms,
                             .current = &current};
}

static struct held_table *table_with(const char *lease, int64_t expires_in_ms,
                                     int64_t renew_every_ms) {
  struct held_table *table = held_table_new();
  struct held_grant grant = grant_of(lease, expires_in_ms, renew_every_ms);
  held_add(table, &grant);
  return table;
}

#define LONG_MS 3600000

Test(agent_held, a_lease_is_alive_until_a_margin_before_it_expires) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS);
  cr_expect(held_is_alive(table, "91", 3));
  cr_expect_not(held_is_alive(table, "91", 2), "another epoch is another lease");
  struct held_grant grant = grant_of("92", LONG_MS, LONG_MS);
  grant.requested_ms -= LONG_MS - 1000; /* it expires in a second */
  held_add(table, &grant);
  cr_expect_not(held_is_alive(table, "92", 3));
  held_table_free(table);
}

Test(agent_held, a_lease_does_not_outlive_the_suspension_of_the_machine) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS);
  cr_expect(held_is_alive(table, "91", 3));
  suspended_s = LONG_MS / 1000;
  cr_expect_not(held_is_alive(table, "91", 3));
  held_table_free(table);
}

Test(agent_held, a_lease_that_is_lost_is_not_alive_nor_renewed) {
  struct held_table *table = table_with("91", LONG_MS, 0);
  struct held_due due;
  int64_t wait_ms;
  held_lose(table, "91", 3);
  cr_expect_not(held_is_alive(table, "91", 3));
  cr_expect_not(held_next_due(table, &due, &wait_ms));
  cr_expect_eq(wait_ms, INT64_MAX);
  held_table_free(table);
}

/* Renews at once. */
static void renew_now(struct held_table *table) {
  held_renewed(table, "91", 3, held_clock_ms() - LONG_MS / 2, LONG_MS);
}

Test(agent_held, a_due_renewal_names_the_config_that_is_measured) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS / 3);
  struct held_due due;
  int64_t wait_ms;
  renew_now(table);
  cr_assert(held_next_due(table, &due, &wait_ms));
  cr_expect_str_eq(due.lease, "91");
  cr_expect_eq(due.epoch, 3);
  cr_expect_eq(due.config, 17);
  held_end(table, "91", 3);
  renew_now(table);
  cr_assert(held_next_due(table, &due, &wait_ms), "its results may still wait");
  cr_expect_eq(due.config, UINT64_MAX);
  held_table_free(table);
}

Test(agent_held, a_server_cannot_make_an_agent_renew_all_the_time) {
  struct held_table *table = table_with("91", LONG_MS, 1);
  int64_t until_ms = held_clock_ms() + 200, wait_ms;
  struct held_due due;
  int n = 0;
  while (held_clock_ms() < until_ms)
    n += held_next_due(table, &due, &wait_ms);
  cr_expect_leq(n, 10);
  held_table_free(table);
}

Test(agent_held, nothing_is_due_before_its_time) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS / 2);
  struct held_due due;
  int64_t wait_ms;
  cr_expect_not(held_next_due(table, &due, &wait_ms));
  cr_expect(wait_ms > LONG_MS / 4 && wait_ms <= LONG_MS / 2);
  held_table_free(table);
}

Test(agent_held, a_renewal_moves_the_expiry) {
  struct held_table *table = held_table_new();
  struct held_grant grant = grant_of("91", LONG_MS, LONG_MS / 3);
  grant.requested_ms -= LONG_MS - 1000;
  held_add(table, &grant);
  held_renewed(table, "91", 3, held_clock_ms(), LONG_MS);
  cr_expect(held_is_alive(table, "91", 3));
  struct held_due due;
  int64_t wait_ms;
  cr_expect_not(held_next_due(table, &due, &wait_ms));
  held_table_free(table);
}

Test(agent_held, a_renewal_that_failed_is_due_again_soon_but_not_at_once) {
  struct held_table *table = held_table_new();
  struct held_grant grant = grant_of("91", LONG_MS, LONG_MS / 3);
  grant.requested_ms -= LONG_MS / 2;
  held_add(table, &grant);
  struct held_due due;
  int64_t wait_ms;
  cr_assert(held_next_due(table, &due, &wait_ms));
  cr_expect_not(held_next_due(table, &due, &wait_ms));
  cr_expect_lt(wait_ms, 5000);
  held_table_free(table);
}

Test(agent_held, a_lease_that_the_server_has_is_dropped) {
  struct held_table *table = table_with("91", LONG_MS, 0);
  struct held_due due;
  int64_t wait_ms;
  held_drop(table, "91", 3);
  cr_expect_not(held_next_due(table, &due, &wait_ms));
  cr_expect_not(held_is_alive(table, "91", 3));
  held_drop(table, "91", 3);
  held_table_free(table);
}

/* Limits a lease to the ranges, as a renewal's answer does. */
static void limit_to(struct held_table *table, const char *lease, int64_t epoch,
                     const char *ranges) {
  struct config_ranges configs;
  struct error error;
  json_t *json = json_loads(ranges, 0, NULL);
  cr_assert(config_ranges_from_json(json, &configs, &error), "%s", error.message);
  json_decref(json);
  held_limit(table, lease, epoch, &configs);
}

Test(agent_held, a_lease_has_all_its_configs_until_the_server_gives_some_away) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS);
  cr_expect(held_has(table, "91", 3, 40));
  limit_to(table, "91", 3, "[[0, 24], [30, 1]]");
  cr_expect(held_has(table, "91", 3, 0));
  cr_expect(held_has(table, "91", 3, 23));
  cr_expect_not(held_has(table, "91", 3, 24));
  cr_expect(held_has(table, "91", 3, 30));
  cr_expect_not(held_has(table, "91", 3, 31));
  limit_to(table, "91", 3, "[]");
  cr_expect_not(held_has(table, "91", 3, 0));
  held_table_free(table);
}

Test(agent_held, limits_of_a_lease_that_is_no_longer_held_are_ignored) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS);
  limit_to(table, "91", 2, "[[0, 1]]");
  cr_expect(held_has(table, "91", 3, 40));
  held_drop(table, "91", 3);
  cr_expect_not(held_has(table, "91", 3, 40));
  held_table_free(table);
}

Test(agent_held, a_lease_that_is_granted_again_has_no_limits) {
  struct held_table *table = table_with("91", LONG_MS, LONG_MS);
  limit_to(table, "91", 3, "[[0, 1]]");
  struct held_grant grant = grant_of("91", LONG_MS, LONG_MS);
  held_add(table, &grant);
  cr_expect(held_has(table, "91", 3, 40));
  held_table_free(table);
}
