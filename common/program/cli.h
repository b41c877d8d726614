/* What the commands of `wavetune` share, in cli/ and in inspect/: rows of their tables, requests to
 * the server, and how answers and refusals are printed.
 *
 * A command is one function `int command_NAME(struct options *options)` that returns an exit code.
 * Results go to stdout (with --json as one JSON document), progress and refusals to stderr.
 * Memory: a call's answer is the caller's. Threads: one. */
#ifndef WAVETUNE_COMMON_PROGRAM_CLI_H
#define WAVETUNE_COMMON_PROGRAM_CLI_H

#include "common/program/http_client.h"
#include "common/program/options.h"

/* clang-format off */
/* Rows of a command's options that neither a variable nor the configuration file sets. What follows
 * the help are further members. */
#define CLI_FLAG(of_name, of_help) \
  {.name = of_name, .type = OPTION_FLAG, .flag_only = true, .help = of_help}
#define CLI_TEXT(of_name, of_argument, of_help, ...) \
  {.name = of_name, .type = OPTION_TEXT, .argument = of_argument, .flag_only = true, \
   .help = of_help, __VA_ARGS__}
#define CLI_LIST(of_name, of_argument, of_help) \
  {.name = of_name, .type = OPTION_LIST, .argument = of_argument, .flag_only = true, \
   .help = of_help}
#define CLI_INTEGER(of_name, of_argument, of_default, of_min, of_max, of_help) \
  {.name = of_name, .type = OPTION_INTEGER, .argument = of_argument, .default_text = of_default, \
   .min = of_min, .max = of_max, .flag_only = true, .help = of_help}

#define OPTION_URL \
  {.name = "url", .type = OPTION_TEXT, .argument = "URL", \
   .default_text = "http://127.0.0.1:7200", .help = "the server"}
#define OPTION_TOKEN \
  {.name = "token", .type = OPTION_TEXT, .argument = "TOKEN", \
   .help = "bearer token; better in WAVETUNE_TOKEN, where no other user sees it"}
#define OPTION_JSON \
  {.name = "json", .type = OPTION_FLAG, \
   .help = "print one JSON document instead of text"}
#define OPTION_ENVIRONMENT \
  {.name = "environment", .type = OPTION_TEXT, .argument = "JSON|@FILE", \
   .help = "environment members, e.g. '{\"rocm\": \"6.4.1\"}'; may be partial where one known " \
            "environment fits"}
#define OPTION_TAG \
  {.name = "tag", .type = OPTION_TEXT, .argument = "TAG", .default_text = "default", \
   .help = "deployment scenario"}
#define OPTION_REGIME \
  {.name = "regime", .type = OPTION_TEXT, .argument = "cold|warm", .default_text = "cold", \
   .help = "whether calls find their operands in the caches (warm) or never do (cold)"}
#define OPTION_PATIENCE \
  CLI_INTEGER("patience", "SECONDS", "60", 0, 86400, \
              "how long to go on following jobs while the server is away")
#define SERVER_OPTIONS \
  OPTION_URL, OPTION_TOKEN, OPTION_INSECURE_HTTP, OPTION_CLIENT_CERTIFICATE, OPTION_CLIENT_KEY, \
  OPTION_JSON

/* Defines the row `spec_ID` of the command that command_ID() runs. What follows the summary are
 * further members. */
#define CLI_COMMAND(id, of_name, of_arguments, of_options, of_summary, ...) \
  const struct command_spec spec_##id = {.name = of_name, .arguments = of_arguments, \
                                         .summary = of_summary, .options = of_options, \
                                         .n_options = ARRAY_LENGTH(of_options), \
                                         .run = command_##id, \
                                         __VA_ARGS__}
/* clang-format on */

/* Prints one sentence on stderr (with the pointer where there is one) and returns `code`. */
must_check int cli_fail(int code, const struct error *error);

/* The same for what a request failed with: returns the exit code of the error's kind. */
must_check int cli_failed(const struct error *error);

/* The same for a sentence that is made here. */
must_check int cli_refuse(int code, const char *format, ...) printf_like(2, 3);

/* The positional arguments when there are `n`. NULL after it printed `usage`, a sentence that
 * states what to name: the command returns EXIT_USAGE then. */
