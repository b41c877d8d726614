/* The open connections: which the server closes by itself, and why.
 *
 * A connection is a stranger's until a request on it had a valid token or certificate. Strangers
 * have a part of all places, and a limit by address. At a limit the oldest stranger is closed, not
 * the new connection: so a flood of strangers keeps nobody out, because a client sends its token at
 * once. Clients' connections are not closed; a further one, when they have their part of the
 * places, remains a stranger's. Those of agents and operators always get a place.
 *
 * Memory: a struct connections links connections, which dispatch.c owns; it owns the addresses.
 * Threads: any; one lock, so that no other thread closes a file descriptor that is in use again. */
#ifndef WAVETUNE_SERVER_HTTP_CONNECTIONS_H
#define WAVETUNE_SERVER_HTTP_CONNECTIONS_H

#include <sys/queue.h>

#include "common/base/base.h"

/* END(id, reason in /metrics) */
#define CONNECTION_ENDS(END)                                                                       \
  END(HEAD, "head")       /* a request's head was not complete in time */                          \
  END(BODY, "body")       /* a request's body arrived too slowly */                                \
  END(ANSWER, "answer")   /* an answer was read too slowly */                                      \
  END(ADDRESS, "address") /* a newer stranger from the same address took the place */              \
  END(PLACES, "places")   /* a newer connection took the place, or there was none */

enum connection_end {
#define X(id, reason) END_##id,
  CONNECTION_ENDS(X)
#undef X
      CONNECTION_END_COUNT
};

/* CLASS(id, name in /metrics) */
#define CONNECTION_CLASSES(CLASS)                                                                  \
  CLASS(STRANGER, "stranger")                                                                      \
  CLASS(CLIENT, "client")                                                                          \
  CLASS(FLEET, "fleet") /* agents, operators and admins */

enum connection_class {
#define X(id, name) CLASS_##id,
  CONNECTION_CLASSES(X)
#undef X
      CONNECTION_CLASS_COUNT
};

struct connection;
TAILQ_HEAD(strangers, connection);

struct connections;
/* `most` connections in all; strangers and clients may have three quarters each. `per_address`:
 * strangers of one address, or of one IPv6 network of 64 bits. */
must_check struct connections *connections_new(size_t most, size_t per_address);
void connections_free(struct connections *connections); /* must be empty */

/* Adds a new connection, a stranger's; NULL: its address has no limit (a trusted proxy's). May
 * close an older one or, when no place is left, this one. */
void connections_add(struct connections *connections, struct connection *connection,
                     const uint8_t address[16]);
void connections_remove(struct connections *connections, struct connection *connection);
/* Cheap when the class is the same as before. Threads: the connection's event thread. */
void connections_set_class(struct connections *connections, struct connection *connection,
                           enum connection_class class);
void connections_count(struct connections *connections, size_t ret_n[CONNECTION_CLASS_COUNT]);

/* Closes the connection in both directions. libmicrohttpd notices that in its next turn. */
void connection_end(struct connections *connections, struct connection *connection,
                    enum connection_end reason);

#endif
