/* Which route a method and a path are, from the table ROUTES.
 *
 * Memory: static tables. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_ROUTER_H
#define WAVETUNE_SERVER_HTTP_ROUTER_H

#include "server/http/request.h"
#include "server/http/uri.h"

struct route {
  enum route_id id;
  const char *name, *method, *path, *summary;
  unsigned roles; /* that may call it; TOKEN_ANYONE: no token is needed */
  enum route_place place;
  size_t body_max;
  bool is_json; /* its body, where it takes one */
};

const struct route *route_of(enum route_id id);

enum route_match { ROUTE_FOUND, ROUTE_NO_PATH, ROUTE_NO_METHOD };
/* HEAD is GET. Fills `segments` with what the path's {…} matched. ROUTE_NO_METHOD fills `allow`
 * with the methods that there are, for the header Allow. */
#define ROUTE_ALLOW_SIZE 48
enum route_match route_find(const char *method, const struct uri *uri,
                            const struct route **ret_route,
                            const char *segments[REQUEST_SEGMENTS_MAX],
                            char allow[ROUTE_ALLOW_SIZE]);

/* Whether a token with `roles` may call a route that allows `allowed`. */
bool roles_may(unsigned roles, unsigned allowed);
/* "reader", "submitter,publisher": names in the order of TOKEN_ROLES. The caller's. */
must_check char *roles_text(unsigned roles, const char *separator);
/* Names with commas between; the error's pointer is /role. */
must_check bool roles_parse(const char *text, unsigned *ret_roles, struct error *error);

#endif
