/* Parses targets and header values, and finds routes in the table. */
#include "server/http/router.h"

#include <strings.h>

#define TOKEN_LENGTH_MAX 8192 /* those of identity providers have 1 to 4 KiB */

static int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool uri_decode(char *text, bool is_query, struct error *error) {
  char *out = text;
  for (const char *in = text; *in; in++) {
    if (*in == '%') {
      int high = hex_value(in[1]);
      int low = high < 0 ? -1 : hex_value(in[2]);
      if (low < 0 || (high | low) == 0)
        return error_set(error, "in the request target, two hexadecimal digits other than 00 must "
                                "follow each \"%%\"");
      *out++ = (char)(high << 4 | low);
      in += 2;
    } else {
      *out++ = is_query && *in == '+' ? ' ' : *in;
    }
  }

  *out = '\0';
  return json_can_hold(text) || error_set(error, "the request target is not UTF-8");
}

/* Cuts at the next `separator`; returns what comes after it or NULL. */
static char *text_cut(char *text, char separator) {
  char *at = strchr(text, separator);
  if (!at)
    return NULL;
  *at = '\0';
  return at + 1;
}

bool uri_parse(const char *target, struct uri *ret_uri, struct error *error) {
  if (string_starts(target, "http://") || string_starts(target, "https://")) {
    const char *path = strchr(strchr(target, ':') + 3, '/');
    target = path ? path : "/";
  }

  if (*target != '/')
    return error_set(error, "the request target must be a path");

  cleanup_free char *owned = xstrdup(target);
  struct uri uri = {0};
  char *query = text_cut(owned, '?');
  for (char *text = owned + 1, *next; text; text = next) {
    next = text_cut(text, '/');
    if (!uri_decode(text, false, error))
      return false;
    if (uri.n_segments < URI_SEGMENTS_MAX)
      uri.segments[uri.n_segments] = text;
    uri.n_segments++;
  }

  for (char *text = query, *next; text; text = next) {
    next = text_cut(text, '&');
    if (!*text)
      continue;
    char *value = text_cut(text, '=');
    if (!value)
      value = text + strlen(text);
    if (!uri_decode(text, true, error) || !uri_decode(value, true, error))
      return false;
    if (uri_query(&uri, text))
      return error_set(error, "the query argument \"%.64s\" occurs twice", text);
    if (uri.n_query == URI_QUERY_MAX)
      return error_set(error, "the query has more than %d arguments", URI_QUERY_MAX);
    uri.query[uri.n_query].name = text;
    uri.query[uri.n_query++].value = value;
  }

  uri.text = TAKE(owned);
  *ret_uri = uri;
  return true;
}

void uri_release(struct uri *uri) {
  free(uri->text);
  *uri = (struct uri){0};
}

const char *uri_query(const struct uri *uri, const char *name) {
  for (size_t i = 0; i < uri->n_query; i++)
    if (strcmp(uri->query[i].name, name) == 0)
      return uri->query[i].value;
  return NULL;
}

/* Routes whose body is not JSON. */
#define TAKES_BYTES(id)                                                                            \
  ((id) == ROUTE_blob_put || (id) == ROUTE_remote_group_put || (id) == ROUTE_remote_file_put)

/* Routes whose answers may be cached (request_answer_cached). */
#define IS_CACHED(id)                                                                              \
  ((id) == ROUTE_build_get || (id) == ROUTE_release_get || (id) == ROUTE_release_export ||         \
   (id) == ROUTE_channel_get || (id) == ROUTE_cache_get || (id) == ROUTE_image_get ||              \
   (id) == ROUTE_choices_get || (id) == ROUTE_remote_group_get || (id) == ROUTE_remote_file_get || \
   (id) == ROUTE_remote_inductor_get || (id) == ROUTE_remote_helion_get)

