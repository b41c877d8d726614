/* Whose turn it is, with simulated queues of open leases. */
#include <criterion/criterion.h>
#include <math.h>

#include "server/lease/fair_share.h"

#define OWNERS 3
#define HALF_LIFE_S 600

TestSuite(fair_share);

/* An owner's open leases at one priority, each of which takes a device some seconds. */
struct line {
  int owner;
  int64_t priority, job, leases, waited_ms;
  double seconds;
  int64_t granted;
};

struct world {
  struct share_owner owners[OWNERS];
  size_t n;
  struct line *lines;
  int64_t last; /* line that was served last */
};

static struct world world_of(struct line *lines, size_t n) {
  struct world world = {.n = n, .lines = lines, .last = -1};
  for (size_t i = 0; i < OWNERS; i++)
    world.owners[i] = (struct share_owner){.weight = 1, .lease_us = 1e6};
  return world;
}

/* One device takes a lease and completes it. False: there is none. */
static bool serve(struct world *world) {
  struct share_queue queues[8];
  size_t of[8], n = 0, first;
  for (size_t i = 0; i < world->n; i++)
    if (world->lines[i].leases > 0) {
      of[n] = i;
      queues[n++] =
          (struct share_queue){&world->owners[world->lines[i].owner], world->lines[i].priority,
                               world->lines[i].job, world->lines[i].waited_ms};
    }
  if (share_rank(queues, n, &first, 1) == 0)
    return false;

  struct line *line = &world->lines[of[first]];
  line->leases--;
  line->granted++;
  line->waited_ms = share_waited_after(line->waited_ms, share_is_by_waiting(queues, n, first));
  world->last = (int64_t)of[first];
  for (size_t i = 0; i < world->n; i++)
    world->lines[i].waited_ms += (int64_t)(line->seconds * 1000);
  for (size_t i = 0; i < OWNERS; i++)
    world->owners[i].used_us *= exp2(-line->seconds / HALF_LIFE_S);
  world->owners[line->owner].used_us += line->seconds * 1e6 + SHARE_LEASE_US;
  return true;
}

Test(fair_share, five_later_jobs_are_served_with_a_flood_and_not_after_it) {
  struct line lines[] = {{.owner = 0, .job = 1, .leases = 6000, .seconds = 10},
                         {.owner = 1, .job = 6001, .leases = 5, .seconds = 10}};
  struct world world = world_of(lines, 2);
  for (int i = 0; i < 10; i++)
    cr_assert(serve(&world));
  cr_expect_eq(lines[0].granted, 5);
  cr_expect_eq(lines[1].granted, 5);
  while (serve(&world))
    ;
  cr_expect_eq(lines[0].granted, 6000);
}

Test(fair_share, device_time_counts_not_the_number_of_leases) {
  struct line lines[] = {{.owner = 0, .job = 1, .leases = 10000, .seconds = 30},
                         {.owner = 1, .job = 2, .leases = 10000, .seconds = 3}};
  struct world world = world_of(lines, 2);
  for (int i = 0; i < 1100; i++)
    cr_assert(serve(&world));
  double ratio = (double)lines[1].granted / (double)lines[0].granted;
  cr_expect(ratio > 9 && ratio < 10.5, "%g", ratio);
}

Test(fair_share, leases_without_device_time_count_too) {
  struct line lines[] = {{.owner = 0, .job = 1, .leases = 100000, .seconds = 0},
                         {.owner = 1, .job = 2, .leases = 100, .seconds = 1}};
  struct world world = world_of(lines, 2);
  for (int i = 0; i < 2000; i++)
    cr_assert(serve(&world));
  cr_expect_eq(lines[1].leases, 0);
}

Test(fair_share, weights_are_ratios_of_device_time) {
  struct line lines[] = {{.owner = 0, .job = 1, .leases = 10000, .seconds = 10},
                         {.owner = 1, .job = 2, .leases = 10000, .seconds = 10}};
  struct world world = world_of(lines, 2);
  world.owners[0].weight = 3;
  for (int i = 0; i < 4000; i++)
    cr_assert(serve(&world));
  cr_expect(llabs(lines[0].granted - 3000) <= 30, "%lld", (long long)lines[0].granted);
}

Test(fair_share, leases_that_are_held_count_before_they_end) {
  struct share_owner owners[2] = {{.weight = 1, .lease_us = 5}, {.weight = 1, .lease_us = 9}};
  struct share_queue queues[] = {{&owners[0], 0, 1, 0}, {&owners[1], 0, 2, 0}};
  size_t first;
  cr_assert_eq(share_rank(queues, 2, &first, 1), 1);
  cr_expect_eq(first, 0, "equal: the older job");
  owners[0].held = 2;
  owners[1].held = 1;
  cr_assert_eq(share_rank(queues, 2, &first, 1), 1);
  cr_expect_eq(first, 1, "10 of the first, 9 of the second");
  const struct share_queue turned[] = {queues[1], queues[0]};
  cr_assert_eq(share_rank(turned, 2, &first, 1), 1);
  cr_expect_eq(first, 0, "whichever is looked at first");
}

