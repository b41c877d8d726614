/* The target of a request: its path in segments and its query, percent-decoded.
 *
 * libmicrohttpd's own decoding is not used: it decodes "%2F" before the path is split and lets NUL
 * through. Memory: a uri owns its text; segments and values point into it. Threads: plain value. */
#ifndef WAVETUNE_SERVER_HTTP_URI_H
#define WAVETUNE_SERVER_HTTP_URI_H

#include "common/base/error.h"

#define URI_SEGMENTS_MAX 8
#define URI_QUERY_MAX 32

struct uri {
  char *text;
  size_t n_segments; /* more than URI_SEGMENTS_MAX: no route has so many */
  const char *segments[URI_SEGMENTS_MAX];
  size_t n_query;
  struct {
    const char *name, *value;
  } query[URI_QUERY_MAX];
};

/* Takes a target as it stands in the request line ("/v1/jobs?limit=10" or an absolute one). Refused
 * are a wrong percent-encoding, NUL, what is not UTF-8, a query argument that comes twice, and too
 * many of them. */
must_check bool uri_parse(const char *target, struct uri *ret_uri, struct error *error);
void uri_release(struct uri *uri);
const char *uri_query(const struct uri *uri, const char *name); /* NULL when absent */

#endif
