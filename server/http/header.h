/* The values of request headers: bearer tokens, lists of entity tags, byte ranges.
 *
 * Memory: borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_HTTP_HEADER_H
#define WAVETUNE_SERVER_HTTP_HEADER_H

#include "common/base/base.h"

/* The token of "Bearer TOKEN", NULL when the value is something else. TOKEN is 1 to 256 visible
 * characters. */
const char *header_bearer(const char *value);

/* Whether a list of entity tags ("*", or quoted ones, weak or strong, with commas) names `etag`
 * (without quotes). */
bool header_etag_listed(const char *list, const char *etag);

enum range_answer { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };
/* One range of bytes of a body of `size` bytes; what is not one well-formed range is ignored
 * (RANGE_WHOLE), as RFC 9110 allows. Both ends are included. */
enum range_answer header_range(const char *value, size_t size, size_t *ret_first, size_t *ret_last);

/* Decimal digits only, no sign or space. */
must_check bool header_size(const char *value, uint64_t *ret_size);

#endif
