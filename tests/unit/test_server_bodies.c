/* The budget of memory for bodies. */
#include "server/http/bodies.h"

#include <criterion/criterion.h>

static struct bodies *bodies;

static void setup(void) { bodies = bodies_new(100); }
static void teardown(void) { bodies_free(bodies); }

TestSuite(bodies, .init = setup, .fini = teardown);

Test(bodies, a_token_may_have_half_and_all_together_the_whole) {
  cr_expect_eq(bodies_take(bodies, 1, 50), BODIES_TAKEN);
  cr_expect_eq(bodies_take(bodies, 1, 1), BODIES_TOKEN_FULL);
  cr_expect_eq(bodies_take(bodies, 2, 40), BODIES_TAKEN);
  cr_expect_eq(bodies_take(bodies, 3, 11), BODIES_FULL);
  cr_expect_eq(bodies_take(bodies, 3, 10), BODIES_TAKEN);
  cr_expect_eq(bodies_used(bodies), 100);

  bodies_give(bodies, 1, 50);
  cr_expect_eq(bodies_take(bodies, 3, 11), BODIES_TAKEN);
  bodies_give(bodies, 2, 40);
  bodies_give(bodies, 3, 21);
  cr_expect_eq(bodies_used(bodies), 0);
}

Test(bodies, sizes_that_overflow_a_sum_are_refused) {
  cr_expect_eq(bodies_take(bodies, 1, 20), BODIES_TAKEN);
  cr_expect_eq(bodies_take(bodies, 1, SIZE_MAX), BODIES_TOKEN_FULL);
  cr_expect_eq(bodies_take(bodies, 2, SIZE_MAX), BODIES_TOKEN_FULL);
  bodies_give(bodies, 1, 20);
}

Test(bodies, nothing_is_always_taken) {
  cr_expect_eq(bodies_take(bodies, 1, 0), BODIES_TAKEN);
  bodies_give(bodies, 1, 0);
}
