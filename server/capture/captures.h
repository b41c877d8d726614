/* Launches that programs recorded (docs/capture.md): posted by containers, leased to builders,
 * which make kernels and builds of them.
 *
 * A function is identified by its closure and the token that posted it; a launch by key,
 * environment and image. The server reads of the documents what it needs and stores them whole:
 * builders check the rest. The first document of a launch is kept, later ones count.
 *
 * A function's text is source that belongs to the owner of the token: it is answered only to that
 * token, to builders, operators and admins. A builder leases the launches of one function. A lease
 * has an epoch: results of an older one are refused, so that a builder that was slow cannot undo
 * what another did.
 *
 * Memory: a report owns what it holds. Threads: reading is pure; routes run on database workers. */
#ifndef WAVETUNE_SERVER_CAPTURE_CAPTURES_H
#define WAVETUNE_SERVER_CAPTURE_CAPTURES_H

#include "common/base/digest.h"
#include "common/record/record.h"

#define CAPTURE_VERSION 1
#define CAPTURE_FUNCTIONS_MAX 64 /* of a request */
#define CAPTURE_LAUNCHES_MAX 256 /* of a request */
#define CAPTURE_FUNCTION_BYTES                                                                     \
  (3 << 19)                            /* of a function's canonical JSON: 1 MiB of text, escaped */
#define CAPTURE_LAUNCH_BYTES (1 << 20) /* of a launch's */
#define CAPTURE_NAME_MAX 1024          /* bytes of MODULE:QUALNAME */
#define CAPTURE_TRITON_MAX 64          /* bytes of a version */
#define CAPTURE_TOKEN_FUNCTIONS_MAX 10000 /* kept of a token */
#define CAPTURE_KEYS_MAX 4096             /* launches kept of a function */
#define CAPTURE_POSTS_PER_MINUTE 60
#define CAPTURE_LEASE_S 600
#define CAPTURE_LEASED_MAX 64 /* launches of a lease */
#define CAPTURE_AT_ONCE 1000  /* launches that are removed in one statement */

struct captured_function {
  struct digest closure;
  const char *name; /* borrowed from the report's JSON */
  char *document;
};
struct captured_launch {
  struct digest closure, digest, key_digest;
  char *key; /* JSON, members in the autotuner's order */
  char *arch;
  const char *triton; /* borrowed from the report's JSON */
  char *document;
};
struct capture_report {
  size_t n_functions, n_launches;
  struct captured_function *functions;
  struct captured_launch *launches;
};

/* Reads the body of POST /v1/captures: {"functions": [DOCUMENT…], "launches": [DOCUMENT…]}. The
 * report borrows from `json`. */
must_check bool capture_report_parse(const json_t *json, struct capture_report *ret,
                                     struct error *error);
void capture_report_release(struct capture_report *report);
#define cleanup_capture_report __attribute__((cleanup(capture_report_release)))

#endif
