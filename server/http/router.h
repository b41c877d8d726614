/* Parses request lines and headers: targets, routes, roles, tokens, entity tags, ranges.
 *
 * libmicrohttpd's decoding of targets is not used: it decodes "%2F" before the path is split and
 * lets NUL through. Memory: a uri owns its text; segments and values point into it; else results
 * are borrowed from arguments and static tables. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_HTTP_ROUTER_H
#define WAVETUNE_SERVER_HTTP_ROUTER_H

#include "server/http/request.h"

#define URI_SEGMENTS_MAX 8
#define URI_QUERY_MAX 32

struct uri {
  char *text;
  size_t n_segments; /* may be above URI_SEGMENTS_MAX: then no route matches */
  const char *segments[URI_SEGMENTS_MAX];
  size_t n_query;
  struct {
    const char *name, *value;
  } query[URI_QUERY_MAX];
};

/* Parses the target of a request line ("/v1/jobs?limit=10" or an absolute one). Refuses a wrong
 * percent-encoding, NUL, bytes that are not UTF-8, a repeated query argument, and too many query
 * arguments. */
must_check bool uri_parse(const char *target, struct uri *ret_uri, struct error *error);
/* Decodes %XX in place; a "+" is a space in a query. Refuses what uri_parse refuses. */
must_check bool uri_decode(char *text, bool is_query, struct error *error);
void uri_release(struct uri *uri);
const char *uri_query(const struct uri *uri, const char *name); /* NULL when absent */

struct route {
  enum route_id id;
  const char *name, *method, *path, *summary;
  unsigned roles; /* that may call it; TOKEN_ANYONE: no token is needed */
  enum route_place place;
  size_t body_max;
  bool is_json;   /* it takes a JSON body */
  bool is_cached; /* its answers may be cached */
};

const struct route *route_of(enum route_id id);

enum route_match { ROUTE_FOUND, ROUTE_NO_PATH, ROUTE_NO_METHOD };
/* HEAD finds the route of GET. `segments` are those that match {…} in the route. With
 * ROUTE_NO_METHOD, `allow` is the value of the header Allow. */
#define ROUTE_ALLOW_SIZE 48
enum route_match route_find(const char *method, const struct uri *uri,
                            const struct route **ret_route,
                            const char *segments[REQUEST_SEGMENTS_MAX],
                            char allow[ROUTE_ALLOW_SIZE]);

/* Whether a token with `roles` may call a route that allows `allowed`. */
bool roles_may(unsigned roles, unsigned allowed);
/* "reader", "submitter,publisher": names in the order of TOKEN_ROLES. The caller's. */
must_check char *roles_text(unsigned roles, const char *separator);
/* Names separated by commas; the error's pointer is /role. */
must_check bool roles_parse(const char *text, unsigned *ret_roles, struct error *error);

/* The token of "Bearer TOKEN", NULL for any other value. TOKEN is 1 to 8192 visible
 * characters. */
const char *header_bearer(const char *value);

/* Whether a list of entity tags ("*", or quoted ones, weak or strong, with commas) names `etag`
 * (without quotes). */
bool header_etag_listed(const char *list, const char *etag);

/* Whether the value of Accept-Encoding allows `coding`, such as gzip; "*" and NULL do not. */
bool header_accepts(const char *list, const char *coding);

enum range_answer { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };
/* One range of bytes, both ends included, of a body of `size` bytes. Several ranges or a malformed
 * one are ignored (RANGE_WHOLE), as RFC 9110 allows. */
enum range_answer header_range(const char *value, size_t size, size_t *ret_first, size_t *ret_last);

/* Decimal digits only, no sign or space. */
must_check bool header_size(const char *value, uint64_t *ret_size);

#endif
