/* Common answers. Memory and threads: as the header says. */
#include "server/http/answers.h"

#include <errno.h>
#include <stdarg.h>

#include "common/base/log.h"
#include "common/program/error_codes.h"
#include "server/http/response.h"

static void failure_log(const struct request *request, const struct error *error) {
  char before[LOG_REQUEST_SIZE]; /* this may be one of a batch */
  log_get_request(before);
  log_set_request(request->id);
  log_error("request: %s", error->message);
  log_set_request(before);
}

void answer_failure(struct request *request, const struct error *error) {
  answer_failure_extra(request, error, NULL);
}

void answer_failure_extra(struct request *request, const struct error *error, json_t *extra) {
  struct error said = *error;
  int status = error_http_status(error->kind);
  if (status == 500) {
    failure_log(request, error);
    said.pointer[0] = '\0';
    if (error->kind != ERROR_DAMAGED)
      error_of(&said, ERROR_INTERNAL, "the server could not do this; its log says why");
  }
  request_problem_extra(request, status, &said, extra);
}

void answer_refusal(struct request *request, enum error_kind kind, const char *pointer,
                    const char *format, ...) {
  struct error error;
  char message[sizeof error.message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);

  error_of_at(&error, kind, pointer, "%s", message);
  answer_failure(request, &error);
}

static bool decimal_parse(const char *text, int64_t *ret) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno)
    return false;
  *ret = number;
  return true;
}

bool answer_id(struct request *request, const char *what, int64_t *ret_id) {
  if (decimal_parse(request->segments[0], ret_id))
    return true;
  answer_refusal(request, ERROR_MISSING, "", "there is no %s \"%.40s\"; ids are decimal numbers",
                 what, request->segments[0]);
  return false;
}
