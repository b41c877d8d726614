/* What the commands share: the connection, refusals, lists, environments and queries. */
#include "common/program/cli.h"

#include <stdarg.h>

int cli_fail(int code, const struct error *error) {
  if (error->pointer[0])
    fprintf(stderr, "wavetune: %s (at %s)\n", error->message, error->pointer);
  else
    fprintf(stderr, "wavetune: %s\n", error->message);
  return code;
}

int cli_failed(const struct error *error) {
  return cli_fail((int)error_exit_code(error->kind), error);
}

struct http_client *cli_connect(const struct options *options) {
  struct http_client *client;
  struct error error;
  if (!http_client_new(option_text(options, "url"), option_text(options, "token"),
                       option_flag(options, "insecure-http"), 5000, &client, &error)) {
    (void)!cli_fail(EXIT_USAGE, &error);
    return NULL;
  }
  if (!http_client_set_certificate(client, option_text(options, "client-certificate"),
                                   option_text(options, "client-key"), &error)) {
    http_client_free(client);
    (void)!cli_fail(EXIT_USAGE, &error);
    return NULL;
  }
  return client;
}

int cli_call(struct http_client *client, const char *method, const char *path, const json_t *body,
             json_t **ret_answer) {
  struct error error;
  return http_json(client, method, path, body, 0, ret_answer, &error) ? EXIT_OK
                                                                      : cli_failed(&error);
}

int cli_send(struct http_client *client, const struct http_request *request,
             struct http_response *ret) {
  struct error error;
  return http_send(client, request, ret, &error) ? EXIT_OK : cli_fail(EXIT_UNREACHABLE, &error);
}

int cli_refused(const struct http_response *response, const char *what) {
  cleanup_json json_t *problem = json_loadb(response->body, response->size, 0, NULL);
  const char *detail = cli_member(problem, "detail");
  struct error error;
  if (detail[0])
    error_at(&error, cli_member(problem, "pointer"), "%s: %s", what, detail);
  else
    error_set(&error, "%s: the server answered %d and did not say why", what, response->status);
  http_error_name_request(response, &error);
  error_become(&error, error_kind_of_http(response->status));
  return cli_failed(&error);
}

int cli_list(struct http_client *client, const char *path, json_t **ret_items) {
  cleanup_json json_t *items = json_array();
  cleanup_free char *after = NULL;
  const char *joint = strchr(path, '?') ? "&" : "?";
  for (;;) {
    cleanup_free char *page_path = after ? xasprintf("%s%slimit=1000&after=%s", path, joint, after)
                                         : xasprintf("%s%slimit=1000", path, joint);
    cleanup_json json_t *page = NULL;
    int code = cli_call(client, "GET", page_path, NULL, &page);
    if (code != EXIT_OK)
      return code;
    json_array_extend(items, json_object_get(page, "items"));
    const char *next = json_string_value(json_object_get(page, "next"));
    if (!next)
      break;
    free(after);
    after = http_escape(next);
  }
  *ret_items = TAKE(items);
  return EXIT_OK;
}

int cli_list_or_json(const struct options *options, const char *path, json_t **ret_items) {
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *items = NULL;
  int code = cli_list(client, path, &items);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(items);
  else
    *ret_items = TAKE(items);
  return EXIT_OK;
}

void cli_print_json(const json_t *document) {
  json_dumpf(document, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  putchar('\n');
}

bool cli_environment_of(const struct options *options, const char *option, json_t **ret_environment,
                        struct error *error) {
  const char *text = option_text(options, option);
  cleanup_json json_t *environment = NULL;
  if (!text)
    environment = json_object();
  else if (text[0] == '@') {
    if (!json_parse_file(text + 1, 1 << 16, &environment, error))
      return false;
  } else if (!json_parse(text, strlen(text), &environment, error)) {
    return error_prefix(error, "--%s: ", option);
  }
  if (!json_is_object(environment))
    return error_set(
        error, "--%s must be a JSON object like {\"rocm\": \"6.4.1\"} or @FILE with one", option);
  *ret_environment = TAKE(environment);
  return true;
}

bool cli_environment(const struct options *options, json_t **ret_environment, struct error *error) {
  return cli_environment_of(options, "environment", ret_environment, error);
}

static void query_add(FILE *out, const char *joint, const char *name, const char *value) {
  cleanup_free char *escaped = http_escape(value);
  fprintf(out, "%s%s=%s", joint, name, escaped);
}

const char *cli_regime_member(const char *regime) {
  return string_equal(regime, "cold") ? NULL : "regime";
}

char *cli_query(const json_t *environment, ...) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  const char *joint = "?", *name;
  json_t *member;
  json_object_foreach ((json_t *)environment, name, member) {
    cleanup_free char *value = json_is_string(member) ? xstrdup(json_string_value(member))
                                                      : json_dumps(member, JSON_ENCODE_ANY);
    query_add(out, joint, name, value);
    joint = "&";
  }
  va_list pairs;
  va_start(pairs, environment);
  while ((name = va_arg(pairs, const char *))) {
    query_add(out, joint, name, va_arg(pairs, const char *));
    joint = "&";
  }
  va_end(pairs);
  ALWAYS(fclose(out) == 0);
  return text;
}

const char *cli_member(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  return text ? text : "";
}
