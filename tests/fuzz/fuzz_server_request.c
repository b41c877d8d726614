/* What a client controls of a request: its method and target, its header values, its JSON body. One
 * line each. */
#include "server/http/router.h"
#include "tests/fuzz/fuzz.h"

static void target_read(const char *method, const char *target) {
  struct uri uri;
  struct error error;

  if (!uri_parse(target, &uri, &error)) {
    ALWAYS(error.message[0]);
    return;
  }

  const struct route *route;
  const char *segments[REQUEST_SEGMENTS_MAX] = {0};
  char allow[ROUTE_ALLOW_SIZE];
  switch (route_find(method, &uri, &route, segments, allow)) {
  case ROUTE_FOUND:
    for (const char *open = strchr(route->path, '{'), **segment = segments; open;
         open = strchr(open + 1, '{'), segment++)
      ALWAYS(*segment && **segment);
    break;
  case ROUTE_NO_METHOD:
    ALWAYS(allow[0]);
    break;
  default:
    break;
  }

  for (size_t i = 0; i < uri.n_query; i++)
    ALWAYS(uri_query(&uri, uri.query[i].name) == uri.query[i].value);
  uri_release(&uri);
}

static void headers_read(const char *value) {
  size_t first, last;
  uint64_t length;
  for (size_t size = 0; size < 5; size++)
    if (header_range(value, size, &first, &last) == RANGE_PART)
      ALWAYS(first <= last && last < size);

  header_etag_listed(value, "sha256:0");
  const char *bearer = header_bearer(value);
  ALWAYS(!bearer || *bearer);
  if (header_size(value, &length))
    ALWAYS(value[0] >= '0' && value[0] <= '9');
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *method = line_next(&at, end), *target = line_next(&at, end),
                    *header = line_next(&at, end);

  target_read(method, target);
  headers_read(header);
  cleanup_json json_t *body = NULL;
  struct error error;
  if (json_parse(at, (size_t)(end - at), &body, &error)) {
    cleanup_free char *canonical = json_canonical(body);
    ALWAYS(canonical != NULL);
  }

  return 0;
}
