/* What becomes of a config whose lease was lost while it was being measured. */
#include <criterion/criterion.h>

#include "server/measure/grants.h"

TestSuite(poison);

static enum poison_step decide(int64_t losses, int64_t devices, int64_t other_agents) {
  struct poison_facts facts = {losses, devices, other_agents};
  return poison_decide(&facts);
}

Test(poison, after_one_loss_any_agent_may_try_again) {
  cr_expect_eq(decide(1, 1, 0), POISON_AGAIN);
}

Test(poison, two_losses_on_one_device_send_it_to_another_agent) {
  cr_expect_eq(decide(2, 1, 1), POISON_SEPARATE);
}

Test(poison, two_losses_on_the_only_agent_poison_it) {
  cr_expect_eq(decide(2, 1, 0), POISON_GIVE_UP);
}

Test(poison, losses_on_two_devices_poison_it_whatever_agents_are_live) {
  cr_expect_eq(decide(2, 2, 5), POISON_GIVE_UP);
}
