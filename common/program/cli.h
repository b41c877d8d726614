/* Functions for the commands of `wavetune` in cli/ and inspect/: rows of their tables, requests to
 * the server, and printing of answers and errors.
 *
 * A command is one function `int command_NAME(struct options *options)` that returns an exit code.
 * Where it cannot go on, cli_refuse or one of its kind prints why and ends the program.
 * Results go to stdout (with --json as one JSON document), progress and refusals to stderr.
 * Memory: a call's answer is the caller's. Threads: one. */
#ifndef WAVETUNE_COMMON_PROGRAM_CLI_H
#define WAVETUNE_COMMON_PROGRAM_CLI_H

#include "common/program/http_client.h"
#include "common/program/options.h"
#include "common/regime/regime.h"

/* clang-format off */
/* Rows of a command's options that neither a variable nor the configuration file sets. Further
 * members of struct option_spec may follow the help. */
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
  {.name = "url", .type = OPTION_LIST, .argument = "URL", \
   .default_text = "http://127.0.0.1:7200", .help = HELP_URL}
#define OPTION_TOKEN \
  {.name = "token", .type = OPTION_TEXT, .argument = "TOKEN", \
   .help = "bearer token; better in WAVETUNE_TOKEN, where no other user sees it"}
#define OPTION_TOKEN_COMMAND \
  {.name = "token-command", .type = OPTION_TEXT, .argument = "COMMAND", \
   .help = "a shell command that prints the token, in place of one; run again when the server " \
           "answers 401"}
#define OPTION_JSON \
  {.name = "json", .type = OPTION_FLAG, \
   .help = "print one JSON document instead of text"}
#define OPTION_ENVIRONMENT \
  {.name = "environment", .type = OPTION_TEXT, .argument = "JSON|@FILE", \
   .help = "environment members, e.g. '{\"rocm\": \"6.4.1\"}'; may be partial if exactly one " \
            "known environment fits"}
#define OPTION_TAG \
  {.name = "tag", .type = OPTION_TEXT, .argument = "TAG", .default_text = "default", \
   .help = "deployment scenario"}
#define OPTION_REGIME \
  {.name = "regime", .type = OPTION_TEXT, .argument = REGIME_ALTERNATIVES, \
   .default_text = REGIME_IMPLIED_NAME, \
   .help = "whether calls find their operands in the caches (warm) or never do (cold)"}
#define OPTION_SPACE \
  CLI_TEXT("space", "FILE", "a space, as JSON, in place of the kernel folder's")
#define OPTION_PATIENCE \
  CLI_INTEGER("patience", "SECONDS", "60", 0, 86400, \
              "how long to keep following jobs while the server does not answer")
#define OPTION_TIMEOUT \
  CLI_INTEGER("timeout", "SECONDS", "0", 0, 31536000, \
              "with --wait: stop waiting after this time, with exit code 9; the jobs go on; " \
              "0: no limit")
#define SERVER_OPTIONS \
  OPTION_URL, OPTION_TOKEN, OPTION_TOKEN_COMMAND, OPTION_INSECURE_HTTP, \
  OPTION_CLIENT_CERTIFICATE, OPTION_CLIENT_KEY, OPTION_JSON

/* Options of many commands: those of the server alone; and with -o (output.h). */
extern const struct option_spec server_options[7], list_options[8];

/* Defines the row `spec_ID` of the command that command_ID() runs. Further members of struct
 * command_spec may follow the summary. */
#define CLI_COMMAND(id, of_name, of_arguments, of_options, of_summary, ...) \
  const struct command_spec spec_##id = {.name = of_name, .arguments = of_arguments, \
                                         .summary = of_summary, .options = of_options, \
                                         .n_options = ARRAY_LENGTH(of_options), \
                                         .run = command_##id, \
                                         __VA_ARGS__}
/* clang-format on */

/* Prints the error on stderr, with its pointer if it has one. */
void cli_print_error(const struct error *error);

/* Prints the error and ends the program with `code`. What the command holds is left to the
 * operating system. */
no_return void cli_fail(int code, const struct error *error);

/* cli_fail with context before the message, as of error_prefix. */
no_return void cli_fail_in(int code, struct error *error, const char *format, ...)
    printf_like(3, 4);

/* cli_fail with the exit code of the error's kind: for the error of a request. */
no_return void cli_failed(const struct error *error);

