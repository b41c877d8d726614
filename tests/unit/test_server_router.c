/* Which route a request is, and who may call it. */
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

Test(router, what_the_braces_match_comes_decoded_and_in_order) {
  cr_assert_eq(find("PUT", "/v1/kernels/sha256%3Aaa/builds/b%2Fb"), ROUTE_FOUND);
  cr_expect_str_eq(segments[0], "sha256:aa");
  cr_expect_str_eq(segments[1], "b/b");
}

Test(router, head_is_get) {
  cr_assert_eq(find("HEAD", "/v1/blobs/x"), ROUTE_FOUND);
  cr_expect_eq(route->id, ROUTE_blob_get);
}

Test(router, another_method_says_which_there_are) {
  cr_expect_eq(find("PATCH", "/v1/jobs"), ROUTE_NO_METHOD);
  cr_expect_str_eq(allow, "POST, GET, HEAD");
  cr_expect_eq(find("GET", "/v1/leases"), ROUTE_NO_METHOD);
  cr_expect_str_eq(allow, "POST");
  cr_expect_eq(find("get", "/v1/jobs"), ROUTE_NO_METHOD);
}

Test(router, a_path_that_is_nearly_a_route_is_none) {
  static const char *const paths[] = {"/",
                                      "/v1",
                                      "/v1/jobs/",
                                      "//v1/jobs",
                                      "/v1//jobs",
                                      "/v1/jobs/1/",
                                      "/v1/jobs/1/x",
                                      "/v1/job",
                                      "/V1/jobs",
                                      "/v1/jobs/1/events/2",
                                      "/v1/blobs/",
                                      "/1/2/3/4/5/6/7/8/9/10"};
  for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
    cr_expect_eq(find("GET", paths[i]), ROUTE_NO_PATH, "%s", paths[i]);
}

Test(router, roles_may_what_the_table_says) {
  static const struct {
    enum token_role needed;
    bool anyone, reader, submitter, agent, demand, admin, enrol;
  } table[] = {
      {TOKEN_ANYONE, true, true, true, true, true, true, true},
      {TOKEN_ANY, false, true, true, true, false, true, false},
      {TOKEN_READER, false, true, true, false, false, true, false},
      {TOKEN_SUBMITTER, false, false, true, false, false, true, false},
      {TOKEN_AGENT, false, false, false, true, false, true, false},
      {TOKEN_DEMAND, false, false, false, false, true, true, false},
      {TOKEN_ENROL, false, false, false, false, false, true, false},
      {TOKEN_ADMIN, false, false, false, false, false, true, false},
      {TOKEN_WRITER, false, false, true, true, false, true, false},
      {TOKEN_ENROLLER, false, false, false, true, false, true, true},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(table); i++) {
    cr_expect_eq(role_may(TOKEN_ANYONE, table[i].needed), table[i].anyone);
    cr_expect_eq(role_may(TOKEN_READER, table[i].needed), table[i].reader);
    cr_expect_eq(role_may(TOKEN_SUBMITTER, table[i].needed), table[i].submitter);
    cr_expect_eq(role_may(TOKEN_AGENT, table[i].needed), table[i].agent);
    cr_expect_eq(role_may(TOKEN_DEMAND, table[i].needed), table[i].demand);
    cr_expect_eq(role_may(TOKEN_ADMIN, table[i].needed), table[i].admin);
    cr_expect_eq(role_may(TOKEN_ENROL, table[i].needed), table[i].enrol);
  }
}

Test(router, no_token_has_a_role_that_only_routes_ask_for) {
  enum token_role role;
  cr_expect_not(role_parse(role_name(TOKEN_WRITER), &role));
  cr_expect_not(role_parse(role_name(TOKEN_ANY), &role));
  cr_expect_not(role_parse(role_name(TOKEN_ENROLLER), &role));
}

Test(router, a_role_is_read_by_the_name_that_it_is_written_with) {
  static const enum token_role roles[] = {TOKEN_READER, TOKEN_SUBMITTER, TOKEN_AGENT,
                                          TOKEN_DEMAND, TOKEN_ENROL,     TOKEN_ADMIN};
  enum token_role role;
  for (size_t i = 0; i < ARRAY_LENGTH(roles); i++) {
    cr_assert(role_parse(role_name(roles[i]), &role));
    cr_expect_eq(role, roles[i]);
  }
  cr_expect_not(role_parse("anyone", &role));
  cr_expect_not(role_parse("root", &role));
}
