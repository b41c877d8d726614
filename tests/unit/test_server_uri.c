/* Request targets: segments, percent-encoding, queries, and what is refused. */
#include "server/http/router.h"

#include <criterion/criterion.h>

static struct error error;

static struct uri parsed(const char *target) {
  struct uri uri;
  cr_assert(uri_parse(target, &uri, &error), "%s: %s", target, error.message);
  return uri;
}

Test(uri, a_path_is_split_before_it_is_decoded) {
  struct uri uri = parsed("/v1/a%2Fb/c%20d");
  cr_assert_eq(uri.n_segments, 3);
  cr_expect_str_eq(uri.segments[0], "v1");
  cr_expect_str_eq(uri.segments[1], "a/b");
  cr_expect_str_eq(uri.segments[2], "c d");
  uri_release(&uri);
}

Test(uri, query_arguments_are_decoded_and_found_by_name) {
  struct uri uri = parsed("/x?gpu=AMD+Instinct%20MI300X&partition=SPX%2FNPS1&empty=&bare&a%3D=1");
  cr_expect_str_eq(uri_query(&uri, "gpu"), "AMD Instinct MI300X");
  cr_expect_str_eq(uri_query(&uri, "partition"), "SPX/NPS1");
  cr_expect_str_eq(uri_query(&uri, "empty"), "");
  cr_expect_str_eq(uri_query(&uri, "bare"), "");
  cr_expect_str_eq(uri_query(&uri, "a="), "1");
  cr_expect_null(uri_query(&uri, "absent"));
  uri_release(&uri);
}

Test(uri, a_plus_in_a_path_is_a_plus) {
  struct uri uri = parsed("/a+b");
  cr_expect_str_eq(uri.segments[0], "a+b");
  uri_release(&uri);
}

Test(uri, an_absolute_target_is_its_path) {
  struct uri uri = parsed("http://host:7200/healthz?x=1"), root = parsed("https://host");
  cr_expect_str_eq(uri.segments[0], "healthz");
  cr_expect_str_eq(uri_query(&uri, "x"), "1");
  cr_expect_eq(root.n_segments, 1);
  cr_expect_str_eq(root.segments[0], "");
  uri_release(&uri);
  uri_release(&root);
}

Test(uri, segments_beyond_the_limit_are_counted_but_not_stored) {
  struct uri uri = parsed("/1/2/3/4/5/6/7/8/9/10");
  cr_expect_eq(uri.n_segments, 10);
  cr_expect_str_eq(uri.segments[URI_SEGMENTS_MAX - 1], "8");
  uri_release(&uri);
}

Test(uri, a_malformed_target_is_refused) {
  static const char *const wrong[] = {"",        "*",          "v1",          "/%",      "/%4",
                                      "/%zz",    "/%00",       "/a?b=%0",     "/a?%00=", "/%ff",
                                      "/%c0%80", "/a?x=1&x=2", "/?%ED%A0%80", "/a%2",    "/%2g"};
  struct uri uri;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_not(uri_parse(wrong[i], &uri, &error), "\"%s\" was taken", wrong[i]);
}

Test(uri, more_query_arguments_than_any_route_has_are_refused) {
  char target[256] = "/a?";
  for (int i = 0; i <= URI_QUERY_MAX; i++)
    snprintf(target + strlen(target), sizeof target - strlen(target), "%d=&", i);
  struct uri uri;
  cr_expect_not(uri_parse(target, &uri, &error));
  cr_expect(strstr(error.message, "more than"));
}
