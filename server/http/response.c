/* Answers: JSON, text, entities with ETag, files with ranges, problem documents (RFC 9457). */
#include <stdarg.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "common/program/error_codes.h"
#include "server/counters.h"
#include "server/http/bodies.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

/* Limits of the lines that state why answers were 503. */
#define REASONS_PER_SECOND 1
#define REASONS_BURST 10

/* After a refusal because of what a token has: it has less when jobs are done, or files are
 * removed. */
#define LIMITED_RETRY_S "60"

_Thread_local uint64_t requests_settled;

void response_header(struct MHD_Response *response, const char *name, const char *value) {
  if (MHD_add_response_header(response, name, value) != MHD_YES)
    log_warning("http: a response header %s was refused", name);
}

static struct MHD_Response *response_text(const char *content_type, char *body, size_t size) {
  struct MHD_Response *response =
      MHD_create_response_from_buffer_with_free_callback(size, body, free);
  ALWAYS(response != NULL);
  if (content_type)
    response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  return response;
}

struct MHD_Response *response_empty(void) {
  struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
  ALWAYS(response != NULL);
  return response;
}

void response_entity_headers(struct MHD_Response *response, const char *etag, bool immutable) {
  /* "private": a shared cache would give the answer to readers without a token. */
  cleanup_free char *quoted = xasprintf("\"%s\"", etag);
  response_header(response, MHD_HTTP_HEADER_ETAG, quoted);
  response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                  immutable ? "private, max-age=31536000, immutable" : "private, no-cache");
}

void request_resume(struct request_private *request) {
  if (!request->is_suspended)
    return;
  atomic_fetch_sub(&server_http(request->request.server)->n_suspended, 1);
  struct event_thread *thread = request->connection->event_thread;
  MHD_resume_connection(request->connection->mhd); /* in its next turn it may free the request */
  event_thread_wake(thread);
}

void request_finish(struct request *answered, int status, struct MHD_Response *response,
                    size_t size) {
  struct request_private *request = request_private_of(answered);
  ALWAYS(request->response == NULL && request->state != REQUEST_PARKED);
  for (size_t i = 0; i < request->n_headers; i++)
    response_header(response, request->headers[i].name, request->headers[i].value);
  response_header(response, REQUEST_ID_HEADER, answered->id);
  response_header(response, "X-Content-Type-Options", "nosniff");

  request->status = (unsigned)status;
  request->response = response;
  request->bytes = size;
  request->answered_ns = clock_monotonic_ns();
  request->state = REQUEST_ANSWERED;
  requests_settled++;
  counter_add(COUNTER_requests, 1);

  /* Freed by this thread, because its handler may hold references to values of it; and before the
   * answer is sent, because the client may read that slowly. */
  json_decref(TAKE(answered->json));
  free(TAKE(answered->body));
  bodies_give(server_http(answered->server)->bodies, answered->token_id,
              request->body_counted + request->json_counted);
  request->body_counted = request->json_counted = 0;
  /* From here on the event thread may send the response and free the request. */
  request_resume(request);
}

