/* A body's deadline moves with the bytes that arrived, without overflow. */
#include "server/http/deadlines.h"

#include <criterion/criterion.h>

Test(deadlines, a_body_without_bytes_has_the_base_alone) {
  cr_assert_eq(body_deadline_ms(1000, 0, 30000, 16384), 31000);
}

Test(deadlines, each_second_of_bytes_at_the_rate_adds_a_second) {
  cr_assert_eq(body_deadline_ms(1000, 16384, 30000, 16384), 32000);
  cr_assert_eq(body_deadline_ms(0, 8192, 0, 16384), 500);
  cr_assert_eq(body_deadline_ms(0, 64 << 20, 30000, 16384), 30000 + 4096 * 1000);
}

Test(deadlines, many_bytes_at_the_lowest_rate_do_not_overflow) {
  uint64_t bytes = (uint64_t)1 << 50;
  cr_assert_eq(body_deadline_ms(0, bytes, 0, 1), (int64_t)bytes * 1000);
  cr_assert_eq(body_deadline_ms(0, bytes + 1, 0, 1 << 30), ((int64_t)bytes >> 30) * 1000);
}
