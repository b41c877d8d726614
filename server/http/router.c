/* Finds routes in the table. Static and pure; any thread. */
#include "server/http/router.h"

static const struct route routes[] = {
/* clang-format off */
#define X(id_, method_, path_, role_, place_, body_max_, batch_, summary_)                                             \
  [ROUTE_##id_] = {.id = ROUTE_##id_, .name = #id_, .method = method_, .path = path_, .summary = summary_,             \
                   .role = role_, .place = place_, .body_max = body_max_, .batch = batch_,                             \
                   .is_json = (body_max_) > 0 && ROUTE_##id_ != ROUTE_blob_put},
    ROUTES(X)
#undef X
    /* clang-format on */
};

#define X(id_, method_, path_, role_, place_, body_max_, batch_, summary_)                                             \
  _Static_assert((batch_) >= 1 && (batch_) <= ROUTE_BATCH_MAX, #id_);
ROUTES(X)
#undef X

const struct route *route_of(enum route_id id) { return &routes[id]; }

/* Compares a pattern such as /v1/jobs/{id} with the segments of a path. */
static bool path_matches(const char *pattern, const struct uri *uri, const char *segments[REQUEST_SEGMENTS_MAX]) {
  size_t n_captured = 0;
  for (size_t i = 0; i < uri->n_segments; i++) {
    if (*pattern != '/')
      return false;
    const char *part = pattern + 1;
    size_t length = strcspn(part, "/");
    pattern = part + length;
    if (*part == '{' && *uri->segments[i]) {
      ALWAYS(n_captured < REQUEST_SEGMENTS_MAX);
      segments[n_captured++] = uri->segments[i];
    } else if (strlen(uri->segments[i]) != length || memcmp(uri->segments[i], part, length) != 0) {
      return false;
    }
  }
  return *pattern == '\0';
}

static void allow_add(char allow[ROUTE_ALLOW_SIZE], const char *method) {
  size_t used = strlen(allow);
  snprintf(allow + used, ROUTE_ALLOW_SIZE - used, "%s%s", used ? ", " : "", method);
}

enum route_match route_find(const char *method, const struct uri *uri, const struct route **ret_route,
                            const char *segments[REQUEST_SEGMENTS_MAX], char allow[ROUTE_ALLOW_SIZE]) {
  if (uri->n_segments > URI_SEGMENTS_MAX)
    return ROUTE_NO_PATH;
  if (strcmp(method, "HEAD") == 0)
    method = "GET";
  allow[0] = '\0';
  for (size_t i = 0; i < ROUTE_COUNT; i++) {
    const char *captured[REQUEST_SEGMENTS_MAX] = {0};
    if (!path_matches(routes[i].path, uri, captured))
      continue;
    if (strcmp(method, routes[i].method) == 0) {
      memcpy(segments, captured, sizeof captured);
      *ret_route = &routes[i];
      return ROUTE_FOUND;
    }
    allow_add(allow, routes[i].method);
    if (strcmp(routes[i].method, "GET") == 0)
      allow_add(allow, "HEAD");
  }
  return allow[0] ? ROUTE_NO_METHOD : ROUTE_NO_PATH;
}

bool role_may(enum token_role role, enum token_role needed) {
  if (needed == TOKEN_ANYONE)
    return true;
  if (role == TOKEN_ANYONE)
    return false;
  if (role == TOKEN_DEMAND)
    return needed == TOKEN_DEMAND;
  if (role == TOKEN_ENROL)
    return needed == TOKEN_ENROLLER;
  if (role == TOKEN_ADMIN || needed == TOKEN_ANY)
    return true;
  if (needed == TOKEN_READER)
    return role == TOKEN_READER || role == TOKEN_SUBMITTER;
  if (needed == TOKEN_WRITER)
    return role == TOKEN_SUBMITTER || role == TOKEN_AGENT;
  if (needed == TOKEN_ENROLLER)
    return role == TOKEN_AGENT;
  return role == needed;
}

static const struct {
  const char *name;
  enum token_role role;
} role_names[] = {{"reader", TOKEN_READER}, {"submitter", TOKEN_SUBMITTER}, {"agent", TOKEN_AGENT},
                  {"demand", TOKEN_DEMAND}, {"enrol", TOKEN_ENROL},         {"admin", TOKEN_ADMIN}};

const char *role_name(enum token_role role) {
  for (size_t i = 0; i < ARRAY_LENGTH(role_names); i++)
    if (role_names[i].role == role)
      return role_names[i].name;
  return role == TOKEN_ANY        ? "any"
         : role == TOKEN_WRITER   ? "submitter or agent"
         : role == TOKEN_ENROLLER ? "enrol or agent"
                                  : "anyone";
}

bool role_parse(const char *name, enum token_role *ret_role) {
  for (size_t i = 0; i < ARRAY_LENGTH(role_names); i++)
    if (strcmp(role_names[i].name, name) == 0) {
      *ret_role = role_names[i].role;
      return true;
    }
  return false;
}
