/* How errors appear outside of a program: an error's kind is a name and an HTTP status in problem
 * documents and an exit code in a shell (one table, so that the three cannot drift apart), and
 * X-Request-Id names the request.
 *
 * Memory: names are static, ids the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H
#define WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H

#include "common/base/error.h"

/* Exit codes of all programs, documented in docs/exit-codes.md. */
enum exit_code {
  EXIT_OK = 0,
  EXIT_FAILED = 1,      /* the work was done and the answer is no: a job failed, a check failed */
  EXIT_USAGE = 2,       /* flags, arguments or input files are wrong */
  EXIT_UNREACHABLE = 3, /* the server did not answer, or answered that it cannot now (5xx) */
  EXIT_REFUSED = 4,     /* the server refused (4xx) */
  EXIT_STALE = 5,       /* fetch: the last good cache was kept */
  EXIT_NOTHING = 6,     /* fetch: there is no cache, new or old */
  EXIT_UNCHANGED = 7,   /* fetch --exit-code: the cache that is there is the newest */
  EXIT_UNUSABLE = 8,    /* fetch: no requested format can express any winner; a retry is no use */
  /* fetch: what the server sent was refused; the sentence states whether a cache was kept */
  EXIT_TAMPERED = 10,  /* bytes that do not match their digest */
  EXIT_REPLAYED = 11,  /* an older channel entry than one that was seen */
  EXIT_EXPIRED = 12,   /* a channel entry past its time */
  EXIT_UNTRUSTED = 13, /* no valid signature by a trusted key, or not what was asked for */
  EXIT_TRUNCATED = 14, /* the connection ended in the middle of an answer */
  EXIT_INTERNAL = 70,
};

/* The exit code of a program after a request to a server, or reading its answer, failed with this
 * kind. Errors of other origins do not use it: before the first request a command returns
 * EXIT_USAGE, and for a negative result EXIT_FAILED. */
must_check enum exit_code error_exit_code(enum error_kind kind);

/* The status with which a server answers an error of this kind. */
must_check int error_http_status(enum error_kind kind);

/* "too_large": the member `kind` of problem documents. "internal" of what only a bug lets out. */
must_check const char *error_kind_name(enum error_kind kind);

/* Whether the same request may succeed later. */
must_check bool error_is_retryable(enum error_kind kind);

/* The kind of this name; false: it has none. */
must_check bool error_kind_of_name(const char *name, enum error_kind *ret);

/* The kind that an answer's status implies; `status` is no 2xx. 0, for no answer, is
 * ERROR_UNAVAILABLE. */
must_check enum error_kind error_kind_of_http(int status);

/* Ids of requests: what X-Request-Id holds, the problem document's "request", and each line of the
 * log that belongs to a request.
 *
 * An id that a server makes is 16 characters in four groups, like d1zz-8r3c-81qd-7m2e: 42 bits of
 * milliseconds since 1970 and 38 random ones, in Crockford's base 32 (no i, l, o, u: it can be read
 * aloud). Ids sort by their time. They are no secrets. */
#define REQUEST_ID_HEADER "X-Request-Id"
#define REQUEST_ID_SIZE 65 /* of the longest that is accepted, and its NUL */

/* Whether an id that was made elsewhere may be used: 1 to 64 of A-Z, a-z, 0-9, ".", "_", ":" and
 * "-". Not what begins as tokens do ("wt_"): ids are logged, and a program may confuse the two
 * headers. */
bool request_id_is_good(const char *text);

void request_id_make(char text[REQUEST_ID_SIZE]);

#endif
