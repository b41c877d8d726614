/* The table of error kinds, the kinds of HTTP statuses, and ids of requests. */
#include "common/program/error_codes.h"

#include <sys/random.h>
#include <time.h>

#include "common/base/numbers.h"

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
    if (string_equal(kinds[kind].name, name)) {
      *ret = kind; /* of "internal" the first, ERROR_INTERNAL */
      return true;
    }
  }
  return false;
}

enum error_kind error_kind_of_http(int status) {
  static const struct {
    int status;
    enum error_kind kind;
  } known[] = {{401, ERROR_UNAUTHENTICATED}, {403, ERROR_FORBIDDEN},
               {404, ERROR_MISSING},         {408, ERROR_DEADLINE},
               {409, ERROR_CONFLICT},        {412, ERROR_PRECONDITION},
               {413, ERROR_TOO_LARGE},       {414, ERROR_TOO_LARGE},
               {428, ERROR_PRECONDITION},    {429, ERROR_RATE},
               {431, ERROR_TOO_LARGE},       {502, ERROR_UNAVAILABLE},
               {503, ERROR_UNAVAILABLE},     {504, ERROR_DEADLINE}};

  for (size_t i = 0; i < ARRAY_LENGTH(known); i++)
    if (known[i].status == status)
      return known[i].kind;
  return status >= 500 ? ERROR_INTERNAL : status >= 400 ? ERROR_INVALID : ERROR_UNAVAILABLE;
}

#define ID_CHARACTERS 16
#define ID_GROUP 4
#define ID_RANDOM_BITS 38

bool request_id_is_good(const char *text) {
  size_t length =
      strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-");
  return length > 0 && length < REQUEST_ID_SIZE && !text[length] && !string_starts(text, "wt_");
}

void request_id_make(char text[REQUEST_ID_SIZE]) {
  static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
  static _Thread_local struct rng rng;
  static _Thread_local bool is_seeded;
  if (!is_seeded)
    ALWAYS(getrandom(&rng.state, sizeof rng.state, 0) == (ssize_t)sizeof rng.state);
  is_seeded = true;

  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);

  uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  unsigned __int128 bits =
      (unsigned __int128)now_ms << ID_RANDOM_BITS | rng_next(&rng) >> (64 - ID_RANDOM_BITS);

  char *at = text;
  for (int i = ID_CHARACTERS - 1; i >= 0; i--) {
    *at++ = digits[(unsigned)(bits >> (5 * i)) & 31];
    if (i && i % ID_GROUP == 0)
      *at++ = '-';
  }
  *at = '\0';
}
