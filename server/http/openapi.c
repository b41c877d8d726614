/* Makes the OpenAPI document from the table of routes, the records, and openapi.json, which has
 * what is written by hand: the queries, bodies and answers of routes, the links between them, and
 * schemas that are not records. */
#include "common/node/environment.h"
#include "server/records.h"

#include "common/regime/regime.h"
#include "server/http/http_private.h"
#include "server/http/request_private.h"

extern const char openapi_json[];

const struct server_record server_records[] = {
#define X(variable, table) {&variable, table},
    SERVER_RECORDS(X)
#undef X
        {NULL, NULL}};

static json_t *schema_reference(const char *name) {
  cleanup_free char *reference = xasprintf("#/components/schemas/%s", name);
  return json_pack("{s:s}", "$ref", reference);
}

static json_t *content(const char *type, const char *schema) {
  return json_pack("{s:{s:o}}", type ? type : "application/json", "schema",
                   schema_reference(schema));
}

static json_t *parameters_make(const char *path, const json_t *names, const json_t *queries) {
  json_t *parameters = json_array(), *name;
  for (const char *open = strchr(path, '{'); open; open = strchr(open + 1, '{')) {
    cleanup_free char *segment = xstrndup(open + 1, strcspn(open + 1, "}"));
    bool is_digest = strcmp(segment, "digest") == 0 || strcmp(segment, "hash") == 0;
    json_push(parameters,
              json_pack("{s:s, s:s, s:b, s:o}", "name", segment, "in", "path", "required", 1,
                        "schema", schema_reference(is_digest ? "Digest" : "Text")));
  }

  size_t i;
  json_array_foreach (names, i, name) {
    json_t *query = json_object_get(queries, json_string_value(name));
    if (!query)
      die("openapi.json: the query argument \"%s\" is not described", json_string_value(name));
    json_t *parameter = json_pack("{s:O, s:s}", "name", name, "in", "query");
    json_object_update(parameter, query);
    json_push(parameters, parameter);
  }

  return parameters;
}

static json_t *operation_make(const struct route *route, const json_t *all) {
  int any_query; /* query_check */
  const char *request = NULL, *request_type = NULL, *answer = NULL, *answer_type = NULL;
  json_t *statuses, *status, *query = NULL;
  json_t *operation = json_object_get(json_object_get(all, "operations"), route->name);
  if (json_unpack(operation, "{s?b, s?o, s?s, s?s, s:o, s?s, s?s !}", "any_query", &any_query,
                  "query", &query, "request", &request, "request_type", &request_type, "statuses",
                  &statuses, "answer", &answer, "answer_type", &answer_type))
    die("openapi.json: the operation \"%s\" is not described", route->name);

  size_t i;
  json_t *responses = json_object();
  json_array_foreach (statuses, i, status) {
    int number = (int)json_integer_value(status);
    char text[8];
    snprintf(text, sizeof text, "%d", number);
    json_t *response = json_pack("{s:s}", "description", status_title(number));
    if (answer && number != 204 && number != 304)
      json_put(response, "content", content(answer_type, answer));
    json_put(responses, text, response);
  }

  json_put(responses, "default", json_pack("{s:s}", "$ref", "#/components/responses/Problem"));
  if (request) /* over the limit of its route */
    json_put(responses, "413", json_pack("{s:s}", "$ref", "#/components/responses/Problem"));

  const json_t *queries = json_object_get(all, "queries");
  json_t *made =
      json_pack("{s:s, s:s, s:o, s:o}", "operationId", route->name, "summary", route->summary,
                "parameters", parameters_make(route->path, query, queries), "responses", responses);
  if (request)
    json_put(made, "requestBody",
             json_pack("{s:b, s:o}", "required", 1, "content", content(request_type, request)));

  if (route->roles == TOKEN_ANYONE) {
    json_put(made, "security", json_array());
    return made;
  }

  json_t *roles = json_array();
  for (unsigned bit = 1; bit < 1u << TOKEN_ROLE_COUNT; bit <<= 1)
    if (route->roles & bit) {
      cleanup_free char *name = roles_text(bit, "");
      json_push(roles, json_string(name));
    }

  json_put(made, "x-roles", roles);
  return made;
}

static bool names_have(const json_t *names, const char *name) {
  size_t i;
  const json_t *each;
  json_array_foreach (names, i, each)
    if (string_equal(json_string_value(each), name))
      return true;
  return false;
}

/* Adds the links to the answers of an operation: from each of "from" to each of "to", with
 * parameters of its path or query, and members of its body, that the answer or its request has. An
 * answer without a body has no link that needs one. */