/* cli_fail with a formatted sentence. */
no_return void cli_refuse(int code, const char *format, ...) printf_like(2, 3);

/* cli_fail for an answer: "WHAT: why" with the detail and pointer of its problem document, and the
 * exit code of its status. */
no_return void cli_refused(const struct http_response *response, const char *what);

/* The `n` positional arguments. Ends the program where there are not `n`, with `usage`, a sentence
 * that states which to give. */
must_check char *const *cli_arguments(const struct options *options, size_t n, const char *usage);

/* A connection to --url with --token. The functions below end the program where there is none, or
 * no 2xx answer: with EXIT_UNREACHABLE (no answer, or 5xx) or EXIT_REFUSED (4xx). */
must_check struct http_client *cli_connect(const struct options *options);

/* Sends a request. The caller owns the answer, which is NULL where the server sent an empty one. */
must_check json_t *cli_call(struct http_client *client, const char *method, const char *path,
                            const json_t *body);
must_check json_t *cli_get(struct http_client *client, const char *path);

/* cli_call for commands that send one request: connects first. */
must_check json_t *cli_request(const struct options *options, const char *method, const char *path,
                               const json_t *body);

/* cli_request, but with --json prints the answer and returns NULL. */
must_check json_t *cli_request_or_json(const struct options *options, const char *method,
                                       const char *path, const json_t *body);

/* A whole command that deletes the object that its one argument names, below the path `folder`
 * ("/v1/tokens/"). Prints the word `done` ("revoked"); `usage` as for cli_arguments. */
must_check int cli_delete(const struct options *options, const char *folder, const char *done,
                          const char *usage);

/* Prints "removed NAME", or with --json {"removed": "NAME"}. Returns EXIT_OK. */
must_check int cli_print_done(const struct options *options, const char *done, const char *name);

/* For requests that cli_call cannot send: an answer of any status is accepted. */
void cli_send(struct http_client *client, const struct http_request *request,
              struct http_response *ret);

/* Gets all items of a paged list. `path` has no parameters limit and after. */
must_check json_t *cli_list(struct http_client *client, const char *path);

/* The first `most` items of a paged list, at least 1. */
must_check json_t *cli_list_first(struct http_client *client, const char *path, size_t most);

/* cli_list for commands: connects first, and with --json prints the list and returns NULL. */
must_check json_t *cli_list_or_json(const struct options *options, const char *path);

/* A column of a list: a member of its items. */
struct cli_column {
  const char *heading, *member;         /* member: NULL: its name is the heading */
  bool is_number;                       /* aligned on the right */
  char *(*format)(const json_t *value); /* NULL: cli_format; the text is the caller's */
  bool is_wide;                         /* only with -o wide or csv (output.h) */
};

/* The text of a string, "" for null or NULL, else compact JSON; the caller's. */
must_check char *cli_format(const json_t *value);
must_check char *cli_format_or_dash(const json_t *value); /* "-" in place of "" */

/* Adds a number above 0 to a body, if the option is given; a whole one as an integer. */
void cli_put_number(const struct options *options, const char *option, const char *member,
                    json_t *body);

/* In macros like this one `columns` is an array. */
#define cli_print_table(items, columns)                                                            \
  cli_print_table_of((items), (columns), ARRAY_LENGTH(columns))
void cli_print_table_of(const json_t *items, const struct cli_column *columns, size_t n_columns);

/* A whole listing command: gets the list and prints it as a table, or with --json as JSON. */
#define cli_print_list(options, path, columns)                                                     \
  cli_print_list_of((options), (path), (columns), ARRAY_LENGTH(columns))
must_check int cli_print_list_of(const struct options *options, const char *path,
                                 const struct cli_column *columns, size_t n_columns);

/* Prints a JSON document, indented, and a newline. */
void cli_print_json(const json_t *document);

/* The JSON of an option whose value is an environment, inline or @FILE; an empty object when the
 * option was not given. */
must_check json_t *cli_environment(const struct options *options, const char *option);

/* An object of the text options that were given, of these names (NULL ends them). The members have
 * '_' for '-'. */
must_check json_t *cli_options_json(const struct options *options, ...) __attribute__((sentinel));

/* "regime", or NULL for the implied one. */
const char *cli_regime_member(const char *regime);

/* "?rocm=6.4.1&…" of the members of an object (NULL: none) and of further pairs (name, value, …,
 * NULL), escaped; "" if there are none. The caller's. */
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
