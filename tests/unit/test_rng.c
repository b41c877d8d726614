/* The seeded generator: the same numbers on every machine, within their bounds. */
#include "common/base/numbers.h"

#include <criterion/criterion.h>

Test(rng, follows_the_published_sequence) {
  /* splitmix64 from seed 1234567, as the test vectors of its reference implementation state it. */
  static const uint64_t wanted[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u, 4593380528125082431u,
                                    16408922859458223821u};
  struct rng rng = rng_seeded(1234567);
  for (size_t i = 0; i < ARRAY_LENGTH(wanted); i++)
    cr_expect_eq(rng_next(&rng), wanted[i]);
}

Test(rng, below_reaches_every_number_below_its_bound_and_no_other) {
  struct rng rng = rng_seeded(1);
  size_t times[6] = {0};
  for (int i = 0; i < 6000; i++) {
    uint64_t number = rng_below(&rng, 6);
    cr_assert_lt(number, 6u);
    times[number]++;
  }
  for (size_t i = 0; i < 6; i++)
    cr_expect(times[i] > 850 && times[i] < 1150, "%zu came %zu times of 6000", i, times[i]);
}

Test(rng, below_one_is_zero) {
  struct rng rng = rng_seeded(2);
  for (int i = 0; i < 100; i++)
    cr_assert_eq(rng_below(&rng, 1), 0u);
}

Test(rng, units_lie_in_their_interval_with_the_middle_as_mean) {
  struct rng rng = rng_seeded(3);
  double sum = 0;
  for (int i = 0; i < 10000; i++) {
    double unit = rng_unit(&rng);
    cr_assert(unit >= 0 && unit < 1);
    sum += unit;
  }
  cr_expect_float_eq(sum / 10000, 0.5, 0.015);
}
