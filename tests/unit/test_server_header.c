/* Range, entity tags, bearer tokens, Content-Length. */
#include "server/http/router.h"

#include <criterion/criterion.h>

static size_t first, last;

static void expect_part(const char *value, size_t size, size_t wanted_first, size_t wanted_last) {
  cr_assert_eq(header_range(value, size, &first, &last), RANGE_PART, "%s", value);
  cr_expect_eq(first, wanted_first, "%s: from %zu", value, first);
  cr_expect_eq(last, wanted_last, "%s: to %zu", value, last);
}

Test(range, both_ends_are_included) { expect_part("bytes=0-0", 10, 0, 0); }

Test(range, an_end_after_the_last_byte_is_the_last_byte) {
  expect_part("bytes=3-100", 10, 3, 9);
  expect_part("bytes=3-99999999999999999999999999", 10, 3, 9);
}

Test(range, without_an_end_it_goes_to_the_last_byte) { expect_part("bytes=7-", 10, 7, 9); }

Test(range, without_a_start_it_is_that_many_last_bytes) {
  expect_part("bytes=-3", 10, 7, 9);
  expect_part("bytes=-30", 10, 0, 9);
}

Test(range, a_start_after_the_last_byte_is_unsatisfiable) {
  static const char *const wrong[] = {"bytes=10-", "bytes=10-11", "bytes=-0",
                                      "bytes=99999999999999999999999-"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_eq(header_range(wrong[i], 10, &first, &last), RANGE_UNSATISFIABLE, "%s", wrong[i]);
  cr_expect_eq(header_range("bytes=0-", 0, &first, &last), RANGE_UNSATISFIABLE);
  cr_expect_eq(header_range("bytes=-1", 0, &first, &last), RANGE_UNSATISFIABLE);
}

Test(range, anything_but_one_range_of_bytes_is_ignored) {
  static const char *const ignored[] = {"",           "bytes",     "bytes=",    "bytes=-",
                                        "bytes=a-b",  "lines=1-2", "bytes=5-4", "bytes=1-2,4-5",
                                        "bytes=1-2x", "bytes 1-2", "bytes=--1", "bytes=1"};
  for (size_t i = 0; i < ARRAY_LENGTH(ignored); i++)
    cr_expect_eq(header_range(ignored[i], 10, &first, &last), RANGE_WHOLE, "%s", ignored[i]);
}

Test(etag, a_list_may_have_the_tag_in_any_place_weak_or_strong) {
  static const char *const lists[] = {"\"a\"", "W/\"a\"", "\"b\", \"a\"", "\"b\",W/\"a\" , \"c\"",
                                      "*",     ", \"a\"", " \t\"a\"",     "\"x,y\", \"a\""};
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++)
    cr_expect(header_etag_listed(lists[i], "a"), "%s", lists[i]);
}

Test(etag, a_list_without_the_tag_does_not_match) {
  static const char *const lists[] = {"",    "a",  "\"ab\"",   "\"\"",    "\"a", "\"b\" a",
                                      "W/a", "**", "\"b\", *", "w/\"a\"", "'a'", "\"A\""};
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++)
    cr_expect_not(header_etag_listed(lists[i], "a"), "%s", lists[i]);
}

Test(bearer, the_scheme_is_read_in_any_case) {
  cr_expect_str_eq(header_bearer("Bearer wt_1"), "wt_1");
  cr_expect_str_eq(header_bearer("bearer  wt_1"), "wt_1");
}

Test(bearer, a_malformed_token_is_refused) {
  static const char *const wrong[] = {"",           "Bearer",      "Bearer ",        "Basic abc",
                                      "Bearer a b", "Bearer a\tb", "Bearer \xc3\xa4"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_null(header_bearer(wrong[i]), "%s", wrong[i]);
  char longest[7 + 8193 + 1] = "Bearer ";
  memset(longest + 7, 'a', 8193);
  longest[7 + 8193] = '\0';
  cr_expect_null(header_bearer(longest));
  longest[7 + 8192] = '\0';
  cr_expect_not_null(header_bearer(longest));
}

Test(length, only_decimal_digits_are_a_length) {
  static const char *const wrong[] = {"",   "-1",   "+1",  " 1",
                                      "1 ", "0x10", "1,1", "99999999999999999999999"};
  uint64_t size = 0;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_not(header_size(wrong[i], &size), "%s", wrong[i]);
  cr_assert(header_size("67108864", &size));
  cr_expect_eq(size, 67108864);
}
