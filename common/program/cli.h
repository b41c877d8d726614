/* What the commands of `wavetune` share, in cli/ and in inspect/: how they reach the server, how
 * they answer, the options that repeat.
 *
 * A command is one function `int command_NAME(struct options *options)` that returns an exit code.
 * Results go to stdout (with --json as one JSON document), progress and refusals to stderr.
 * Memory: a call's answer is the caller's. Threads: one. */
#ifndef WAVETUNE_COMMON_PROGRAM_CLI_H
#define WAVETUNE_COMMON_PROGRAM_CLI_H

#include "common/program/http_client.h"
#include "common/program/options.h"

#define SERVER_URL_DEFAULT "http://127.0.0.1:7200"

/* clang-format off */
#define OPTION_URL \
  {.name = "url", .type = OPTION_TEXT, .argument = "URL", .default_text = SERVER_URL_DEFAULT, \
   .help = "the server"}
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
#define OPTION_WAIT(says) {.name = "wait", .type = OPTION_FLAG, .flag_only = true, .help = says}
#define OPTION_PATIENCE \
  {.name = "patience", .type = OPTION_INTEGER, .argument = "SECONDS", .default_text = "60", \
   .min = 0, .max = 86400, .flag_only = true, \
   .help = "how long to go on following jobs while the server is away"}
#define SERVER_OPTIONS \
  OPTION_URL, OPTION_TOKEN, OPTION_INSECURE_HTTP, OPTION_CLIENT_CERTIFICATE, OPTION_CLIENT_KEY, \
  OPTION_JSON
/* clang-format on */

/* A connection to --url with --token. NULL after it said why not. */
must_check struct http_client *cli_connect(const struct options *options);

/* Calls the server; anything but a 2xx answer is said on stderr. Returns EXIT_OK, EXIT_UNREACHABLE
 * (no answer, or 5xx) or EXIT_REFUSED (4xx); the answer (NULL where the server sent none) is the
 * caller's. */
must_check int cli_call(struct http_client *client, const char *method, const char *path,
                        const json_t *body, json_t **ret_answer);

/* For requests that cli_call cannot send: EXIT_OK when a whole answer came, whatever its status;
 * else EXIT_UNREACHABLE after it said on stderr why none did. */
must_check int cli_send(struct http_client *client, const struct http_request *request,
                        struct http_response *ret);

/* Says on stderr "WHAT: why" with the detail and pointer of the problem document that an answer
 * carries. Returns the exit code of its status. */
must_check int cli_refused(const struct http_response *response, const char *what);

/* All items of a paged list. `path` has no limit or after. */
must_check int cli_list(struct http_client *client, const char *path, json_t **ret_items);

/* What every listing command begins with: connects and gets the list; with --json prints it.
 * *ret_items stays NULL when there is nothing left to print. */
must_check int cli_list_or_json(const struct options *options, const char *path,
                                json_t **ret_items);

/* Says one sentence on stderr (with the pointer where there is one) and returns `code`. */
must_check int cli_fail(int code, const struct error *error);

/* The same of what a request failed with, or what came of it: returns the exit code of the error's
 * kind. */
must_check int cli_failed(const struct error *error);

/* "regime", or NULL where it is cold: servers take that for granted, and old ones do not know the
 * member. */
const char *cli_regime_member(const char *regime);

/* Prints a JSON document, indented, and a newline. */
void cli_print_json(const json_t *document);

/* The JSON of --environment: inline or @FILE; an empty object when it was not given. */
must_check bool cli_environment(const struct options *options, json_t **ret_environment,
                                struct error *error);

/* The same of another option that states an environment, --from or --to say. */
must_check bool cli_environment_of(const struct options *options, const char *option,
                                   json_t **ret_environment, struct error *error);

/* "?rocm=6.4.1&…" members of an environment and more pairs (name, value, …, NULL), escaped. Owned
 * by the caller. */
must_check char *cli_query(const json_t *environment, ...) __attribute__((sentinel));

/* Text of a member, "" when it is absent or no string. Borrowed. */
const char *cli_member(const json_t *object, const char *name);

#endif
