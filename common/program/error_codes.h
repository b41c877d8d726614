/* Errors as clients see them: the name and HTTP status of each kind in problem documents, and its
 * exit code. Ids of requests.
 *
 * Memory: names are static, ids the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H
#define WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H

#include "common/base/error.h"

/* Exit codes of all programs, documented in docs/exit-codes.md. */
enum exit_code {
  EXIT_OK = 0,
  EXIT_FAILED = 1, /* the work was done, with a negative result: a job failed, a check failed */
  EXIT_USAGE = 2,  /* flags, arguments or input files are wrong */
  EXIT_UNREACHABLE = 3, /* the server did not answer, or answered with 5xx */
  EXIT_REFUSED = 4,     /* the server refused (4xx) */
  EXIT_STALE = 5,       /* fetch: the last good cache was kept */
  EXIT_NOTHING = 6,     /* fetch: there is no cache, new or old */
  EXIT_UNCHANGED = 7,   /* fetch --exit-code: the existing cache is the newest */
  EXIT_UNUSABLE = 8, /* fetch: no requested format can express any winner; a retry does not help */
  EXIT_TIMEOUT = 9,  /* --timeout: the jobs had not ended; they go on */
  /* fetch: what the server sent was refused; the sentence states whether a cache was kept */
  EXIT_TAMPERED = 10,    /* bytes that do not match their digest */
  EXIT_REPLAYED = 11,    /* an older channel entry than one that was seen */
  EXIT_EXPIRED = 12,     /* a channel entry past its time */
  EXIT_UNTRUSTED = 13,   /* no valid signature by a trusted key, or not what was requested */
  EXIT_TRUNCATED = 14,   /* the connection ended in the middle of an answer */
  EXIT_UNPUBLISHED = 15, /* fetch: no entry for this channel, tag, regime and environment */
  EXIT_INTERNAL = 70,
};

/* The exit code of a program when a request to a server, or reading its answer, failed with this
 * kind. Not for other errors: before the first request a command returns EXIT_USAGE, and for a
 * negative result EXIT_FAILED. */
must_check enum exit_code error_exit_code(enum error_kind kind);

/* The status with which a server answers an error of this kind. */
must_check int error_http_status(enum error_kind kind);

/* The member `kind` of problem documents, like "too_large"; "internal" for kinds that servers send
 * only because of a bug. */
must_check const char *error_kind_name(enum error_kind kind);

/* Whether the same request may succeed later. */
must_check bool error_is_retryable(enum error_kind kind);

/* The kind with this name; false: there is none. */
must_check bool error_kind_of_name(const char *name, enum error_kind *ret);

/* The kind of an answer with this status, which is not 2xx. For 0, no answer: ERROR_UNAVAILABLE. */
must_check enum error_kind error_kind_of_http(int status);

/* Ids of requests: in X-Request-Id, in the member "request" of problem documents, and in each line
 * of the log that belongs to a request.
 *
 * A server makes ids of 16 characters in four groups, like d1zz-8r3c-81qd-7m2e: 42 bits of
 * milliseconds since 1970 and 38 random bits, in Crockford's base 32 (without i, l, o and u, which
 * are easily confused). Ids sort by their time. They are no secrets. */
#define REQUEST_ID_HEADER "X-Request-Id"
#define REQUEST_ID_SIZE 65 /* of the longest id that is accepted, with its NUL */

/* Whether the id of a client may be used: 1 to 64 of A-Z, a-z, 0-9, ".", "_", ":" and "-". Refuses
 * what begins like a token ("wt_"): ids are logged, and a client may confuse the two headers. */
bool request_id_is_good(const char *text);

void request_id_make(char text[REQUEST_ID_SIZE]);

#endif