must_check char *const *cli_arguments(const struct options *options, size_t n, const char *usage);

/* A connection to --url with --token. NULL after it printed why not. */
must_check struct http_client *cli_connect(const struct options *options);

/* Calls the server and prints on stderr why there is no 2xx answer. Returns EXIT_OK,
 * EXIT_UNREACHABLE (no answer, or 5xx) or EXIT_REFUSED (4xx); the answer (NULL where the server
 * sent none) is the caller's. */
must_check int cli_call(struct http_client *client, const char *method, const char *path,
                        const json_t *body, json_t **ret_answer);

/* The same with a connection of its own, for commands that send one request. */
must_check int cli_request(const struct options *options, const char *method, const char *path,
                           const json_t *body, json_t **ret_answer);

/* The same, which prints the answer with --json. *ret_answer stays NULL when there is nothing left
 * to print. */
must_check int cli_request_or_json(const struct options *options, const char *method,
                                   const char *path, const json_t *body, json_t **ret_answer);

/* A whole command that deletes what its one argument names, below `folder` ("/v1/tokens/"). `done`
 * ("revoked") is the word that is printed, `usage` as for cli_arguments. */
must_check int cli_delete(const struct options *options, const char *folder, const char *done,
                          const char *usage);

/* For requests that cli_call cannot send: EXIT_OK when a whole answer came, whatever its status;
 * else EXIT_UNREACHABLE after it printed why none did. */
must_check int cli_send(struct http_client *client, const struct http_request *request,
                        struct http_response *ret);

/* Prints "WHAT: why" with the detail and pointer of the problem document in an answer. Returns the
 * exit code of its status. */
must_check int cli_refused(const struct http_response *response, const char *what);

/* All items of a paged list. `path` has no limit or after. */
must_check int cli_list(struct http_client *client, const char *path, json_t **ret_items);

/* What every listing command begins with: connects and gets the list; with --json prints it.
 * *ret_items stays NULL when there is nothing left to print. */
must_check int cli_list_or_json(const struct options *options, const char *path,
                                json_t **ret_items);

/* A column of a list: a member of its items. */
struct cli_column {
  const char *heading, *member;
  bool is_number;                       /* aligned on the right */
  char *(*format)(const json_t *value); /* NULL: cli_format; the text is the caller's */
};

/* A string's or number's text, "" of null and of no value, else compact JSON; the caller's. */
must_check char *cli_format(const json_t *value);
must_check char *cli_format_or_dash(const json_t *value); /* "-" in place of "" */

void cli_print_table(const json_t *items, const struct cli_column *columns, size_t n_columns);

/* A whole listing command: gets the list and prints it as a table, or as JSON. */
must_check int cli_print_list(const struct options *options, const char *path,
                              const struct cli_column *columns, size_t n_columns);

/* Prints a JSON document, indented, and a newline. */
void cli_print_json(const json_t *document);

/* The JSON of an option that states an environment, inline or @FILE; an empty object when it was
 * not given. */
must_check bool cli_environment(const struct options *options, const char *option,
                                json_t **ret_environment, struct error *error);

/* An object of the text options that were given: pairs of an option and its member. */
must_check json_t *cli_options_json(const struct options *options, const char *const (*members)[2],
                                    size_t n);

/* "regime", or NULL for cold, which is what servers assume: those before the regimes refuse the
 * member. */
const char *cli_regime_member(const char *regime);

/* "?rocm=6.4.1&…": the members of an object (NULL: none) and more pairs (name, value, …, NULL),
 * escaped; "" where there are none. The caller's. */
must_check char *cli_query(const json_t *members, ...) __attribute__((sentinel));

/* BEFORE, `name` escaped, AFTER. The caller's. */
must_check char *cli_path(const char *before, const char *name, const char *after);

/* A member's text, "" when it is absent or no string. Borrowed. */
const char *cli_member(const json_t *object, const char *name);

/* A member's integer, 0 when it is absent or no integer. */
json_int_t cli_integer(const json_t *object, const char *name);

/* cli_format of a member; the caller's. */
must_check char *cli_compact(const json_t *object, const char *name);

#endif
