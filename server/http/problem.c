/* Problem documents (RFC 9457). Any thread that owns the request. */
#include <stdarg.h>

#include "common/program/error_codes.h"
#include "server/http/response.h"

const char *status_title(int status) {
  const char *title = MHD_get_reason_phrase_for((unsigned)status);
  /* RFC 9110's names for what libmicrohttpd still calls by their older ones. */
  if (status == 422)
    return "Unprocessable Content";
  if (status == 413)
    return "Content Too Large";
  return title ? title : "Error";
}

/* `extra` (may be NULL) is taken over. Of a status that is not the error's kind's, as HTTP has
 * some, the kind is the status's. Adds WWW-Authenticate to 401 and Retry-After to 503. */
static struct MHD_Response *response_problem(int status, const struct error *error, json_t *extra,
                                             const char *request, size_t *ret_size) {
  bool is_of_kind = error_http_status(error->kind) == status;
  enum error_kind kind = is_of_kind ? error->kind : error_kind_of_http(status);
  json_t *problem =
      json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "type", "about:blank", "title",
                status_title(status), "status", status, "kind", error_kind_name(kind), "detail",
                error->message, "pointer", error->pointer, "request", request);
  ALWAYS(problem != NULL);
  if (extra)
    json_object_update_missing_new(problem, extra);
  char *text = json_dumps(problem, JSON_COMPACT);
  ALWAYS(text != NULL);
  json_decref(problem);
  *ret_size = strlen(text);
  struct MHD_Response *response = response_text("application/problem+json", text, *ret_size);
  if (status == MHD_HTTP_UNAUTHORIZED)
    response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
    response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  return response;
}

void request_problem_extra(struct request *request, int status, const struct error *error,
                           json_t *extra) {
  struct request_private *private_ = request_private_of(request);
  size_t size;
  struct MHD_Response *response = response_problem(status, error, extra, request->id, &size);
  private_->bytes = size;
  request_finish(private_, (unsigned)status, response);
}

void request_problem(struct request *request, int status, const char *pointer, const char *format,
                     ...) {
  struct error error;
  char message[sizeof error.message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  error_at(&error, pointer, "%s", message);
  request_problem_extra(request, status, &error, NULL);
}
