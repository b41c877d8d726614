/* Ids of requests: what X-Request-Id holds, the problem document's "request", and each line of the
 * log that belongs to a request.
 *
 * An id that a server makes is 16 characters in four groups, like d1zz-8r3c-81qd-7m2e: 42 bits of
 * milliseconds since 1970 and 38 random ones, in Crockford's base 32 (no i, l, o, u: it can be read
 * aloud). Ids sort by their time. They are no secrets.
 *
 * Memory: the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_PROGRAM_REQUEST_ID_H
#define WAVETUNE_COMMON_PROGRAM_REQUEST_ID_H

#include "common/base/base.h"

#define REQUEST_ID_HEADER "X-Request-Id"
#define REQUEST_ID_SIZE 65 /* of the longest that is taken over, and its NUL */

/* Whether an id that somebody else made may be taken over: 1 to 64 of A-Z, a-z, 0-9, ".", "_", ":"
 * and "-". Not what begins as tokens do ("wt_"): ids are logged, and a program may take one header
 * for the other. */
bool request_id_is_good(const char *text);

void request_id_make(char text[REQUEST_ID_SIZE]);

#endif
