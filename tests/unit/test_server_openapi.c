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

static const json_t *resolved(const json_t *schema) {
  for (const char *reference; (reference = json_string_value(json_object_get(schema, "$ref")));) {
    cleanup_free char *path = xstrdup(reference);
    char *rest = NULL;
    schema = document;
    for (char *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest))
      if (strcmp(part, "#") != 0)
        schema = json_object_get(schema, part);
  }
  return schema;
}

/* Whether a schema describes what a JSON Pointer points at. An object of any members does. */
static bool schema_has(const json_t *schema, const char *pointer) {
  schema = resolved(schema);
  const char *next = strchr(pointer, '/');
  static const char *const ways[] = {"anyOf", "oneOf", NULL};
  size_t i;
  const json_t *each;
  if (!schema || !next)
    return schema != NULL;
  for (const char *const *way = ways; *way; way++)
    json_array_foreach (json_object_get(schema, *way), i, each)
      if (schema_has(each, pointer))
        return true;

  cleanup_free char *name = xstrndup(next + 1, strcspn(next + 1, "/"));
  const json_t *members = json_object_get(schema, "properties"),
               *items = json_object_get(schema, "items");
  if (items)
    return strcmp(name, "0") == 0 && schema_has(items, next + 1);
  if (!members)
    return strcmp(json_string_value(json_object_get(schema, "type")), "object") == 0;
  return json_object_get(members, name) && schema_has(json_object_get(members, name), next + 1);
}

static const json_t *body_schema(const json_t *with_content) {
  void *first = json_object_iter(json_object_get(with_content, "content"));
  return first ? json_object_get(json_object_iter_value(first), "schema") : NULL;
}

static bool has_parameter(const json_t *operation, const char *in, const char *name) {
  size_t i;
  const json_t *each;
  json_array_foreach (json_object_get(operation, "parameters"), i, each)
    if (string_equal(json_string_value(json_object_get(each, "name")), name) &&
        (!in || string_equal(json_string_value(json_object_get(each, "in")), in)))
      return true;
  return false;
}

/* Whether the operation's answer or request has what an expression takes from it. */
static bool expression_is_good(const json_t *operation, const json_t *response,
                               const char *expression) {
  static const char of_answer[] = "$response.body#", of_body[] = "$request.body#",
                    of_path[] = "$request.path.", of_query[] = "$request.query.";
#define BEHIND(start) (string_starts(expression, start) ? expression + strlen(start) : NULL)
  const char *rest;
  if ((rest = BEHIND(of_answer)))
    return schema_has(body_schema(response), rest);
  if ((rest = BEHIND(of_body)))
    return schema_has(body_schema(json_object_get(operation, "requestBody")), rest);
  if ((rest = BEHIND(of_path)))
    return has_parameter(operation, "path", rest);
  return (rest = BEHIND(of_query)) && has_parameter(operation, "query", rest);
#undef BEHIND
}

static const struct route *route_of_id(const char *id) {
  for (int i = 0; i < ROUTE_COUNT; i++)
    if (string_equal(route_of((enum route_id)i)->name, id))
      return route_of((enum route_id)i);
  return NULL;
}

Test(openapi, each_link_leads_from_what_an_answer_has_to_an_operation_that_takes_it) {
  size_t n = 0;
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const json_t *operation = operation_of(route_of((enum route_id)id));
    const char *status, *target, *name;
    json_t *response, *link, *expression;
    json_object_foreach (json_object_get(operation, "responses"), status, response)
      json_object_foreach (json_object_get(response, "links"), target, link) {
        const struct route *to =
            route_of_id(json_string_value(json_object_get(link, "operationId")));
        cr_assert_not_null(to, "%s: %s", route_of((enum route_id)id)->name, target);
        json_object_foreach (json_object_get(link, "parameters"), name, expression)
          cr_expect(has_parameter(operation_of(to), NULL, name) &&
                        expression_is_good(operation, response, json_string_value(expression)),
                    "%s to %s: %s", route_of((enum route_id)id)->name, target, name);
        json_object_foreach (json_object_get(link, "requestBody"), name, expression) {
          cleanup_free char *pointer = xasprintf("/%s", name);
          const json_t *body = body_schema(json_object_get(operation_of(to), "requestBody"));
          cr_expect(schema_has(body, pointer) &&
                        expression_is_good(operation, response, json_string_value(expression)),
                    "%s to %s: member %s", route_of((enum route_id)id)->name, target, name);
        }
        n++;
      }
  }
  cr_expect_gt(n, 50);
}

Test(openapi, every_operation_on_a_thing_is_reached_by_a_link) {
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    /* The names of the page's files are in the page. */
    if (!strchr(route->path, '{') || strcmp(route->method, "PUT") == 0 || id == ROUTE_page_file)
      continue;
    bool is_reached = false;
    for (int from = 0; from < ROUTE_COUNT; from++) {
      const char *status;
      json_t *response;
      json_object_foreach (
          json_object_get(operation_of(route_of((enum route_id)from)), "responses"), status,
          response)
        is_reached |= json_object_get(json_object_get(response, "links"), route->name) != NULL;
    }
    cr_expect(is_reached, "no link leads to %s", route->name);
  }
}

Test(openapi, the_text_is_the_document) {
  cleanup_free char *text = openapi_text();
  cleanup_json json_t *read = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &read, &error), "%s", error.message);
  cr_expect(json_equal(read, document));
}
