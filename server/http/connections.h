/* Which connections the server closes by itself, and why.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_CONNECTIONS_H
#define WAVETUNE_SERVER_HTTP_CONNECTIONS_H

#include "common/base/base.h"

/* END(id, reason in /metrics) */
#define CONNECTION_ENDS(END)                                                                       \
  END(HEAD, "head")     /* a request's head was not complete in time */                            \
  END(BODY, "body")     /* a request's body arrived too slowly */                                  \
  END(ANSWER, "answer") /* an answer was read too slowly */

enum connection_end {
#define X(id, reason) END_##id,
  CONNECTION_ENDS(X)
#undef X
      CONNECTION_END_COUNT
};

/* Closes the connection in both directions. libmicrohttpd notices that in its next turn. */
struct connection;
void connection_end(struct connection *connection, enum connection_end reason);

#endif
