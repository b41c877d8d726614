/* Answers: JSON, text, entities with ETag, files with ranges. Bodies belong to their response. Any
 * thread that owns the request. */
#include "server/http/response.h"

#include "common/base/log.h"
#include "server/counters.h"
#include "server/http/header.h"
#include "server/server_private.h"

_Thread_local uint64_t requests_settled;

void response_header(struct MHD_Response *response, const char *name, const char *value) {
  if (MHD_add_response_header(response, name, value) != MHD_YES)
    log_warning("http: a response header %s was refused", name);
}

struct MHD_Response *response_text(const char *content_type, char *body, size_t size) {
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
  cleanup_free char *quoted = xasprintf("\"%s\"", etag);
  response_header(response, MHD_HTTP_HEADER_ETAG, quoted);
  response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                  immutable ? "public, max-age=31536000, immutable" : "no-cache");
}

void request_finish(struct request_private *request, unsigned status,
                    struct MHD_Response *response) {
  ALWAYS(request->response == NULL && request->state != REQUEST_PARKED);
  for (size_t i = 0; i < request->n_headers; i++)
    response_header(response, request->headers[i].name, request->headers[i].value);
  response_header(response, REQUEST_ID_HEADER, request->request.id);
  request->status = status;
  request->response = response;
  request->answered_ns = clock_monotonic_ns();
  request->state = REQUEST_ANSWERED;
  requests_settled++;
  counter_add(COUNTER_requests, 1);
  /* By this thread: what its handler read of the body may share values with it, which it gives up
   * after the answer. */
  json_decref(TAKE(request->request.json));
  /* From here on the event thread may answer and free it. */
  if (request->is_suspended) {
    atomic_fetch_sub(&request->request.server->n_suspended, 1);
    MHD_resume_connection(request->connection->mhd);
  }
}

void request_add_header(struct request *request, const char *name, const char *value) {
  struct request_private *private_ = request_private_of(request);
  ALWAYS(private_->n_headers < REQUEST_HEADERS_MAX);
  private_->headers[private_->n_headers].name = xstrdup(name);
  private_->headers[private_->n_headers++].value = xstrdup(value);
}

void request_answer_text(struct request *request, int status, const char *content_type, char *body,
                         size_t size) {
  struct request_private *private_ = request_private_of(request);
  private_->bytes = size;
  request_finish(private_, (unsigned)status, response_text(content_type, body, size));
}

void request_answer_json(struct request *request, int status, json_t *body) {
  char *text = json_dumps(body, JSON_COMPACT);
  ALWAYS(text != NULL);
  json_decref(body);
  request_answer_text(request, status, "application/json", text, strlen(text));
}

void request_answer_json_with(struct request *request, int status, json_t *object,
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
  request_answer_text(request, status, "application/json", text, size);
}

void request_answer_empty(struct request *request, int status) {
  request_finish(request_private_of(request), (unsigned)status, response_empty());
}

static bool client_has(const struct request *request, const char *etag) {
  const char *list = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
  return list && header_etag_listed(list, etag);
}

static void answer_not_modified(struct request *request, const char *etag, bool immutable) {
  struct MHD_Response *response = response_empty();
  response_entity_headers(response, etag, immutable);
  request_finish(request_private_of(request), MHD_HTTP_NOT_MODIFIED, response);
}

void request_answer_entity(struct request *request, const char *content_type, char *body,
                           size_t size, const char *etag, bool immutable) {
  if (client_has(request, etag)) {
    free(body);
    answer_not_modified(request, etag, immutable);
    return;
  }
  struct MHD_Response *response = response_text(content_type, body, size);
  response_entity_headers(response, etag, immutable);
  request_private_of(request)->bytes = size;
  request_finish(request_private_of(request), MHD_HTTP_OK, response);
}

/* If-Range with another tag (or a date) means: the whole file. */
static enum range_answer range_wanted(const struct request *request, size_t size, const char *etag,
                                      size_t *ret_first, size_t *ret_last) {
  const char *range = request_header(request, MHD_HTTP_HEADER_RANGE);
  const char *if_range = request_header(request, MHD_HTTP_HEADER_IF_RANGE);
  if (!range || (if_range && (*if_range != '"' || !header_etag_listed(if_range, etag))))
    return RANGE_WHOLE;
  return header_range(range, size, ret_first, ret_last);
}

void request_answer_file(struct request *request, const char *etag, uint8_t *bytes, size_t size,
                         void (*release)(void *context), void *context) {
  size_t first = 0, last = 0;
  if (client_has(request, etag)) {
    release(context);
    answer_not_modified(request, etag, true);
    return;
  }

  enum range_answer range = range_wanted(request, size, etag, &first, &last);
  if (range == RANGE_UNSATISFIABLE) {
    cleanup_free char *content_range = xasprintf("bytes */%zu", size);
    request_add_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
    request_problem(request, MHD_HTTP_RANGE_NOT_SATISFIABLE, "",
                    "the file has %zu bytes; the range begins behind them", size);
    release(context);
    return;
  }
  if (range == RANGE_PART) {
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
  request_private_of(request)->bytes = size;
  request_finish(request_private_of(request),
                 range == RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
}
