/* Who sends a request.
 *
 * Memory: the certificate is the connection's. Threads: the connection's event thread. */
#ifndef WAVETUNE_SERVER_HTTP_CREDENTIALS_H
#define WAVETUNE_SERVER_HTTP_CREDENTIALS_H

#include "server/http/request_private.h"

/* A request is authorised by a token or, without one, by a trusted proxy that signed its user in or
 * by a certificate. */
struct credentials {
  const struct client_certificate *certificate;
  bool is_by_proxy;
  enum auth_answer answer;
  struct digest digest; /* AUTH_LOOK_UP: of the token or the certificate */
  struct error refusal; /* of the certificate or the user; "": it is not refused */
};

/* With a token and a certificate the token counts, but the certificate must be valid too. */
void credentials_read(struct connection *connection, struct credentials *ret);

#endif
