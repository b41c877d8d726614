/* Closes connections. Memory and threads: connections.h. */
#include "server/http/connections.h"

#include <sys/socket.h>

#include "server/http/request_private.h"

void connection_end(struct connection *connection, enum connection_end reason) {
  shutdown(connection->fd, SHUT_RDWR);
  metrics_note_end(reason);
}