Test(fair_share, a_higher_priority_comes_first_whatever_its_owner_used) {
  struct line lines[] = {{.owner = 0, .priority = 0, .job = 1, .leases = 50, .seconds = 10},
                         {.owner = 1, .priority = 1, .job = 2, .leases = 50, .seconds = 10}};
  struct world world = world_of(lines, 2);
  world.owners[1].used_us = 1e12;
  for (int i = 0; i < 50; i++)
    cr_assert(serve(&world));
  cr_expect_eq(lines[1].granted, 50);
}

Test(fair_share, one_owner_is_served_by_priority_then_job) {
  struct line lines[] = {{.priority = 0, .job = 7, .leases = 1, .seconds = 1},
                         {.priority = 9, .job = 8, .leases = 1, .seconds = 1},
                         {.priority = -1, .job = 1, .leases = 1, .seconds = 1},
                         {.priority = 0, .job = 5, .leases = 1, .seconds = 1}};
  static const int64_t order[] = {1, 3, 0, 2};
  struct world world = world_of(lines, 4);
  for (size_t i = 0; i < 4; i++) {
    cr_assert(serve(&world));
    cr_expect_eq(world.last, order[i], "%zu: %lld", i, (long long)world.last);
  }
}

Test(fair_share, a_queue_gains_a_priority_for_each_hour_up_to_the_highest) {
  struct share_owner owner = {.weight = 1};
  struct share_queue queue = {&owner, -2, 1, SHARE_STEP_MS - 1};
  cr_expect_eq(share_priority(&queue), -2);
  queue.waited_ms = 3 * SHARE_STEP_MS;
  cr_expect_eq(share_priority(&queue), 1);
  queue.waited_ms = INT64_MAX;
  cr_expect_eq(share_priority(&queue), SHARE_PRIORITY_MAX);
  queue.waited_ms = -5;
  cr_expect_eq(share_priority(&queue), -2);
}

/* 100 hours of leases of 10 s on one device, which the high priority never leaves idle. */
Test(fair_share, a_low_priority_is_served_while_a_higher_one_never_ends) {
  struct line lines[] = {{.owner = 0, .priority = 3, .job = 1, .leases = 1000000, .seconds = 10},
                         {.owner = 1, .priority = 0, .job = 2, .leases = 1000, .seconds = 10}};
  struct world world = world_of(lines, 2);
  int64_t first = -1;
  for (int i = 0; i < 36000; i++) {
    cr_assert(serve(&world));
    if (world.last == 1 && first < 0)
      first = i;
  }
  cr_expect(first >= 3 * 360 && first <= 3 * 360 + 2, "after three hours: lease %lld",
            (long long)first);
  cr_expect(lines[1].granted > 500 && lines[1].granted < 700, "about six an hour: %lld",
            (long long)lines[1].granted);
}

Test(fair_share, a_lease_at_its_own_priority_ends_the_wait) {
  cr_expect_eq(share_waited_after(5 * SHARE_STEP_MS, false), 0);
  cr_expect_eq(share_waited_after(5 * SHARE_STEP_MS, true), 5 * SHARE_STEP_MS - SHARE_COST_MS);
  cr_expect_eq(share_waited_after(SHARE_COST_MS - 1, true), 0);
}

/* Else a flood that has waited would come before later jobs of the same priority. */
Test(fair_share, a_flood_that_is_served_gains_nothing) {
  struct line lines[] = {{.owner = 0, .job = 1, .leases = 6000, .seconds = 10},
                         {.owner = 1, .job = 9, .leases = 0, .seconds = 10}};
  struct world world = world_of(lines, 2);
  for (int i = 0; i < 2000; i++)
    cr_assert(serve(&world));
  lines[1].leases = 5;
  lines[1].waited_ms = 0;
  for (int i = 0; i < 6; i++)
    cr_assert(serve(&world));
  cr_expect_eq(lines[1].granted, 5);
}

Test(fair_share, an_owner_over_its_quota_gets_nothing_and_keeps_no_one_from_ending_a_wait) {
  struct share_owner owners[] = {{.weight = 1, .is_quota_used = true}, {.weight = 1}};
  struct share_queue queues[] = {{&owners[0], 9, 1, 0}, {&owners[1], 0, 2, 0}};
  size_t ranked[2];
  cr_assert_eq(share_rank(queues, 2, ranked, 2), 1);
  cr_expect_eq(ranked[0], 1);
  cr_expect_not(share_is_by_waiting(queues, 2, 1));
  owners[0].is_quota_used = false;
  cr_expect(share_is_by_waiting(queues, 2, 1));
  cr_expect_not(share_is_by_waiting(queues, 2, 0));
}

Test(fair_share, the_first_few_of_many_are_the_first_of_all) {
  struct share_owner owners[40];
  struct share_queue queues[40];
  size_t all[40], few[9];
  for (size_t i = 0; i < 40; i++) {
    owners[i] = (struct share_owner){.weight = 1, .used_us = (double)(i * 17 % 40)};
    queues[i] = (struct share_queue){&owners[i], (int64_t)(i % 3), (int64_t)i, 0};
  }
  cr_assert_eq(share_rank(queues, 40, all, 40), 40);
  for (size_t most = 0; most <= 9; most++) {
    cr_assert_eq(share_rank(queues, 40, few, most), most);
    cr_expect(memcmp(all, few, most * sizeof *all) == 0, "%zu", most);
  }
}
