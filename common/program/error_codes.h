/* What an error's kind is called and becomes outside of a program: a name and an HTTP status in
 * problem documents, an exit code in a shell. One table, so that the three cannot drift apart.
 *
 * Memory: names are static. Threads: any. */
#ifndef WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H
#define WAVETUNE_COMMON_PROGRAM_ERROR_CODES_H

#include "common/base/error.h"

/* Exit codes of all programs, documented in docs/exit-codes.md. */
enum exit_code {
  EXIT_OK = 0,
  EXIT_FAILED = 1,      /* the work was done and the answer is no: a job failed, a check failed */
  EXIT_USAGE = 2,       /* flags, arguments or input files are wrong */
  EXIT_UNREACHABLE = 3, /* the server did not answer, or answered that it cannot now (5xx) */
  EXIT_REFUSED = 4,     /* the server said no (4xx) */
  EXIT_STALE = 5,       /* fetch: the last good cache was kept */
  EXIT_NOTHING = 6,     /* fetch: there is no cache, new or old */
  EXIT_UNCHANGED = 7,   /* fetch --exit-code: the cache that is there is the newest */
  EXIT_UNUSABLE = 8,    /* fetch: no format asked for can say any winner; trying again is no use */
  /* fetch: what the server sent was refused; whether a cache was kept, the sentence says */
  EXIT_TAMPERED = 10,  /* other bytes than their digest says */
  EXIT_REPLAYED = 11,  /* an older channel entry than one that was seen */
  EXIT_EXPIRED = 12,   /* a channel entry past its time */
  EXIT_UNTRUSTED = 13, /* no valid signature by a trusted key, or not what was asked for */
  EXIT_TRUNCATED = 14, /* the connection ended in the middle of an answer */
  EXIT_INTERNAL = 70,
};

/* The exit code of a program after a request to a server, or what came of it, failed so. What a
 * command finds wrong by itself before it asks is EXIT_USAGE, and what it finds after it was
 * answered EXIT_FAILED, of whatever kind: the command says that. */
must_check enum exit_code error_exit_code(enum error_kind kind);

/* The status with which a server answers an error of this kind. */
must_check int error_http_status(enum error_kind kind);

/* "too_large": the member `kind` of problem documents. "internal" of what only a bug lets out. */
must_check const char *error_kind_name(enum error_kind kind);

/* Whether the same request may be answered otherwise later, although nobody changed it. */
must_check bool error_is_retryable(enum error_kind kind);

/* The kind of this name; false: it has none. */
must_check bool error_kind_of_name(const char *name, enum error_kind *ret);

/* The kind that an answer's status tells of; `status` is no 2xx. 0, for no answer, is
 * ERROR_UNAVAILABLE. */
must_check enum error_kind error_kind_of_http(int status);

#endif
