/* Reading and checking headers. Memory and threads: headers.h. */
#include "server/http/headers.h"

#include <strings.h>

#include "common/base/log.h"
#include "server/http/head.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/sign_in.h"

static const char *const header_names[] = {
#define X(id, name) name,
    KNOWN_HEADERS(X)
#undef X
};

/* NULL: it is not read. */
static const char *header_name(const struct server *server, enum known_header header) {
  if (server_http(server)->sign_in && header == HEADER_FORWARDED_USER)
    return sign_in_user_header(server_http(server)->sign_in);
  if (server_http(server)->sign_in && header == HEADER_FORWARDED_GROUPS)
    return sign_in_groups_header(server_http(server)->sign_in);
  return header_names[header];
}

static enum MHD_Result header_note(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
  struct connection *connection = context;
  (void)kind;

  for (int i = 0; value && i < HEADER_COUNT; i++) {
    const char *known = header_name(connection->server, (enum known_header)i);
    if (known && strcasecmp(name, known) == 0) {
      connection->headers[i] = value;
      connection->n_headers[i]++;
      if (i == HEADER_LENGTH)
        connection->has_bad_length |= !header_size(value, &connection->length);
    }
  }

  return MHD_YES;
}

bool headers_check(const struct connection *connection, struct error *error) {
  if (connection->head_fault)
    return error_set(error, "%s", connection->head_fault);

  static const enum known_header single[] = {
      HEADER_HOST,         HEADER_AUTHORIZATION,  HEADER_CLIENT_CERTIFICATE,
      HEADER_LENGTH,       HEADER_FORWARDED_USER, HEADER_FORWARDED_GROUPS,
      HEADER_PROXY_SECRET, HEADER_FETCH_SITE,     HEADER_ORIGIN};
  for (size_t i = 0; i < ARRAY_LENGTH(single); i++)
    if (connection->n_headers[single[i]] > 1)
      return error_set(error, "the header %s occurs twice",
                       header_name(connection->server, single[i]));

  if (connection->has_bad_length)
    return error_set(error, "the header Content-Length is not a decimal number");
  if (!connection->is_chunked)
    return true;
  if (connection->n_headers[HEADER_TRANSFER_ENCODING] > 1 ||
      strcasecmp(connection->headers[HEADER_TRANSFER_ENCODING], "chunked") != 0)
    return error_set(error, "the header Transfer-Encoding must be \"chunked\" here");

  return !connection->n_headers[HEADER_LENGTH] ||
         error_set(error, "a request has either Content-Length or Transfer-Encoding, not both");
}

void headers_read(struct connection *connection, const char *method, const char *version) {
  connection->is_read = true;
  connection->began_ns = clock_monotonic_ns();
  memset(connection->headers, 0, sizeof connection->headers);
  memset(connection->n_headers, 0, sizeof connection->n_headers);
  connection->length = 0;
  connection->has_bad_length = false;
  MHD_get_connection_values(connection->mhd, MHD_HEADER_KIND, header_note, connection);
  connection->is_chunked = connection->headers[HEADER_TRANSFER_ENCODING] != NULL;

  const struct head head = {method, connection->target_at, version, connection->target_size};
  connection->head_fault = head_fault(connection->mhd, &head);

  snprintf(connection->method, sizeof connection->method, "%s", method);
  const char *id = connection->headers[HEADER_REQUEST_ID];
  if (connection->n_headers[HEADER_REQUEST_ID] == 1 && request_id_is_good(id))
    memcpy(connection->request_id, id, strlen(id) + 1);
  else
    request_id_make(connection->request_id);

  log_set_request(connection->request_id);
}
