/* Requests, errors, lists, environments and queries of commands. */
#include "common/program/cli.h"

#include <stdarg.h>

#include "common/program/output.h"

const struct option_spec server_options[] = {SERVER_OPTIONS},
                         list_options[] = {OPTION_OUTPUT, SERVER_OPTIONS};

#define PAGE_MAX 1000 /* items of a page, as the server permits */

void cli_print_error(const struct error *error) {
  bool has_pointer = error->pointer[0] != '\0';
  fprintf(stderr, "wavetune: %s%s%s%s\n", error->message, has_pointer ? " (at " : "",
          error->pointer, has_pointer ? ")" : "");
}

void cli_fail(int code, const struct error *error) {
  cli_print_error(error);
  command_end(code);
}

void cli_fail_in(int code, struct error *error, const char *format, ...) {
  cleanup_free char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  ALWAYS(vasprintf(&text, format, arguments) >= 0);
  va_end(arguments);
  error_prefix(error, "%s", text);
  cli_fail(code, error);
}

void cli_failed(const struct error *error) { cli_fail((int)error_exit_code(error->kind), error); }

void cli_refuse(int code, const char *format, ...) {
  cleanup_free char *text = NULL;
  struct error error; /* error_set replaces control characters of a server or an argument */
  va_list arguments;
  va_start(arguments, format);
  ALWAYS(vasprintf(&text, format, arguments) >= 0);
  va_end(arguments);
  error_set(&error, "%s", text);
  cli_fail(code, &error);
}

void cli_refused(const struct http_response *response, const char *what) {
  struct error error;
  http_problem(response, what, NULL, &error);
  cli_failed(&error);
}

char *const *cli_arguments(const struct options *options, size_t n, const char *usage) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != n)
    cli_refuse(EXIT_USAGE, "%s", usage);
  return arguments;
}

struct http_client *cli_connect(const struct options *options) {
  struct http_client *client = NULL;
  struct error error;
  cleanup_free char *urls = option_list_join(options, "url");
  const char *token = option_text(options, "token"),
             *command = option_text(options, "token-command");
  if (token && command)
    cli_refuse(EXIT_USAGE, "both a token and a command for one are given (options, variables or "
                           "the configuration file): give only one");
  if (!http_client_new(urls, command ? "-" : token, option_flag(options, "insecure-http"), 5000,
                       &client, &error) ||
      !http_client_set_certificate(client, option_text(options, "client-certificate"),
                                   option_text(options, "client-key"), &error))
    cli_fail(EXIT_USAGE, &error);
  if (command)
    http_client_set_token_command(client, command);
  return client;
}

json_t *cli_call(struct http_client *client, const char *method, const char *path,
                 const json_t *body) {
  json_t *answer = NULL;
  struct error error;
  if (!http_json(client, method, path, body, 0, &answer, &error))
    cli_failed(&error);
  return answer;
}

json_t *cli_get(struct http_client *client, const char *path) {
  return cli_call(client, "GET", path, NULL);
}

json_t *cli_request(const struct options *options, const char *method, const char *path,
                    const json_t *body) {
  cleanup_http_client struct http_client *client = cli_connect(options);
  return cli_call(client, method, path, body);
}

/* Takes an answer: prints it with --json, else returns it. */
static json_t *print_or_pass(const struct options *options, json_t *answer) {
  if (!option_flag(options, "json"))
    return answer;
  cli_print_json(answer);
  json_decref(answer);
  return NULL;
}

json_t *cli_request_or_json(const struct options *options, const char *method, const char *path,
                            const json_t *body) {
  return print_or_pass(options, cli_request(options, method, path, body));
}

int cli_delete(const struct options *options, const char *folder, const char *done,
               const char *usage) {
  char *const *name = cli_arguments(options, 1, usage);
  cleanup_free char *path = cli_path(folder, *name, "");
  json_decref(cli_request(options, "DELETE", path, NULL));
  return cli_print_done(options, done, *name);
}

int cli_print_done(const struct options *options, const char *done, const char *name) {
  cleanup_json json_t *answer = json_pack("{s:s}", done, name);
  if (option_flag(options, "json"))
    cli_print_json(answer);
  else
    printf("%s %s\n", done, name);
  return EXIT_OK;
}

void cli_send(struct http_client *client, const struct http_request *request,
              struct http_response *ret) {
  struct error error;
  if (!http_send(client, request, ret, &error))
    cli_fail(EXIT_UNREACHABLE, &error);
}

json_t *cli_list(struct http_client *client, const char *path) {
  return cli_list_first(client, path, SIZE_MAX);
}

