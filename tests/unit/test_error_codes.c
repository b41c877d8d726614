/* The names, HTTP statuses and exit codes of the kinds of errors. */
#include "common/program/error_codes.h"

#include <criterion/criterion.h>

static const struct {
  enum error_kind kind;
  const char *name;
  int status;
  enum exit_code code;
  bool is_retryable;
} expected[] = {
    {ERROR_INVALID, "invalid", 422, EXIT_REFUSED, false},
    {ERROR_MISSING, "missing", 404, EXIT_REFUSED, false},
    {ERROR_CONFLICT, "conflict", 409, EXIT_REFUSED, false},
    {ERROR_PRECONDITION, "precondition", 412, EXIT_REFUSED, false},
    {ERROR_UNAUTHENTICATED, "unauthenticated", 401, EXIT_REFUSED, false},
    {ERROR_FORBIDDEN, "forbidden", 403, EXIT_REFUSED, false},
    {ERROR_TOO_LARGE, "too_large", 413, EXIT_REFUSED, false},
    {ERROR_RATE, "rate", 429, EXIT_REFUSED, true},
    {ERROR_CONTENTION, "contention", 503, EXIT_UNREACHABLE, true},
    {ERROR_UNAVAILABLE, "unavailable", 503, EXIT_UNREACHABLE, true},
    {ERROR_DEADLINE, "deadline", 503, EXIT_UNREACHABLE, true},
    {ERROR_DAMAGED, "damaged", 500, EXIT_UNREACHABLE, true},
    {ERROR_INTERNAL, "internal", 500, EXIT_UNREACHABLE, true},
    /* Kinds that a server sends only because of a bug. */
    {ERROR_UNIQUE, "internal", 500, EXIT_UNREACHABLE, true},
    {ERROR_REFERENCE, "internal", 500, EXIT_UNREACHABLE, true},
    {ERROR_TRUNCATED, "internal", 500, EXIT_TRUNCATED, true},
    {ERROR_TAMPERED, "internal", 500, EXIT_TAMPERED, false},
    {ERROR_REPLAYED, "internal", 500, EXIT_REPLAYED, false},
    {ERROR_EXPIRED, "internal", 500, EXIT_EXPIRED, false},
    {ERROR_UNTRUSTED, "internal", 500, EXIT_UNTRUSTED, false},
    {ERROR_UNUSABLE, "internal", 500, EXIT_UNUSABLE, false},
};

Test(error_codes, each_kind_has_a_name_a_status_and_an_exit_code) {
  cr_assert_eq(ARRAY_LENGTH(expected), ERROR_KINDS);
  for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
    enum error_kind kind = expected[i].kind;
    cr_expect_eq((size_t)kind, i, "%zu is listed as %d", i, (int)kind);
    cr_expect_str_eq(error_kind_name(kind), expected[i].name);
    cr_expect_eq(error_http_status(kind), expected[i].status, "%s", expected[i].name);
    cr_expect_eq(error_exit_code(kind), expected[i].code, "%s", expected[i].name);
    cr_expect_eq(error_is_retryable(kind), expected[i].is_retryable, "%s", expected[i].name);
  }
}

Test(error_codes, a_kind_is_found_by_its_name) {
  enum error_kind kind = ERROR_UNUSABLE;
  for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
    cr_assert(error_kind_of_name(expected[i].name, &kind));
    cr_expect_eq(kind, expected[i].kind <= ERROR_INTERNAL ? expected[i].kind : ERROR_INTERNAL);
  }
  cr_expect_not(error_kind_of_name("Status", &kind));
  cr_expect_not(error_kind_of_name("", &kind));
  cr_expect_eq(kind, ERROR_INTERNAL, "it is left as it was");
}

/* A client gets the kind that the server had, or another one with the same status. */
Test(error_codes, a_kind_is_found_by_its_status) {
  for (enum error_kind kind = 0; kind < ERROR_KINDS; kind++) {
    enum error_kind back = error_kind_of_http(error_http_status(kind));
    cr_expect_eq(error_http_status(back), error_http_status(kind), "%s", error_kind_name(kind));
    if (kind <= ERROR_RATE)
      cr_expect_eq(back, kind, "%s came back as %s", error_kind_name(kind), error_kind_name(back));
  }
  cr_expect_eq(error_kind_of_http(500), ERROR_INTERNAL);
  cr_expect_eq(error_kind_of_http(503), ERROR_UNAVAILABLE);
}

Test(error_codes, statuses_of_4xx_are_refused_and_others_unreachable) {
  for (int status = 300; status < 600; status++) {
    enum exit_code wanted = status / 100 == 4 && status != 408 ? EXIT_REFUSED : EXIT_UNREACHABLE;
    cr_expect_eq(error_exit_code(error_kind_of_http(status)), wanted, "%d", status);
  }
  cr_expect_eq(error_exit_code(error_kind_of_http(0)), EXIT_UNREACHABLE);
}