static const struct route routes[] = {
/* clang-format off */
#define X(id_, method_, path_, roles_, place_, body_max_, summary_) \
  [ROUTE_##id_] = {.id = ROUTE_##id_, .name = #id_, .method = method_, .path = path_, \
                   .summary = summary_, .roles = roles_, .place = place_, .body_max = body_max_, \
                   .is_json = (body_max_) > 0 && !TAKES_BYTES(ROUTE_##id_), \
                   .is_cached = IS_CACHED(ROUTE_##id_)},
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

enum route_match route_find(const char *method, const struct uri *uri,
                            const struct route **ret_route,
                            const char *segments[REQUEST_SEGMENTS_MAX],
                            char allow[ROUTE_ALLOW_SIZE]) {
  if (uri->n_segments > URI_SEGMENTS_MAX)
    return ROUTE_NO_PATH;

  if (strcmp(method, "HEAD") == 0)
    method = "GET";

  /* The first path that fits: /v1/captures/leases is no capture. */
  const char *path = NULL;
  allow[0] = '\0';
  for (size_t i = 0; i < ROUTE_COUNT; i++) {
    const char *captured[REQUEST_SEGMENTS_MAX] = {0};
    if (path ? strcmp(routes[i].path, path) != 0 : !path_matches(routes[i].path, uri, captured))
      continue;
    if (!path)
      memcpy(segments, captured, sizeof captured);
    path = routes[i].path;
    if (strcmp(method, routes[i].method) == 0) {
      *ret_route = &routes[i];
      return ROUTE_FOUND;
    }

    size_t used = strlen(allow);
    snprintf(allow + used, ROUTE_ALLOW_SIZE - used, "%s%s%s", used ? ", " : "", routes[i].method,
             strcmp(routes[i].method, "GET") == 0 ? ", HEAD" : "");
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
          "the role \"%.*s\" is unknown: it must be one of %s, or several separated by commas",
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
                    "the roles agent, enrol and admin cannot be combined with others; make two "
                    "tokens");

  *ret_roles = roles;
  return true;
}

const char *header_bearer(const char *value) {
  if (strncasecmp(value, "Bearer ", 7) != 0)
    return NULL;

  value += 7;
  while (*value == ' ')
    value++;
  size_t length = 0;
  while (value[length] > ' ' && value[length] < 0x7f)
    length++;
  return length && length <= TOKEN_LENGTH_MAX && !value[length] ? value : NULL;
}

bool header_etag_listed(const char *list, const char *etag) {
  static const char separators[] = " \t,";
  size_t length = strlen(etag);
  list += strspn(list, separators);
  if (strcmp(list, "*") == 0)
    return true;

  while (*list) {
    if (string_starts(list, "W/"))
      list += 2;
    if (*list != '"')
      return false;
    const char *end = strchr(++list, '"');
    if (!end)
      return false;
    if ((size_t)(end - list) == length && memcmp(list, etag, length) == 0)
      return true;
    list = end + 1 + strspn(end + 1, separators);
  }

  return false;
}

bool header_accepts(const char *list, const char *coding) {
  size_t length = strlen(coding);
  for (const char *item = list; item; item = strchr(item, ',')) {
    item += strspn(item, ", \t");
    size_t named = strcspn(item, ",; \t");
    if (named != length || strncasecmp(item, coding, length) != 0)
      continue;
    const char *weight = item + named + strspn(item + named, " \t");
    if (*weight++ != ';')
      return true;
    weight += strspn(weight, " \t");
    return strncasecmp(weight, "q=", 2) != 0 || strtod(weight + 2, NULL) > 0;
  }

  return false;
}

/* Reads the digits at *text; a larger number than UINT64_MAX becomes UINT64_MAX. False: there are
 * none. */
static bool digits_read(const char **text, uint64_t *ret) {
  uint64_t number = 0;
  const char *c = *text;
  for (; *c >= '0' && *c <= '9'; c++)
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number))
      number = UINT64_MAX;

  if (c == *text)
    return false;

  *text = c;
  *ret = number;
  return true;
}

enum range_answer header_range(const char *value, size_t size, size_t *ret_first,
                               size_t *ret_last) {
  uint64_t first = 0, last = 0;
  if (strncasecmp(value, "bytes=", 6) != 0)
    return RANGE_WHOLE;
  value += 6;

  bool has_first = digits_read(&value, &first);
  if (*value++ != '-')
    return RANGE_WHOLE;

  bool has_last = digits_read(&value, &last);
  if (*value || (!has_first && !has_last) || (has_first && has_last && last < first))
    return RANGE_WHOLE;

  if (has_first ? first >= size : last == 0 || size == 0)
    return RANGE_UNSATISFIABLE;

  if (!has_first) { /* "bytes=-N": the last N bytes */
    *ret_first = last < size ? size - last : 0;
    *ret_last = size - 1;
  } else {
    *ret_first = first;
    *ret_last = has_last && last < size ? last : size - 1;
  }

  return RANGE_PART;
}

bool header_size(const char *value, uint64_t *ret_size) {
  uint64_t size;
  if (!digits_read(&value, &size) || *value || size == UINT64_MAX)
    return false;
  *ret_size = size;
  return true;
}