static void links_add(json_t *operation, const json_t *all) {
  const char *id = json_string_value(json_object_get(operation, "operationId")), *status;
  json_t *link, *response;
  size_t i, k;
  json_array_foreach (json_object_get(all, "links"), i, link) {
    json_t *from, *to, *parameters = NULL, *body = NULL, *target;
    if (json_unpack(link, "{s:o, s:o, s?o, s?o !}", "from", &from, "to", &to, "parameters",
                    &parameters, "body", &body))
      die("openapi.json: link %zu is not {from, to, parameters, body}", i);
    if (!names_have(from, id))
      continue;

    cleanup_free char *text = json_dumps(link, 0);
    json_object_foreach (json_object_get(operation, "responses"), status, response) {
      if (status[0] != '2' || (!json_object_get(response, "content") && strstr(text, "$response")))
        continue;
      json_t *links = json_object_get(response, "links");
      if (!links)
        json_put(response, "links", links = json_object());
      json_array_foreach (to, k, target) {
        json_t *made = json_pack("{s:O}", "operationId", target);
        if (parameters)
          json_put(made, "parameters", json_incref(parameters));
        if (body)
          json_put(made, "requestBody", json_incref(body));
        ALWAYS(!json_object_get(links, json_string_value(target)));
        json_put(links, json_string_value(target), made);
      }
    }
  }
}

static json_t *paths_make(const json_t *all) {
  json_t *paths = json_object();
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    char method[8] = "";
    for (size_t i = 0; route->method[i]; i++)
      method[i] = (char)(route->method[i] | 0x20);

    if (!json_object_get(paths, route->path))
      json_put(paths, route->path, json_object());
    json_t *operation = operation_make(route, all);
    links_add(operation, all);
    json_put(json_object_get(paths, route->path), method, operation);
  }

  return paths;
}

/* A schema {"page_of": "Item"} is that of a page of a list of items. That of a regime is
 * made of their table. */
static json_t *schemas_make(json_t *schemas) {
  const char *name;
  json_t *schema;
  json_object_foreach (schemas, name, schema) {
    const char *item = json_string_value(json_object_get(schema, "page_of"));
    if (item)
      json_put(schemas, name,
               json_pack("{s:s, s:[s, s], s:{s:{s:s, s:o}, s:o}}", "type", "object", "required",
                         "items", "next", "properties", "items", "type", "array", "items",
                         schema_reference(item), "next", schema_reference("Next")));
  }

  json_t *regimes = json_array();
  for (size_t i = 0; regime_names[i]; i++)
    json_push(regimes, json_string(regime_names[i]));
  json_put(schemas, "Regime",
           json_pack("{s:s, s:o, s:s}", "type", "string", "enum", regimes, "default",
                     regime_name(REGIME_IMPLIED)));

  for (const struct server_record *each = server_records; each->record; each++)
    if (each->record->name) {
      ALWAYS(!json_object_get(schemas, each->record->name));
      json_put(schemas, each->record->name, record_schema(each->record));
    }

  return json_incref(schemas);
}

static json_t *described_load(void) {
  json_t *all = NULL;
  struct error error;
  if (!json_parse(openapi_json, strlen(openapi_json), &all, &error))
    die("openapi.json: %s", error.message);
  return all;
}

json_t *openapi_operations(void) {
  cleanup_json json_t *all = described_load();
  return json_incref(json_object_get(all, "operations"));
}

bool query_check(const struct request *request, struct error *error) {
  const struct uri *uri = &request_private_of(request)->uri;
  const json_t *operation =
      json_object_get(server_http(request->server)->operations, route_of(request->route)->name);
  bool is_any = json_object_get(operation, "any_query");
  for (size_t i = 0; !is_any && i < uri->n_query; i++)
    if (!names_have(json_object_get(operation, "query"), uri->query[i].name))
      return error_set(error, "unknown query argument \"%.64s\"", uri->query[i].name);
  return true;
}

json_t *openapi_document(void) {
  cleanup_json json_t *all = described_load();
  json_t *document = json_pack(
      "{s:s, s:{s:s, s:s, s:s}, s:[{s:[]}], s:o, s:{s:{s:{s:s, s:s}}, s:{s:{s:s, s:o}}, s:o}}",
      "openapi", "3.1.0", "info", "title", "wavetune", "version", WAVETUNE_VERSION, "description",
      "Cluster-wide tuning of GPU kernels: see docs/api.md", "security", "token", "paths",
      paths_make(all), "components", "securitySchemes", "token", "type", "http", "scheme", "bearer",
      "responses", "Problem", "description", "A problem document (RFC 9457)", "content",
      content("application/problem+json", "Problem"), "schemas",
      schemas_make(json_object_get(all, "schemas")));
  ALWAYS(document != NULL);
  return document;
}

char *openapi_text(void) {
  cleanup_json json_t *document = openapi_document();
  char *text = json_dumps(document, JSON_COMPACT);
  ALWAYS(text != NULL);
  return text;
}
