/* Sets of configs and digests as PostgreSQL writes them. */
#include <criterion/criterion.h>

#include "server/db/db_record.h"

TestSuite(values);

Test(values, sets_of_configs_are_multiranges) {
  cleanup_config_ranges struct config_ranges ranges = {0};
  config_ranges_add(&ranges, 0);
  config_ranges_add(&ranges, 1);
  config_ranges_add(&ranges, 5);
  cleanup_free char *text = multirange_format(&ranges);
  cr_expect_str_eq(text, "{[0,2),[5,6)}");
}

Test(values, multiranges_read_back) {
  cleanup_config_ranges struct config_ranges ranges = multirange_parse("{[0,48),[50,72)}");
  cr_assert_eq(ranges.n, 2);
  cr_expect_eq(ranges.ranges[1].first, 50);
  cr_expect_eq(ranges.ranges[1].count, 22);
}

Test(values, the_largest_ordinal_fits) {
  cleanup_config_ranges struct config_ranges ranges =
      multirange_parse("{[9223372036854775806,9223372036854775807)}");
  cr_assert_eq(ranges.n, 1);
  cr_expect_eq(ranges.ranges[0].first, INT64_MAX - 1);
  cr_expect_eq(ranges.ranges[0].count, 1);
}

Test(values, an_empty_set_is_an_empty_multirange) {
  struct config_ranges ranges = {0};
  cleanup_free char *text = multirange_format(&ranges);
  cr_expect_str_eq(text, "{}");
  cr_expect_eq(multirange_parse("{}").n, 0);
}

Test(values, digests_are_bytea_literals) {
  struct digest digest = digest_of("", 0);
  char text[BYTEA_TEXT_SIZE];
  cr_expect_str_eq(digest_bytea(&digest, text),
                   "\\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
