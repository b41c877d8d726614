/* Each token has a bucket of its own, which is refilled evenly. */
#include "server/http/rates.h"

#include <criterion/criterion.h>

Test(rates, a_token_that_reports_too_often_waits_and_others_do_not) {
  struct token_rates *rates = token_rates_new(6);
  int64_t wait_s;
  for (int i = 0; i < 6; i++)
    cr_assert(token_rates_take(rates, "eager", 1000, &wait_s), "%d", i);
  cr_assert(!token_rates_take(rates, "eager", 1000, &wait_s));
  cr_assert_eq(wait_s, 11, "a report each ten seconds, and one for rounding: %lld",
               (long long)wait_s);
  cr_assert(token_rates_take(rates, "calm", 1000, &wait_s));
  cr_assert(!token_rates_take(rates, "eager", 10000, &wait_s));
  cr_assert(token_rates_take(rates, "eager", 11500, &wait_s));
  token_rates_free(rates);
}

Test(rates, the_bucket_that_was_used_longest_ago_is_replaced) {
  struct token_rates *rates = token_rates_new(1);
  int64_t wait_s;
  char name[16];
  cr_assert(token_rates_take(rates, "first", 1, &wait_s));
  cr_assert(!token_rates_take(rates, "first", 1, &wait_s));
  for (int i = 0; i < 1100; i++) {
    snprintf(name, sizeof name, "t%d", i);
    cr_assert(token_rates_take(rates, name, 2, &wait_s));
  }
  cr_assert(token_rates_take(rates, "first", 3, &wait_s),
            "forgotten, so it begins with a full bucket");
  token_rates_free(rates);
}
