/* Which of several requests for one answer makes it, and which wait. */
#include "server/http/flights.h"

#include <criterion/criterion.h>

static struct flights *flights;

static void setup(void) { flights = flights_new(); }
static void teardown(void) { flights_free(flights); }

TestSuite(flights, .init = setup, .fini = teardown);

Test(flights, the_first_request_leads_and_the_others_wait) {
  uint64_t first = 0, second = 0, other = 0;
  cr_expect_eq(flights_begin(flights, 7, &first), FLIGHT_LEADS);
  cr_expect_eq(flights_begin(flights, 7, &second), FLIGHT_WAITS);
  cr_expect_eq(flights_begin(flights, 7, &second), FLIGHT_WAITS, "it looks again");
  cr_expect_eq(flights_begin(flights, 8, &other), FLIGHT_LEADS, "another answer");
  flights_end(flights, 7);
  flights_end(flights, 8);
}

Test(flights, a_request_waits_for_one_flight_only) {
  uint64_t first = 0, waits = 0, later = 0;
  cr_expect_eq(flights_begin(flights, 7, &first), FLIGHT_LEADS);
  cr_expect_eq(flights_begin(flights, 7, &waits), FLIGHT_WAITS);
  flights_end(flights, 7);
  cr_expect_eq(flights_begin(flights, 7, &later), FLIGHT_LEADS);
  cr_expect_eq(flights_begin(flights, 7, &waits), FLIGHT_ALONE, "while the next flight is there");
  flights_end(flights, 7);
  cr_expect_eq(flights_begin(flights, 7, &waits), FLIGHT_ALONE, "and after it");
}

Test(flights, with_too_many_flights_a_request_makes_its_own_answer) {
  uint64_t number;
  for (uint64_t key = 0; key < FLIGHTS_MAX; key++) {
    number = 0;
    cr_expect_eq(flights_begin(flights, key, &number), FLIGHT_LEADS);
  }
  number = 0;
  cr_expect_eq(flights_begin(flights, FLIGHTS_MAX, &number), FLIGHT_ALONE);
  for (uint64_t key = 0; key < FLIGHTS_MAX; key++)
    flights_end(flights, key);
}
