/* The table of kinds, and the way back from HTTP. Memory and threads: as the header says. */
#include "common/program/error_codes.h"

static const struct {
  const char *name;
  int status;
  enum exit_code code;
  bool is_retryable;
} kinds[] = {
    [ERROR_INVALID] = {"invalid", 422, EXIT_REFUSED, false},
    [ERROR_MISSING] = {"missing", 404, EXIT_REFUSED, false},
    [ERROR_CONFLICT] = {"conflict", 409, EXIT_REFUSED, false},
    [ERROR_PRECONDITION] = {"precondition", 412, EXIT_REFUSED, false},
    [ERROR_UNAUTHENTICATED] = {"unauthenticated", 401, EXIT_REFUSED, false},
    [ERROR_FORBIDDEN] = {"forbidden", 403, EXIT_REFUSED, false},
    [ERROR_TOO_LARGE] = {"too_large", 413, EXIT_REFUSED, false},
    [ERROR_RATE] = {"rate", 429, EXIT_REFUSED, true},
    [ERROR_CONTENTION] = {"contention", 503, EXIT_UNREACHABLE, true},
    [ERROR_UNAVAILABLE] = {"unavailable", 503, EXIT_UNREACHABLE, true},
    [ERROR_DEADLINE] = {"deadline", 503, EXIT_UNREACHABLE, true},
    [ERROR_DAMAGED] = {"damaged", 500, EXIT_UNREACHABLE, true},
    [ERROR_INTERNAL] = {"internal", 500, EXIT_UNREACHABLE, true},
    [ERROR_UNIQUE] = {"internal", 500, EXIT_UNREACHABLE, true},
    [ERROR_REFERENCE] = {"internal", 500, EXIT_UNREACHABLE, true},
    [ERROR_TRUNCATED] = {"internal", 500, EXIT_TRUNCATED, true},
    [ERROR_TAMPERED] = {"internal", 500, EXIT_TAMPERED, false},
    [ERROR_REPLAYED] = {"internal", 500, EXIT_REPLAYED, false},
    [ERROR_EXPIRED] = {"internal", 500, EXIT_EXPIRED, false},
    [ERROR_UNTRUSTED] = {"internal", 500, EXIT_UNTRUSTED, false},
    [ERROR_UNUSABLE] = {"internal", 500, EXIT_UNUSABLE, false},
};
_Static_assert(ARRAY_LENGTH(kinds) == ERROR_KINDS, "each kind has a line");

enum exit_code error_exit_code(enum error_kind kind) { return kinds[kind].code; }

int error_http_status(enum error_kind kind) { return kinds[kind].status; }

const char *error_kind_name(enum error_kind kind) { return kinds[kind].name; }

bool error_is_retryable(enum error_kind kind) { return kinds[kind].is_retryable; }

bool error_kind_of_name(const char *name, enum error_kind *ret) {
  for (enum error_kind kind = 0; kind < ERROR_KINDS; kind++) {
    if (strcmp(kinds[kind].name, name) == 0) {
      *ret = kind; /* of "internal" the first: the others are told apart only where they are made */
      return true;
    }
  }
  return false;
}

enum error_kind error_kind_of_http(int status) {
  switch (status) {
  case 401:
    return ERROR_UNAUTHENTICATED;
  case 403:
    return ERROR_FORBIDDEN;
  case 404:
    return ERROR_MISSING;
  case 408:
  case 504:
    return ERROR_DEADLINE;
  case 409:
    return ERROR_CONFLICT;
  case 412:
  case 428:
    return ERROR_PRECONDITION;
  case 413:
  case 414:
  case 431:
    return ERROR_TOO_LARGE;
  case 429:
    return ERROR_RATE;
  case 502:
  case 503:
    return ERROR_UNAVAILABLE;
  default:
    return status >= 400 && status < 500 ? ERROR_INVALID
           : status >= 500               ? ERROR_INTERNAL
                                         : ERROR_UNAVAILABLE;
  }
}
