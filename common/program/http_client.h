/* HTTP requests of the agent and the command line, over libcurl, with a bearer token and JSON
 * bodies.
 *
 * Memory: a response owns its body. Threads: an http_client belongs to one thread at a time (it
 * keeps connections alive); http_client_cancel may be called from any. */
#ifndef WAVETUNE_COMMON_PROGRAM_HTTP_CLIENT_H
#define WAVETUNE_COMMON_PROGRAM_HTTP_CLIENT_H

#include "common/base/json.h"

struct http_client;

/* `urls` is the server's base URL, or several of servers that share a database, separated by commas
 * (options_urls); each http:// or https://, perhaps with a path but without user, query, fragment
 * or comma. `token` may be NULL. Connecting takes at most connect_timeout_ms. Proxies come from the
 * environment as curl reads it (https_proxy, no_proxy, …), never for loopback; certificates are
 * checked against $SSL_CERT_FILE where it is set, else against the system's authorities. A token is
 * refused over http:// to any host but loopback (127.0.0.0/8, ::1, localhost), because others could
 * read it in transit, unless `insecure_http` (OPTION_INSECURE_HTTP) permits it. All of this holds
 * for each of several URLs.
 *
 * Which of several servers gets a request: the one that answered the last, at first the first of
 * the list. If it cannot be connected to or answers 503, the others get it in the order of the
 * list, each once, within the request's one deadline; so also if the connection ends without a
 * complete answer, unless the request may not be repeated (http_request_may_be_sent_again). A
 * server that is silent until the deadline is not the first choice of the next request. After
 * HTTP_RETURN_MS away from the first server, that is the first choice again. */
must_check bool http_client_new(const char *urls, const char *token, bool insecure_http,
                                int64_t connect_timeout_ms, struct http_client **ret_client,
                                struct error *error);

/* Sends a client certificate (PEM, then its issuers) to https:// servers that request one. The
 * files are read for each new connection; a key that other users may read is refused. Both NULL:
 * none. To be called before the first request. */
must_check bool http_client_set_certificate(struct http_client *client, const char *certificate,
                                            const char *key, struct error *error);

/* Gets the token from a shell command, whose output it is, before the first request, and again
 * after an answer of 401, whose request is then sent again: such tokens may live for minutes. A
 * token that is refused at once is not replaced.
 * When the command fails, so does the request, with ERROR_UNAVAILABLE. To be called before the
 * first request; the caller makes the client with a token, because the same rules hold for it. */
void http_client_set_token_command(struct http_client *client, const char *command);

/* Checks servers' certificates against the authorities in this file (PEM); NULL: as
 * http_client_new. To be called before the first request. */
void http_client_set_authorities(struct http_client *client, const char *file);

#define HTTP_RETURN_MS 60000

/* The options of every command that has --url and --token. */
/* clang-format off */
#define HELP_URL \
  "the server; several that share a database may also be separated by commas: the next is used " \
  "while one does not answer"
#define OPTION_INSECURE_HTTP \
  {.name = "insecure-http", .type = OPTION_FLAG, \
   .help = "send the token over http:// to other hosts too; only for networks that you trust"}
#define OPTION_CLIENT_CERTIFICATE \
  {.name = "client-certificate", .type = OPTION_TEXT, .argument = "FILE", \
   .help = "send this certificate (PEM) to an https:// server that requests one"}
#define OPTION_CLIENT_KEY \
  {.name = "client-key", .type = OPTION_TEXT, .argument = "FILE", \
   .help = "the client certificate's private key (PEM)"}
/* clang-format on */

void http_client_free(struct http_client *client);
DEFINE_CLEANUP(struct http_client *, cleanup_http_client_free, http_client_free)
#define cleanup_http_client cleanup_by(cleanup_http_client_free)

/* Sets the token of the requests that begin from now on; NULL: none. Any thread may call it. Aborts
 * when the token is malformed. */
void http_client_set_token(struct http_client *client, const char *token);

struct http_request {
  const char *method; /* GET, PUT, POST, DELETE */
  const char *path;   /* "/v1/…" with its query, escaped */
  const void *body;   /* NULL: none */
  size_t body_size;
  const char *content_type; /* NULL: application/json */
  const char *if_match;     /* entity tags with their quotes, or NULL */
  const char *if_none_match;
  int64_t timeout_ms;  /* for the whole request, at all servers; 0: 60 s */
  size_t response_max; /* bytes accepted, 0: 64 MiB */
  bool is_idempotent;  /* a POST that has no further effect when it comes twice */
};

/* Whether another server may get a request that one may have carried out before its connection
 * ended. Not a change with If-Match, which fails where it was carried out. */
must_check bool http_request_may_be_sent_again(const struct http_request *request);

struct http_response {
  int status; /* 0: no answer */
  char *body; /* NUL-terminated, may hold NULs */
  size_t size;
  char *etag;            /* http_header_is_usable, or NULL */
  char *request;         /* X-Request-Id, or NULL */
  int64_t retry_after_s; /* 0: not stated */
};

/* Whether the value of an answer's header can be sent back, kept in JSON and printed: 1 to 1,024
 * printable ASCII characters. Others are treated as absent. */
must_check bool http_header_is_usable(const char *value);

/* False only when no complete answer came: the error states why and names the URL. Its kind is
 * ERROR_TRUNCATED when the connection ended in the middle of an answer, ERROR_DEADLINE after
 * timeout_ms, ERROR_INVALID for a header that cannot be sent, else ERROR_UNAVAILABLE (refused, too
 * large, cancelled, …). Any HTTP status is success here. */
must_check bool http_send(struct http_client *client, const struct http_request *request,
                          struct http_response *ret, struct error *error);
void http_response_release(struct http_response *response);
#define cleanup_http_response cleanup_by(http_response_release)

/* Adds "(request ID)" to the sentence about a 5xx answer that has an id, by which the server's
 * operator finds its lines in the log. */
void http_error_name_request(const struct http_response *response, struct error *error);

/* The error for an answer that is not 2xx: "WHAT: why" with the detail and pointer of its problem
 * document (RFC 9457), else with its bare status and `request` ("GET /v1/…"); of the kind that the
 * status implies. `what` and `request` may be NULL. Returns false. */
bool http_problem(const struct http_response *response, const char *what, const char *request,
                  struct error *error);

/* Sends `body` (may be NULL; its members keep their order, which matters in a space) and requires a
 * 2xx answer: *ret_answer (may be NULL) is its JSON, NULL if it is empty. Otherwise false with the
 * error of http_problem. An answer that ended early or is no JSON is ERROR_UNAVAILABLE, like no
 * answer. */
must_check bool http_json(struct http_client *client, const char *method, const char *path,
                          const json_t *body, int64_t timeout_ms, json_t **ret_answer,
                          struct error *error);

/* Percent-encodes for a path segment or a query value. Owned by the caller. */
must_check char *http_escape(const char *text);

/* Makes the running http_send of this client return false soon; called from another thread. When
 * none is running it ends the next one, so that a cancel just before a long poll is not lost;
 * http_client_resume undoes that. */
void http_client_cancel(struct http_client *client);
void http_client_resume(struct http_client *client);

#endif
