/* The OpenAPI document: it has exactly the routes of the table, and is consistent. */
#include <criterion/criterion.h>

#include "server/http/router.h"
#include "server/records.h"

static json_t *document;

static void setup(void) { document = openapi_document(); }
static void teardown(void) { json_decref(document); }

TestSuite(openapi, .init = setup, .fini = teardown);

static json_t *operation_of(const struct route *route) {
  char method[8] = "";
  for (size_t i = 0; route->method[i]; i++)
    method[i] = (char)(route->method[i] | 0x20);
  return json_object_get(json_object_get(json_object_get(document, "paths"), route->path), method);
}

Test(openapi, every_route_is_in_the_document) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    json_t *operation = operation_of(route);
    cr_assert_not_null(operation, "%s %s", route->method, route->path);
    cr_expect_str_eq(json_string_value(json_object_get(operation, "operationId")), route->name);
  }
}

Test(openapi, every_operation_of_the_document_is_a_route) {
  const char *path, *method;
  json_t *operations, *operation;
  size_t n = 0;
  json_object_foreach (json_object_get(document, "paths"), path, operations)
    json_object_foreach (operations, method, operation)
      n++;
  cr_expect_eq(n, ROUTE_COUNT);
}

Test(openapi, a_route_has_a_request_schema_exactly_when_it_takes_a_body) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    bool has_body = json_object_get(operation_of(route), "requestBody") != NULL;
    cr_expect_eq(has_body, route->body_max > 0, "%s", route->name);
  }
}

Test(openapi, every_operation_describes_its_answer_and_the_problem) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    json_t *responses = json_object_get(operation_of(route), "responses");
    cr_expect_not_null(json_object_get(responses, "default"), "%s", route->name);
    cr_expect_geq(json_object_size(responses), 2, "%s has no successful answer", route->name);
  }
}

Test(openapi, only_routes_that_need_no_token_have_empty_security) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    bool is_open = json_object_get(operation_of(route), "security") != NULL;
    cr_expect_eq(is_open, route->roles == TOKEN_ANYONE, "%s", route->name);
  }
}

/* Calls `visit` with every "$ref" of a value. */
static void references_visit(const json_t *value, void (*visit)(const char *reference)) {
  const char *name;
  json_t *member;
  size_t i;
  if (json_is_string(json_object_get(value, "$ref")))
    visit(json_string_value(json_object_get(value, "$ref")));
  json_object_foreach ((json_t *)value, name, member)
    references_visit(member, visit);
  json_array_foreach (value, i, member)
    references_visit(member, visit);
}

static json_t *used;

static void reference_check(const char *reference) {
  char path[128];
  char *rest = NULL;
  json_t *at = document;
  snprintf(path, sizeof path, "%s", reference);
  for (char *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest))
    if (strcmp(part, "#") != 0)
      at = json_object_get(at, part);
  cr_expect_not_null(at, "%s leads nowhere", reference);
  json_object_set_new(used, strrchr(reference, '/') + 1, json_true());
}

Test(openapi, all_references_resolve_and_no_schema_is_unused) {
  const char *name;
  json_t *schema;
  used = json_object();
  references_visit(document, reference_check);
  json_object_foreach (json_object_get(json_object_get(document, "components"), "schemas"), name,
                       schema)
    cr_expect_not_null(json_object_get(used, name), "schema %s is unused", name);
  json_decref(used);
}

Test(openapi, a_path_has_exactly_the_parameters_in_its_braces) {
  json_t *parameters = json_object_get(operation_of(route_of(ROUTE_build_put)), "parameters");
  cr_assert_eq(json_array_size(parameters), 2);
  cr_expect_str_eq(json_string_value(json_object_get(json_array_get(parameters, 0), "name")),
                   "hash");
  cr_expect_str_eq(json_string_value(json_object_get(json_array_get(parameters, 1), "name")),
                   "digest");
}

Test(openapi, the_text_is_the_document) {
  cleanup_free char *text = openapi_text();
  cleanup_json json_t *read = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &read, &error), "%s", error.message);
  cr_expect(json_equal(read, document));
}