json_t *cli_list_first(struct http_client *client, const char *path, size_t most) {
  json_t *items = json_array();
  cleanup_free char *after = xstrdup("");
  for (bool is_last = false; !is_last;) {
    size_t left = most - json_array_size(items);
    cleanup_free char *page_path =
        xasprintf("%s%climit=%zu%s%s", path, strchr(path, '?') ? '&' : '?',
                  left < PAGE_MAX ? left : (size_t)PAGE_MAX, *after ? "&after=" : "", after);
    cleanup_json json_t *page = cli_get(client, page_path);

    json_array_extend(items, json_object_get(page, "items"));
    cleanup_free char *before = TAKE(after);
    after = http_escape(cli_member(page, "next"));
    is_last = !*after || json_array_size(items) >= most;
    if (!is_last && string_equal(after, before))
      cli_refuse(EXIT_REFUSED, "the server's list repeats the page after %.80s", after);
  }
  return items;
}

json_t *cli_list_or_json(const struct options *options, const char *path) {
  cleanup_http_client struct http_client *client = cli_connect(options);
  return print_or_pass(options, cli_list(client, path));
}

char *cli_format(const json_t *value) {
  if (!value || json_is_null(value))
    return xstrdup("");
  if (json_is_string(value))
    return xstrdup(json_string_value(value));
  return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

char *cli_format_or_dash(const json_t *value) {
  cleanup_free char *text = cli_format(value);
  return *text ? TAKE(text) : xstrdup("-");
}

void cli_print_table_of(const json_t *items, const struct cli_column *columns, size_t n_columns) {
  output_rows_of(OUTPUT_WIDE, items, columns, n_columns, stdout);
}

int cli_print_list_of(const struct options *options, const char *path,
                      const struct cli_column *columns, size_t n_columns) {
  cleanup_json json_t *items = cli_list_or_json(options, path);
  if (items)
    cli_print_table_of(items, columns, n_columns);
  return EXIT_OK;
}

void cli_print_json(const json_t *document) {
  json_dumpf(document, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  putchar('\n');
}

json_t *cli_environment(const struct options *options, const char *option) {
  const char *text = option_text(options, option);
  json_t *environment = NULL;
  struct error error;
  if (!text)
    return json_object();

  if (text[0] == '@') {
    if (!json_parse_file(text + 1, 1 << 16, &environment, &error))
      cli_fail(EXIT_USAGE, &error);
  } else if (!json_parse(text, strlen(text), &environment, &error)) {
    error_prefix(&error, "--%s: ", option);
    cli_fail(EXIT_USAGE, &error);
  }

  if (!json_is_object(environment))
    cli_refuse(EXIT_USAGE,
               "--%s must be a JSON object like {\"rocm\": \"6.4.1\"} or @FILE with one", option);
  return environment;
}

json_t *cli_options_json(const struct options *options, ...) {
  json_t *json = json_object();
  const char *name;
  va_list names;
  va_start(names, options);
  while ((name = va_arg(names, const char *))) {
    cleanup_free char *member = text_replace(xstrdup(name), "-", '_');
    json_t *text = option_text_json(options, name);
    if (text)
      json_put(json, member, text);
  }
  va_end(names);
  return json;
}

const char *cli_regime_member(const char *regime) {
  return string_equal(regime, regime_name(REGIME_IMPLIED)) ? NULL : "regime";
}

/* Appends a pair. */
static void query_add(char **query, const char *name, const char *value) {
  cleanup_free char *escaped = http_escape(value);
  text_append(query, "%c%s=%s", **query ? '&' : '?', name, escaped);
}

char *cli_query(const json_t *members, ...) {
  char *query = xstrdup("");
  const char *name;
  json_t *member;

  json_object_foreach ((json_t *)members, name, member) {
    cleanup_free char *value = json_is_string(member) ? xstrdup(json_string_value(member))
                                                      : json_dumps(member, JSON_ENCODE_ANY);
    query_add(&query, name, value);
  }

  va_list pairs;
  va_start(pairs, members);
  while ((name = va_arg(pairs, const char *)))
    query_add(&query, name, va_arg(pairs, const char *));
  va_end(pairs);

  return query;
}

char *cli_path(const char *before, const char *name, const char *after) {
  cleanup_free char *escaped = http_escape(name);
  return xasprintf("%s%s%s", before, escaped, after);
}

const char *cli_member(const json_t *object, const char *name) {
  const char *text = json_text(object, name);
  return text ? text : "";
}

json_int_t cli_integer(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

char *cli_compact(const json_t *object, const char *name) {
  return cli_format(json_object_get(object, name));
}

void cli_put_number(const struct options *options, const char *option, const char *member,
                    json_t *body) {
  const char *text = option_text(options, option);
  char *end = NULL;
  if (!text)
    return;
  double number = strtod(text, &end);
  if (end == text || *end || !(number > 0) || number > 1e300) /* infinity is no JSON */
    cli_refuse(EXIT_USAGE, "--%s %.40s: give a number above 0", option, text);
  bool is_whole = number < 1e15 && number == (double)(int64_t)number;
  json_put(body, member, is_whole ? json_integer((json_int_t)number) : json_real(number));
}
