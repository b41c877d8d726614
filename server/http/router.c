/* Finds routes in the table. Static and pure; any thread. */
#include "server/http/router.h"

static const struct route routes[] = {
/* clang-format off */
#define X(id_, method_, path_, roles_, place_, body_max_, summary_) \
  [ROUTE_##id_] = {.id = ROUTE_##id_, .name = #id_, .method = method_, .path = path_, \
                   .summary = summary_, .roles = roles_, .place = place_, .body_max = body_max_, \
                   .is_json = (body_max_) > 0 && ROUTE_##id_ != ROUTE_blob_put},
    ROUTES(X)
#undef X
    /* clang-format on */
};

const struct route *route_of(enum route_id id) { return &routes[id]; }

/* Compares a pattern such as /v1/jobs/{id} with the segments of a path. */
static bool path_matches(const char *pattern, const struct uri *uri,
                         const char *segments[REQUEST_SEGMENTS_MAX]) {
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

enum route_match route_find(const char *method, const struct uri *uri,
                            const struct route **ret_route,
                            const char *segments[REQUEST_SEGMENTS_MAX],
                            char allow[ROUTE_ALLOW_SIZE]) {
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

static const char *const role_names[TOKEN_ROLE_COUNT] = {
#define X(id, name) [TOKEN_##id##_BIT] = name,
    TOKEN_ROLES(X)
#undef X
};

bool roles_may(unsigned roles, unsigned allowed) {
  return allowed == TOKEN_ANYONE || (roles & allowed);
}

char *roles_text(unsigned roles, const char *separator) {
  char *text = xstrdup("");
  for (unsigned bit = 0; bit < TOKEN_ROLE_COUNT; bit++) {
    if (!(roles & 1u << bit))
      continue;
    char *longer = xasprintf("%s%s%s", text, *text ? separator : "", role_names[bit]);
    free(text);
    text = longer;
  }
  return text;
}

bool roles_parse(const char *text, unsigned *ret_roles, struct error *error) {
  cleanup_free char *known = roles_text(~0u, ", ");
  unsigned roles = 0;
  for (const char *name = text, *end;; name = end + 1) {
    end = name + strcspn(name, ",");
    unsigned bit = 0;
    while (bit < TOKEN_ROLE_COUNT && (strlen(role_names[bit]) != (size_t)(end - name) ||
                                      memcmp(role_names[bit], name, (size_t)(end - name)) != 0))
      bit++;
    if (bit == TOKEN_ROLE_COUNT)
      return error_at(
          error, "/role",
          "the role \"%.*s\" is unknown: it must be one of %s, or several with a comma between",
          (int)(end - name > 32 ? 32 : end - name), name, known);
    if (roles & 1u << bit)
      return error_at(error, "/role", "the role %s is named twice", role_names[bit]);
    roles |= 1u << bit;
    if (!*end)
      break;
  }

  unsigned alone = roles & (TOKEN_AGENT | TOKEN_ENROL | TOKEN_ADMIN);
  if (alone && roles & (roles - 1))
    return error_at(error, "/role",
                    "the roles agent, enrol and admin do not go with others; make two tokens");
  *ret_roles = roles;
  return true;
}
