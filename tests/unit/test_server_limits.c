/* The rates of tokens' requests. */
#include "server/http/limits.h"

#include <criterion/criterion.h>

static struct request_rates *rates;

static void setup(void) { rates = request_rates_new(); }
static void teardown(void) { request_rates_free(rates); }

TestSuite(limits, .init = setup, .fini = teardown);

static int take(int64_t token, int64_t now_ms, int n) {
  int taken = 0;
  for (int i = 0; i < n; i++)
    taken += request_rates_take(rates, token, now_ms, 10);
  return taken;
}

Test(limits, a_token_has_a_burst_and_then_its_rate) {
  cr_expect_eq(take(1, 1000, 100), 10 * LIMIT_BURST_S);
  cr_expect_eq(take(1, 2000, 100), 10);
  cr_expect_eq(take(1, 2500, 100), 5);
}

Test(limits, tokens_have_buckets_of_their_own) {
  cr_expect_eq(take(1, 1000, 100), 10 * LIMIT_BURST_S);
  cr_expect_eq(take(2, 1000, 100), 10 * LIMIT_BURST_S);
}

Test(limits, two_tokens_of_one_slot_share_it_until_it_is_full_again) {
  int64_t other = 1 + 16384;
  cr_expect_eq(take(1, 1000, 100), 10 * LIMIT_BURST_S);
  cr_expect_eq(take(other, 1000, 100), 0, "else the two would empty it in turn");
  cr_expect_eq(take(other, 1000 + LIMIT_BURST_S * 1000, 100), 10 * LIMIT_BURST_S);
  cr_expect_eq(take(1, 1000 + LIMIT_BURST_S * 1000, 100), 0);
}
