/* The order in which the open leases of a queue are granted. */
#include <criterion/criterion.h>

#include "server/lease/lease_front.h"

TestSuite(lease_front);

/* Each is granted before those after it. */
static const struct lease_place order[] = {
    {.group = 1, .lease = 1},  {.group = 2, .lease = 0},  {.group = 9, .lease = 90},
    {.group = 9, .lease = 91}, {.group = 10, .lease = 5},
};

Test(lease_front, places_are_ordered_by_group_then_lease) {
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
      cr_expect_eq(lease_place_is_before(&order[i], &order[k]), i < k, "%zu and %zu", i, k);
}

Test(lease_front, a_queue_is_of_one_class_owner_and_priority) {
  const struct lease_queue queue = {.class = {{1}}, .owner = 2, .priority = 3};
  struct lease_queue other = queue;
  cr_expect(lease_queue_equal(&queue, &other));
  other.class.bytes[31] = 1;
  cr_expect_not(lease_queue_equal(&queue, &other));
  other = queue;
  other.owner = 3;
  cr_expect_not(lease_queue_equal(&queue, &other));
  other = queue;
  other.priority = -3;
  cr_expect_not(lease_queue_equal(&queue, &other));
}
