/* Makes the OpenAPI document from the routes, their operations and the schemas. Pure functions. */
#include "server/http/openapi.h"

#include "server/http/openapi_schemas.h"
#include "server/http/response.h"
#include "server/records.h"

static json_t *text_parse(const char *text, size_t size) {
  json_t *value;
  struct error error;
  if (!json_parse(text, size, &value, &error))
    die("openapi: %s", error.message);
  return value;
}

static json_t *schema_reference(const char *name) {
  cleanup_free char *reference = xasprintf("#/components/schemas/%s", name);
  return json_pack("{s:s}", "$ref", reference);
}

static json_t *content(const char *type, const char *schema) {
  return json_pack("{s:{s:o}}", type, "schema", schema_reference(schema));
}

static json_t *path_parameters(const char *path) {
  json_t *parameters = json_array();
  for (const char *open = strchr(path, '{'); open; open = strchr(open + 1, '{')) {
    cleanup_free char *name = xstrndup(open + 1, strcspn(open + 1, "}"));
    const char *schema =
        strcmp(name, "digest") == 0 || strcmp(name, "hash") == 0 ? "Digest" : "Text";
    json_array_append_new(parameters, json_pack("{s:s, s:s, s:b, s:o}", "name", name, "in", "path",
                                                "required", 1, "schema", schema_reference(schema)));
  }
  return parameters;
}

static void query_parameters_add(json_t *parameters, const json_t *queries, const char *names) {
  cleanup_free char *copy = xstrdup(names);
  char *rest = NULL;
  for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
    const json_t *query = json_object_get(queries, name);
    if (!query)
      die("openapi: the query argument \"%s\" is not described", name);
    json_t *parameter = json_pack("{s:s, s:s}", "name", name, "in", "query");
    json_object_update(parameter, (json_t *)query);
    json_array_append_new(parameters, parameter);
  }
}

static json_t *responses(const struct openapi_operation *operation) {
  json_t *all = json_object();
  cleanup_free char *copy = xstrdup(operation->statuses);
  char *rest = NULL;
  for (char *status = strtok_r(copy, " ", &rest); status; status = strtok_r(NULL, " ", &rest)) {
    int number = (int)strtol(status, NULL, 10);
    json_t *response = json_pack("{s:s}", "description", status_title(number));
    bool has_body =
        operation->answer && number != MHD_HTTP_NO_CONTENT && number != MHD_HTTP_NOT_MODIFIED;
    if (has_body)
      json_object_set_new(response, "content", content(operation->answer_type, operation->answer));
    json_object_set_new(all, status, response);
  }
  json_object_set_new(all, "default", json_pack("{s:s}", "$ref", "#/components/responses/Problem"));
  return all;
}

static json_t *roles_array(unsigned roles) {
  json_t *array = json_array();
  for (unsigned bit = 0; bit < TOKEN_ROLE_COUNT; bit++)
    if (roles & 1u << bit) {
      cleanup_free char *name = roles_text(1u << bit, "");
      ALWAYS(json_array_append_new(array, json_string(name)) == 0);
    }
  return array;
}

static json_t *operation_make(const struct route *route, const json_t *queries) {
  const struct openapi_operation *operation = &openapi_operations[route->id];
  json_t *parameters = path_parameters(route->path);
  query_parameters_add(parameters, queries, operation->query);
  json_t *made =
      json_pack("{s:s, s:s, s:o, s:o}", "operationId", route->name, "summary", route->summary,
                "parameters", parameters, "responses", responses(operation));
  if (operation->request)
    json_object_set_new(made, "requestBody",
                        json_pack("{s:b, s:o}", "required", 1, "content",
                                  content(operation->request_type, operation->request)));
  if (route->roles == TOKEN_ANYONE)
    json_object_set_new(made, "security", json_array());
  else
    json_object_set_new(made, "x-roles", roles_array(route->roles));
  return made;
}

static json_t *paths_make(void) {
  cleanup_json json_t *queries = text_parse(openapi_queries, strlen(openapi_queries));
  json_t *paths = json_object();
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    char method[8];
    size_t i = 0;
    for (; route->method[i]; i++)
      method[i] = (char)(route->method[i] | 0x20);
    method[i] = '\0';
    json_t *path = json_object_get(paths, route->path);
    if (!path) {
      path = json_object();
      json_object_set_new(paths, route->path, path);
    }
    json_object_set_new(path, method, operation_make(route, queries));
  }
  return paths;
}

static json_t *schemas_make(void) {
  json_t *schemas = text_parse(openapi_schemas, strlen(openapi_schemas));
  for (const struct server_record *each = server_records; each->record; each++)
    if (each->record->name) {
      ALWAYS(!json_object_get(schemas, each->record->name));
      ALWAYS(json_object_set_new(schemas, each->record->name, record_schema(each->record)) == 0);
    }
  return schemas;
}

json_t *openapi_document(void) {
  json_t *problem = json_pack("{s:s, s:o}", "description", "A problem document (RFC 9457)",
                              "content", content("application/problem+json", "Problem"));
  json_t *components =
      json_pack("{s:{s:{s:s, s:s}}, s:{s:o}, s:o}", "securitySchemes", "token", "type", "http",
                "scheme", "bearer", "responses", "Problem", problem, "schemas", schemas_make());
  json_t *document =
      json_pack("{s:s, s:{s:s, s:s, s:s}, s:[{s:[]}], s:o, s:o}", "openapi", "3.1.0", "info",
                "title", "wavetune", "version", WAVETUNE_VERSION, "description",
                "Cluster-wide tuning of GPU kernels: see docs/api.md", "security", "token", "paths",
                paths_make(), "components", components);
  ALWAYS(document != NULL);
  return document;
}

char *openapi_text(void) {
  cleanup_json json_t *document = openapi_document();
  char *text = json_dumps(document, JSON_COMPACT);
  ALWAYS(text != NULL);
  return text;
}
