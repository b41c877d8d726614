/* Times of RFC 3339, the one way to write what is signed, durations. */
#include "common/base/time.h"

#include <criterion/criterion.h>

Test(time, is_read_with_fractions_and_offsets) {
  int64_t us;
  cr_assert(time_parse("1970-01-01T00:00:01Z", &us));
  cr_assert_eq(us, 1000000);
  cr_assert(time_parse("2026-11-21T07:05:00.25Z", &us));
  cr_assert_eq(us, 1795244700250000);
  cr_assert(time_parse("2026-11-21t09:05:00.2500009+02:00", &us));
  cr_assert_eq(us, 1795244700250000);
  cr_assert(time_parse("2026-11-21 05:35:00.25-01:30", &us));
  cr_assert_eq(us, 1795244700250000);
}

Test(time, refuses_other_texts) {
  static const char *const wrong[] = {"",
                                      "2026-11-21",
                                      "2026-11-21T07:05Z",
                                      "2026-11-21T07:05:00",
                                      "2026-02-29T07:05:00Z",
                                      "2026-13-01T07:05:00Z",
                                      "2026-00-01T07:05:00Z",
                                      "2026-01-00T07:05:00Z",
                                      "2026-01-01T24:00:00Z",
                                      "2026-01-01T00:60:00Z",
                                      "2026-01-01T00:00:61Z",
                                      "2026-01-01T00:00:00.Z",
                                      "2026-01-01T00:00:00Zx",
                                      "2026-01-01T00:00:00+24:00",
                                      "2026-01-01T00:00:00+02",
                                      "1969-12-31T23:59:59Z",
                                      "1970-01-01T00:59:59+01:00"};
  int64_t us;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_assert_not(time_parse(wrong[i], &us), "%s", wrong[i]);
}

Test(time_text, reads_and_writes_the_same) {
  static const struct {
    const char *text;
    int64_t s;
  } times[] = {{"1970-01-01T00:00:00Z", 0},
               {"2024-02-29T23:59:59Z", 1709251199},
               {"9999-12-31T23:59:59Z", 253402300799}};
  for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
    int64_t s = -1;
    char text[TIME_TEXT_SIZE];
    cr_expect(time_text_parse(times[i].text, &s), "%s", times[i].text);
    cr_expect_eq(s, times[i].s);
    cr_expect_str_eq(time_text_format(s, text), times[i].text);
  }
}

Test(time_text, refuses_other_texts) {
  static const char *const texts[] = {
      "",
      "2026-12-24",
      "2026-12-24T00:00:00",
      "2026-12-24T00:00:00+00:00",
      "2026-12-24T00:00:00Z ",
      "2026-12-24 00:00:00Z",
      "2026-12-24t00:00:00z",
      "2026-12-24T00:00:00.5Z",
      "2026-02-29T00:00:00Z",
      "2026-13-01T00:00:00Z",
      "2026-00-01T00:00:00Z",
      "2026-01-00T00:00:00Z",
      "2026-01-01T24:00:00Z",
      "2026-01-01T00:60:00Z",
      "2026-06-30T23:59:60Z",
      "1969-12-31T23:59:59Z",
      "20 6-01-01T00:00:00Z",
      "+026-01-01T00:00:00Z",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    int64_t s = -1;
    cr_expect_not(time_text_parse(texts[i], &s), "%s", texts[i]);
    cr_expect_eq(s, -1);
  }
}

Test(duration, is_a_number_and_a_unit) {
  static const struct {
    const char *text;
    int64_t ms;
  } durations[] = {{"0d", 0},         {"90s", 90000},    {"30m", 1800000},
                   {"12h", 43200000}, {"7d", 604800000}, {"36500d", DURATION_MS_MAX}};
  for (size_t i = 0; i < ARRAY_LENGTH(durations); i++) {
    int64_t ms = -1;
    cr_expect(duration_parse(durations[i].text, &ms), "%s", durations[i].text);
    cr_expect_eq(ms, durations[i].ms, "%s", durations[i].text);
  }
}

Test(duration, refuses_other_texts) {
  static const char *const wrong[] = {"",
                                      "d",
                                      "7",
                                      "-1d",
                                      "+1d",
                                      " 1d",
                                      "1d ",
                                      "1.5h",
                                      "1w",
                                      "7D",
                                      "99999999999999999999s",
                                      "1dd",
                                      "0x1d",
                                      "36501d",
                                      "9223372036854775807d"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    int64_t ms = -1;
    cr_expect_not(duration_parse(wrong[i], &ms), "%s", wrong[i]);
    cr_expect_eq(ms, -1);
  }
}

Test(span, is_written_in_the_unit_that_people_use) {
  char text[SPAN_TEXT_SIZE];
  cr_expect_str_eq(span_format(45, text), "45 s");
  cr_expect_str_eq(span_format(840, text), "14 min");
  cr_expect_str_eq(span_format(11520, text), "3.2 h");
  cr_expect_str_eq(span_format(216000, text), "2.5 days");
}
