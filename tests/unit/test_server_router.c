/* The route of a request, and the roles that may call it. */
#include "server/http/router.h"

#include <criterion/criterion.h>

static const struct route *route;
static const char *segments[REQUEST_SEGMENTS_MAX];
static char allow[ROUTE_ALLOW_SIZE];
static struct uri uri;

static enum route_match find(const char *method, const char *target) {
  struct error error;
  uri_release(&uri);
  cr_assert(uri_parse(target, &uri, &error), "%s", error.message);
  return route_find(method, &uri, &route, segments, allow);
}

Test(router, every_route_of_the_table_is_found_by_its_own_path) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *wanted = route_of((enum route_id)id);
    cr_assert_eq(find(wanted->method, wanted->path), ROUTE_FOUND, "%s", wanted->path);
    cr_expect_eq((int)route->id, id, "%s %s", wanted->method, wanted->path);
  }
}

Test(router, segments_that_match_braces_are_decoded_and_in_order) {
  cr_assert_eq(find("PUT", "/v1/kernels/sha256%3Aaa/builds/b%2Fb"), ROUTE_FOUND);
  cr_expect_str_eq(segments[0], "sha256:aa");
  cr_expect_str_eq(segments[1], "b/b");
}

Test(router, head_is_get) {
  cr_assert_eq(find("HEAD", "/v1/blobs/x"), ROUTE_FOUND);
  cr_expect_eq(route->id, ROUTE_blob_get);
}

Test(router, another_method_is_refused_with_those_allowed) {
  cr_expect_eq(find("PATCH", "/v1/jobs"), ROUTE_NO_METHOD);
  cr_expect_str_eq(allow, "POST, GET, HEAD");
  cr_expect_eq(find("GET", "/v1/leases"), ROUTE_NO_METHOD);
  cr_expect_str_eq(allow, "POST");
  cr_expect_eq(find("get", "/v1/jobs"), ROUTE_NO_METHOD);
}

Test(router, a_path_of_words_is_not_one_of_an_id) {
  cr_assert_eq(find("POST", "/v1/captures/leases"), ROUTE_FOUND);
  cr_expect_eq(route->id, ROUTE_capture_lease);
  cr_expect_eq(find("DELETE", "/v1/captures/leases"), ROUTE_NO_METHOD);
  cr_expect_str_eq(allow, "POST");
  cr_assert_eq(find("DELETE", "/v1/captures/7"), ROUTE_FOUND);
  cr_expect_eq(route->id, ROUTE_capture_delete);
}

Test(router, a_path_that_is_nearly_a_route_does_not_match) {
  static const char *const paths[] = {"/web",         "/v1",
                                      "/v1/jobs/",    "//v1/jobs",
                                      "/v1//jobs",    "/v1/jobs/1/",
                                      "/v1/jobs/1/x", "/v1/job",
                                      "/V1/jobs",     "/v1/jobs/1/events/2",
                                      "/v1/blobs/",   "/1/2/3/4/5/6/7/8/9/10"};
  for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
    cr_expect_eq(find("GET", paths[i]), ROUTE_NO_PATH, "%s", paths[i]);
}

Test(router, a_token_may_call_a_route_that_one_of_its_roles_may) {
  cr_expect(roles_may(TOKEN_ANYONE, TOKEN_ANYONE));
  cr_expect(roles_may(TOKEN_DEMAND, TOKEN_ANYONE));
  cr_expect_not(roles_may(TOKEN_ANYONE, MAY_READ));
  cr_expect(roles_may(TOKEN_READER, MAY_READ));
  cr_expect_not(roles_may(TOKEN_SUBMITTER, MAY_PUBLISH));
  cr_expect(roles_may(TOKEN_SUBMITTER | TOKEN_PUBLISHER, MAY_PUBLISH));
}

Test(router, an_admin_may_call_every_route_and_each_role_one) {
  for (unsigned bit = 0; bit < TOKEN_ROLE_COUNT; bit++) {
    size_t n = 0;
    for (int id = 0; id < ROUTE_COUNT; id++) {
      const struct route *a_route = route_of((enum route_id)id);
      n += a_route->roles != TOKEN_ANYONE && roles_may(1u << bit, a_route->roles);
      cr_expect(roles_may(TOKEN_ADMIN, a_route->roles), "%s", a_route->name);
    }
    cr_expect_gt(n, 0, "role %u", bit);
  }
}

Test(router, roles_are_read_as_they_are_written) {
  struct error error;
  for (unsigned bit = 0; bit < TOKEN_ROLE_COUNT; bit++) {
    cleanup_free char *text = roles_text(1u << bit, ",");
    unsigned roles;
    cr_assert(roles_parse(text, &roles, &error));
    cr_expect_eq(roles, 1u << bit);
  }
  unsigned roles;
  cr_assert(roles_parse("publisher,submitter", &roles, &error));
  cr_expect_eq(roles, TOKEN_SUBMITTER | TOKEN_PUBLISHER);
  cleanup_free char *both = roles_text(roles, " or ");
  cr_expect_str_eq(both, "submitter or publisher");
}

Test(router, unknown_roles_and_roles_that_exclude_others_are_refused) {
  static const char *const wrong[] = {
      "",      "king",          "anyone",       "reader,",     ",reader",
      "Admin", "reader,reader", "admin,reader", "agent,enrol", "reader,agent"};
  struct error error;
  unsigned roles;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    cr_expect_not(roles_parse(wrong[i], &roles, &error), "%s", wrong[i]);
    cr_expect_str_eq(error.pointer, "/role");
  }
}

Test(router, a_coding_is_accepted_unless_it_is_absent_or_has_no_weight) {
  cr_expect(header_accepts("gzip, deflate, br, zstd", "gzip"));
  cr_expect(header_accepts("br;q=1.0, GZIP;q=0.5", "gzip"));
  cr_expect(header_accepts("deflate , gzip ; q=0.001", "gzip"));
  cr_expect_not(header_accepts(NULL, "gzip"));
  cr_expect_not(header_accepts("", "gzip"));
  cr_expect_not(header_accepts("identity, xgzip, gzip2", "gzip"));
  cr_expect_not(header_accepts("gzip;q=0, br", "gzip"));
  cr_expect_not(header_accepts(",,;", "gzip"));
}
