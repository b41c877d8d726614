/* When lost leases poison a config, an object or a kernel for all jobs
 * (server/poison/poison_rule.h).
 */
#include <criterion/criterion.h>

#include "server/poison/poison_rule.h"

#define MOMENT_MS 1000
#define LATER_MS 60000 /* another moment */

TestSuite(poison_rule);

/* A loss of one of several configs, with nothing else lost in its moment. */
static struct poison_loss lost(int64_t job, const char *agent, uint8_t config, int64_t at_ms) {
  return (struct poison_loss){.job = job,
                              .agent = agent,
                              .device = "gpu0",
                              .config = {{config}},
                              .at_ms = at_ms,
                              .same = 1};
}

#define JUDGE(scope, ...)                                                                          \
  judge(scope, (struct poison_loss[]){__VA_ARGS__},                                                \
        sizeof((struct poison_loss[]){__VA_ARGS__}) / sizeof(struct poison_loss))

static struct poison_count counted;

static bool judge(enum poison_scope scope, const struct poison_loss *losses, size_t n) {
  return poison_judge(scope, losses, n, MOMENT_MS, &counted);
}

Test(poison_rule, no_loss_poisons_nothing) {
  cr_expect_not(judge(POISON_CONFIG, NULL, 0));
  cr_expect_not(judge(POISON_KERNEL, NULL, 0));
  cr_expect_eq(counted.losses, 0);
}

Test(poison_rule, a_config_that_two_jobs_lost_twice_is_poisoned_even_by_one_agent) {
  cr_expect(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(1, "a", 1, LATER_MS),
                  lost(2, "a", 1, 2 * LATER_MS), lost(2, "a", 1, 3 * LATER_MS)));
  cr_expect_eq(counted.losses, 4);
  cr_expect_eq(counted.jobs, 2);
  cr_expect_eq(counted.agents, 1);
}

Test(poison_rule, a_config_that_one_job_lost_is_left_to_its_own_rule) {
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(1, "b", 1, LATER_MS),
                      lost(2, "b", 1, 2 * LATER_MS)));
  cr_expect_eq(counted.jobs, 1);
}

Test(poison_rule, a_config_that_three_agents_lost_is_poisoned) {
  cr_expect(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS),
                  lost(3, "c", 1, 2 * LATER_MS)));
  cr_expect(JUDGE(POISON_OBJECT, lost(1, "a", 1, 0), lost(2, "b", 2, LATER_MS),
                  lost(3, "c", 3, 2 * LATER_MS)));
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS),
                      lost(3, "b", 1, 2 * LATER_MS)));
}

Test(poison_rule, losses_of_one_moment_are_one_event) {
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, 1),
                      lost(3, "c", 1, MOMENT_MS - 1), lost(4, "d", 1, 2)));
  cr_expect(
      JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, 1), lost(3, "c", 1, MOMENT_MS)));
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(1, "b", 1, 1),
                      lost(2, "a", 1, LATER_MS), lost(2, "b", 1, LATER_MS + 1)),
                "each job lost it at once");
}

Test(poison_rule, a_device_that_lost_it_twice_got_it_twice) {
  cr_expect(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(1, "a", 1, 1), lost(2, "a", 1, 2),
                  lost(2, "a", 1, 3)),
            "agents that are restarted at once");
  struct poison_loss neighbour = lost(1, "a", 1, 1);
  neighbour.device = "gpu1";
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), neighbour, lost(2, "a", 1, LATER_MS),
                      lost(2, "a", 1, LATER_MS + 1)));
  cr_expect_eq(counted.jobs, 1);
}

Test(poison_rule, their_order_does_not_matter) {
  cr_expect(JUDGE(POISON_CONFIG, lost(2, "a", 1, 3 * LATER_MS), lost(1, "a", 1, LATER_MS),
                  lost(2, "a", 1, 2 * LATER_MS), lost(1, "a", 1, 0)));
}

Test(poison_rule, a_config_that_was_measured_afterwards_is_excused) {
  struct poison_loss measured = lost(3, "c", 1, 2 * LATER_MS);
  measured.is_excused = true;
  cr_expect_not(poison_loss_counts(&measured));
  cr_expect_not(
      JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS), measured, measured));
  cr_expect_eq(counted.losses, 2);
}

Test(poison_rule, a_loss_in_an_outage_is_no_evidence) {
  struct poison_loss outage = lost(3, "c", 1, 2 * LATER_MS);
  outage.same = 2;
  outage.others = 2;
  cr_expect_not(poison_loss_counts(&outage));
  cr_expect_not(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS), outage));
  outage.same = 3; /* most of them died with this config */
  cr_expect(JUDGE(POISON_CONFIG, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS), outage));
}

Test(poison_rule, a_kernel_is_poisoned_by_three_configs_that_were_lost_twice) {
  cr_expect(JUDGE(POISON_KERNEL, lost(1, "a", 1, 0), lost(1, "a", 1, LATER_MS),
                  lost(1, "a", 2, 2 * LATER_MS), lost(1, "a", 2, 3 * LATER_MS),
                  lost(1, "b", 3, 4 * LATER_MS), lost(2, "b", 3, 5 * LATER_MS)));
  cr_expect_eq(counted.configs, 3);
  cr_expect_eq(counted.agents, 2);
}

Test(poison_rule, configs_that_were_lost_once_do_not_poison_their_kernel) {
  cr_expect_not(JUDGE(POISON_KERNEL, lost(1, "a", 1, 0), lost(1, "a", 1, LATER_MS),
                      lost(1, "b", 2, 2 * LATER_MS), lost(1, "b", 2, 3 * LATER_MS),
                      lost(1, "c", 3, 4 * LATER_MS), lost(1, "d", 4, 5 * LATER_MS),
                      lost(1, "e", 5, 6 * LATER_MS)));
  cr_expect_eq(counted.configs, 2);
}

Test(poison_rule, three_agents_do_not_poison_a_kernel) {
  cr_expect_not(JUDGE(POISON_KERNEL, lost(1, "a", 1, 0), lost(2, "b", 1, LATER_MS),
                      lost(3, "c", 1, 2 * LATER_MS), lost(4, "d", 1, 3 * LATER_MS)));
}