bool request_take_memory(struct request_private *request, size_t bytes, size_t *counted) {
  struct request *view = &request->request;
  struct bodies *bodies = server_http(view->server)->bodies;
  enum bodies_answer answer = bodies_take(bodies, view->token_id, bytes);
  if (answer == BODIES_TAKEN) {
    *counted += bytes;
    return true;
  }

  counter_add(COUNTER_bodies_refused, 1);
  if (answer == BODIES_FULL) {
    request_problem(view, MHD_HTTP_SERVICE_UNAVAILABLE,
                    "the bodies of requests take all memory that --bodies-mib allows; try again");
    return false;
  }

  request_add_header(view, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  request_problem(view, MHD_HTTP_TOO_MANY_REQUESTS,
                  "the bodies of requests of the token \"%s\" may take at most %zu MiB together "
                  "(half of serve --bodies-mib); send fewer at once, or in parts",
                  view->token_name, bodies_most_of_token(bodies) / MIB);
  return false;
}

void request_add_header(struct request *request, const char *name, const char *value) {
  struct request_private *private_ = request_private_of(request);
  ALWAYS(private_->n_headers < REQUEST_HEADERS_MAX);
  private_->headers[private_->n_headers].name = xstrdup(name);
  private_->headers[private_->n_headers++].value = xstrdup(value);
}

static bool has_header(const struct request *request, const char *name) {
  const struct request_private *private_ = request_private_of(request);
  for (size_t i = 0; i < private_->n_headers; i++)
    if (string_equal(private_->headers[i].name, name))
      return true;
  return false;
}

bool request_answer_text(struct request *request, int status, const char *content_type, char *body,
                         size_t size) {
  request_finish(request, status, response_text(content_type, body, size), size);
  return true;
}

bool request_answer_json(struct request *request, int status, json_t *body) {
  char *text = json_dumps(body, JSON_COMPACT);
  ALWAYS(text != NULL);
  json_decref(body);
  return request_answer_text(request, status, "application/json", text, strlen(text));
}

bool request_answer_json_with(struct request *request, int status, json_t *object,
                              const struct json_text *members, size_t n) {
  cleanup_free char *rest = json_dumps(object, JSON_COMPACT);
  ALWAYS(rest != NULL && json_object_size(object) > 0);
  json_decref(object);

  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  putc('{', out);
  for (size_t i = 0; i < n; i++)
    fprintf(out, "\"%s\":%s,", members[i].name, members[i].text);
  fputs(rest + 1, out);
  ALWAYS(fclose(out) == 0);
  return request_answer_text(request, status, "application/json", text, size);
}

bool request_answer_empty(struct request *request, int status) {
  request_finish(request, status, response_empty(), 0);
  return true;
}

/* Answers 304 and returns true when the client has the entity with this tag. */
bool request_answer_not_modified(struct request *request, const char *etag, bool immutable) {
  const char *list = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
  if (!list || !header_etag_listed(list, etag))
    return false;
  struct MHD_Response *response = response_empty();
  response_entity_headers(response, etag, immutable);
  request_finish(request, MHD_HTTP_NOT_MODIFIED, response, 0);
  return true;
}

bool request_answer_entity(struct request *request, const char *content_type, char *body,
                           size_t size, const char *etag, bool immutable) {
  if (request_answer_not_modified(request, etag, immutable)) {
    free(body);
    return true;
  }
  struct MHD_Response *response = response_text(content_type, body, size);
  response_entity_headers(response, etag, immutable);
  request_finish(request, MHD_HTTP_OK, response, size);
  return true;
}

bool request_answer_file(struct request *request, const char *etag, uint8_t *bytes, size_t size,
                         void (*release)(void *context), void *context) {
  if (request_answer_not_modified(request, etag, true)) {
    release(context);
    return true;
  }

  /* If-Range with another tag, or with a date, means the whole file. */
  size_t first = 0, last = 0;
  const char *range = request_header(request, MHD_HTTP_HEADER_RANGE);
  const char *if_range = request_header(request, MHD_HTTP_HEADER_IF_RANGE);
  bool is_whole = !range || (if_range && (*if_range != '"' || !header_etag_listed(if_range, etag)));
  enum range_answer answer = is_whole ? RANGE_WHOLE : header_range(range, size, &first, &last);

  if (answer == RANGE_UNSATISFIABLE) {
    cleanup_free char *content_range = xasprintf("bytes */%zu", size);
    request_add_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
    request_problem(request, MHD_HTTP_RANGE_NOT_SATISFIABLE,
                    "the file has %zu bytes; the range begins after them", size);
    release(context);
    return true;
  }

  if (answer == RANGE_PART) {
    cleanup_free char *content_range = xasprintf("bytes %zu-%zu/%zu", first, last, size);
    request_add_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
    size = last - first + 1;
  }

  struct MHD_Response *response =
      MHD_create_response_from_buffer_with_free_callback_cls(size, bytes + first, release, context);
  ALWAYS(response != NULL);
  response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
  response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
  response_entity_headers(response, etag, true);
  request_finish(request, answer == RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response,
                 size);
  return true;
}

const char *status_title(int status) {
  /* The names of RFC 9110 that libmicrohttpd does not have. */
  if (status == MHD_HTTP_UNPROCESSABLE_CONTENT)
    return "Unprocessable Content";
  if (status == MHD_HTTP_CONTENT_TOO_LARGE)
    return "Content Too Large";
  const char *title = MHD_get_reason_phrase_for((unsigned)status);
  return title ? title : "Error";
}

void request_problem_extra(struct request *request, int status, const struct error *error,
                           json_t *extra) {
  /* Where no kind of error has the status (405, 413, …), the kind follows from the status. */
  bool is_of_kind = error_http_status(error->kind) == status;
  enum error_kind kind = is_of_kind ? error->kind : error_kind_of_http(status);
  json_t *problem =
      json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "type", "about:blank", "title",
                status_title(status), "status", status, "kind", error_kind_name(kind), "detail",
                error->message, "pointer", error->pointer, "request", request->id);
  ALWAYS(problem != NULL);
  if (extra)
    json_object_update_missing_new(problem, extra);
  char *text = json_dumps(problem, JSON_COMPACT);
  ALWAYS(text != NULL);
  json_decref(problem);

  size_t size = strlen(text);
  struct MHD_Response *response = response_text("application/problem+json", text, size);
  if (status == MHD_HTTP_UNAUTHORIZED)
    response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
    response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  if (status == MHD_HTTP_TOO_MANY_REQUESTS && !has_header(request, MHD_HTTP_HEADER_RETRY_AFTER))
    response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, LIMITED_RETRY_S);
  request_finish(request, status, response, size);
}

