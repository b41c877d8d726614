/* One HTTP request: what handlers see of it, and the ways to answer.
 *
 * A request is suspended in libmicrohttpd while it is queued, parked or run by a worker; answering
 * resumes it. Its owner is the event thread until it is queued, one worker while it runs, and the
 * park while it waits. It is freed in one place, when libmicrohttpd has completed it.
 *
 * Memory: request_answer…, answer_… and page_to_json take over bodies and JSON. Threads: the
 * request's owner. */
#ifndef WAVETUNE_SERVER_HTTP_REQUEST_H
#define WAVETUNE_SERVER_HTTP_REQUEST_H

#include "common/base/json.h"
#include "common/cache/release.h"
#include "common/cache/signatures.h"
#include "server/db/db_record.h"
#include "server/http/route.h"
#include "server/server.h"

#define REQUEST_MAGIC 0x52455131u
#define REQUEST_SEGMENTS_MAX 3

/* What of a release an answer serves. A cached answer keeps it, because each request that gets the
 * answer is noted (server/cache/fetches.h). */
enum fetch_kind { FETCH_NONE, FETCH_ENTRY, FETCH_CHOICES, FETCH_RELEASE, FETCH_FILES };
struct fetch {
  enum fetch_kind kind;
  struct digest release;
  enum cache_rule rule;               /* by which the channel's entry was found */
  char channel[CHANNEL_NAME_MAX + 1]; /* "": the release was requested by its digest */
};

struct request {
  uint32_t magic;
  struct server *server;
  enum route_id route;
  bool is_head;
  const char *id; /* X-Request-Id; valid until the answer */
  /* The path's segments that match {…} in the route, percent-decoded. */
  const char *segments[REQUEST_SEGMENTS_MAX];
  char *body; /* NUL-terminated; NULL when the route takes none */
  size_t body_size;
  json_t *json;   /* the body of a JSON route, valid until the answer; else NULL */
  json_t *extra;  /* more members for the answer to an error (answer_failure), owned; may be NULL */
  unsigned roles; /* of the token; TOKEN_ANYONE without one */
  char token_name[TOKEN_NAME_SIZE];
  int64_t token_id;       /* in the database; 0 without one */
  char token_agent[33];   /* the only agent that the token may act as; "": it is not bound */
  bool is_by_certificate; /* authorised by a client certificate instead of a token */
  /* It was parked: before granting anything, check that its client is still connected. */
  bool is_parked_before;
  bool deadline_passed; /* the deadline of request_park: answer now */
  int64_t arrived_ms;   /* clock_monotonic_ms */
  struct fetch fetch;   /* of fetches_note */
  struct request_private *private_;
};

/* A query argument, percent-decoded, or NULL. Borrowed. */
const char *request_query(const struct request *request, const char *name);
/* Refuses query arguments that are not in `names` (NULL-terminated; NULL: no names). */
must_check bool query_check_only(const struct request *request, const char *const *names,
                                 struct error *error);
/* Refuses those that openapi.json does not list for the route, unless it has "any_query" there. A
 * handler for ROUTE_DATABASE runs only after this. */
must_check bool query_check(const struct request *request, struct error *error);
/* Reads limit (1..1000, default 100) and after of a page of a list. */
must_check bool page_read(const struct request *request, int64_t *ret_limit, const char **ret_after,
                          struct error *error);
/* Reads a decimal id from the path. `what` names the object in the error, such as "job". */
must_check bool id_read(const struct request *request, const char *what, int64_t *ret_id,
                        struct error *error);
/* The author of writes, valid as long as the request. */
const struct author *request_author(struct request *request);
const char *request_header(const struct request *request, const char *name); /* NULL when absent */
/* Whether the web page sent it: all its requests have the header X-Wavetune. */
bool request_is_of_page(const struct request *request);

/* Answers: one call per request. They return true, for a handler to return. */
bool request_answer_json(struct request *request, int status, json_t *body);
/* The same, with more members, whose values are JSON texts (borrowed): a large value need not be
 * parsed only to be written again. */
struct json_text {
  const char *name, *text;
};
bool request_answer_json_with(struct request *request, int status, json_t *object,
                              const struct json_text *members, size_t n);
bool request_answer_empty(struct request *request, int status); /* 204, 304 */
bool request_answer_text(struct request *request, int status, const char *content_type, char *body,
                         size_t size);
/* Answers 304 and returns true when If-None-Match has this ETag (without quotes). */
must_check bool request_answer_not_modified(struct request *request, const char *etag,
                                            bool immutable);
/* With a strong ETag (`etag` has no quotes); answers 304 to If-None-Match. `immutable` decides
 * Cache-Control. */
