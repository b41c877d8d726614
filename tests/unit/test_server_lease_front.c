/* The order in which open leases are granted. */
#include <criterion/criterion.h>

#include "server/lease/lease_front.h"

TestSuite(lease_front);

/* Each is granted before those after it. */
static const struct lease_place order[] = {
    {.priority = 7, .job = 9, .lease = 90}, {.priority = 7, .job = 9, .lease = 91},
    {.priority = 7, .job = 10, .lease = 5}, {.priority = 0, .job = 1, .lease = 1},
    {.priority = 0, .job = 2, .lease = 0},  {.priority = -3, .job = 0, .lease = 0},
};

Test(lease_front, places_are_ordered_by_priority_then_job_then_lease) {
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
      cr_expect_eq(lease_place_is_before(&order[i], &order[k]), i < k, "%zu and %zu", i, k);
}