static printf_like(4, 0) void error_format(struct error *error, enum error_kind kind,
                                           const char *pointer, const char *format,
                                           va_list arguments) {
  char message[sizeof error->message];
  vsnprintf(message, sizeof message, format, arguments);
  error_of_at(error, kind, pointer, "%s", message);
}

void request_problem(struct request *request, int status, const char *format, ...) {
  struct error error;
  va_list arguments;
  va_start(arguments, format);
  error_format(&error, ERROR_INVALID, "", format, arguments);
  va_end(arguments);
  request_problem_extra(request, status, &error, NULL);
}

/* Logs why an answer is 503, within limits: an outage of the database concerns every request. */
static void unavailable_log(const struct error *error) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct rate rate;
  pthread_mutex_lock(&lock);
  bool may = rate_take(&rate, clock_monotonic_ms(), REASONS_PER_SECOND, REASONS_BURST);
  pthread_mutex_unlock(&lock);
  if (may)
    log_warning("request: %s", error->message);
}

static void failure_answer(struct request *request, const struct error *error, json_t *extra) {
  struct error shown = *error;
  int status = error_http_status(error->kind);
  if (status == MHD_HTTP_INTERNAL_SERVER_ERROR) {
    log_error("request: %s", error->message);
    shown.pointer[0] = '\0';
    if (error->kind != ERROR_DAMAGED)
      error_of(&shown, ERROR_INTERNAL, "the server could not do this; its log has the reason");
  }

  request_problem_extra(request, status, &shown, extra);
}

void answer_failure_extra(struct request *request, const struct error *error, json_t *extra) {
  if (error->kind == ERROR_UNAVAILABLE || error->kind == ERROR_DEADLINE)
    unavailable_log(error);
  failure_answer(request, error, extra);
}

void answer_failure(struct request *request, const struct error *error) {
  answer_failure_extra(request, error, TAKE(request->extra));
}

void answer_refusal(struct request *request, enum error_kind kind, const char *pointer,
                    const char *format, ...) {
  struct error error;
  va_list arguments;
  va_start(arguments, format);
  error_format(&error, kind, pointer, format, arguments);
  va_end(arguments);
  failure_answer(request, &error, NULL);
}