bool request_answer_entity(struct request *request, const char *content_type, char *body,
                           size_t size, const char *etag, bool immutable);
/* The same, and caches the answer: event threads send it to later GETs of the same path and query,
 * which are noted if this one was (fetches_note).
 * response_cache_forget_channels removes all answers but immutable ones. Those RESPONSE_OF_TOKEN
 * are sent to requests with the same token only, for RESPONSE_OF_TOKEN_MS. `match`: the header
 * Wavetune-Match, or Wavetune-Origin of what is RESPONSE_OF_TOKEN, or NULL. */
enum response_kind { RESPONSE_IMMUTABLE, RESPONSE_OF_CHANNELS, RESPONSE_OF_TOKEN };
bool request_answer_cached(struct request *request, enum response_kind kind,
                           const char *content_type, char *body, size_t size, const char *etag,
                           const char *match);
void response_cache_forget_channels(struct server *server);

/* An immutable file: handles Range, ETag and 304. `release` is called with `context`, on any
 * thread, when the bytes are no longer needed. */
bool request_answer_file(struct request *request, const char *etag, uint8_t *bytes, size_t size,
                         void (*release)(void *context), void *context);
void request_add_header(struct request *request, const char *name,
                        const char *value); /* before answering */

/* Parks the request. It runs again after park_wake with its key, after the server's poll interval,
 * or at deadline_ms (clock_monotonic_ms). A wake-up since this run began is not lost: `worker` has
 * the generation of wake-ups from then. `is_idle`: no request under this key could be answered now;
 * the polls of the others are put off, so that of a thousand only a few run in each interval. */
struct worker;
void request_park(struct worker *worker, struct request *request, const char *key, bool is_idle,
                  int64_t deadline_ms);

/* Whether the client of a suspended request is still connected. libmicrohttpd does not poll the
 * socket of a suspended connection. */
bool request_client_is_there(const struct request *request);

/* The handlers of all routes (route.h). */
#define ROUTE_DECLARE_ROUTE_DATABASE(id)                                                           \
  must_check bool route_##id(struct worker *worker, struct request *request, struct error *error);
#define ROUTE_DECLARE_ROUTE_ANSWERING(id)                                                          \
  void route_##id(struct worker *worker, struct request *request);
#define ROUTE_DECLARE_ROUTE_EVENT_THREAD(id)                                                       \
  void route_##id(struct server *server, struct request *request);
#define X(id, method, path, role, place, ...) ROUTE_DECLARE_##place(id)
ROUTES(X)
#undef X

/* Answers an error with the problem document of its kind (common/program/error_codes.h). An error
 * with status 500 is logged; the client does not get its sentence, which may be PostgreSQL's. */
void answer_failure(struct request *request, const struct error *error);

/* The same for an error that the handler finds. `pointer`: RFC 6901, "" when none applies. */
void answer_refusal(struct request *request, enum error_kind kind, const char *pointer,
                    const char *format, ...) printf_like(4, 5);

/* The same; `extra` (may be NULL) holds extension members. */
void answer_failure_extra(struct request *request, const struct error *error, json_t *extra);

/* {"items": …, "next": …}, a new reference; `next` 0: null. */
must_check json_t *page_to_json(json_t *items, int64_t next);

/* A list whose rows have ids, read by pages. The statement has the parameters :limit and :after or,
 * newest first, :before; it reads one row more than a page has, and has a column "id". */
struct list {
  const struct statement *statement;
  const struct record *record;
  json_t *(*write)(const void *object); /* an item; NULL: record_write */
  bool is_newest_first;
  int64_t end; /* after a page that is not full the next one goes on here; 0: there is none */
};
/* Answers with the page that the query's limit and after name. The statement's other parameters
 * are those of db_query. */
#define answer_page_by(worker, request, list, error, ...)                                          \
  answer_page_given(worker, request, list, error, BOUND(__VA_ARGS__))
must_check bool answer_page_given(struct worker *worker, struct request *request,
                                  const struct list *list, struct error *error,
                                  const struct db_bound *given);

/* For handlers that answer errors (ROUTE_ANSWERING): these answer and return false. */
must_check bool request_query_only(struct request *request, const char *const *names);
must_check bool answer_id(struct request *request, const char *what, int64_t *ret_id);
/* Reads limit and after of a page of a list whose rows have ids; *ret_after is `start` when the
 * query has no "after". */
must_check bool page_by_id(struct request *request, int64_t start, int64_t *ret_limit,
                           int64_t *ret_after);
/* As answer_page_by. */
void answer_page(struct worker *worker, struct request *request, const struct list *list,
                 struct db_parameters *parameters);
/* For request_query_only: "limit" and "after". */
extern const char *const list_arguments[];

#endif
