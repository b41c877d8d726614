/* Lists of strangers, in all and by address, oldest first, under a mutex. Memory and threads:
 * connections.h. */
#include "server/http/connections.h"

#include <sys/random.h>
#include <sys/socket.h>

#include "common/base/lock.h"
#include "common/cache/text.h"
#include "server/http/request_private.h"

#define ADDRESS_BUCKETS 4096

/* An address with strangers. */
struct peer {
  struct peer *next;
  uint8_t address[16];
  size_t n;
  struct strangers strangers;
};

struct connections {
  pthread_mutex_t lock;
  size_t most, per_address, most_of_class[CONNECTION_CLASS_COUNT], n[CONNECTION_CLASS_COUNT];
  struct strangers strangers;
  uint8_t secret[16]; /* so that clients cannot choose addresses of one bucket */
  struct peer *peers[ADDRESS_BUCKETS];
};

struct connections *connections_new(size_t most, size_t per_address) {
  struct connections *connections = xcalloc(1, sizeof *connections);
  pthread_mutex_init(&connections->lock, NULL);
  connections->most = most;
  connections->per_address = per_address;
  connections->most_of_class[CLASS_STRANGER] = connections->most_of_class[CLASS_CLIENT] =
      most - most / 4;
  connections->most_of_class[CLASS_FLEET] = most;
  TAILQ_INIT(&connections->strangers);
  ALWAYS(getrandom(connections->secret, sizeof connections->secret, 0) ==
         sizeof connections->secret);
  return connections;
}

void connections_free(struct connections *connections) {
  if (!connections)
    return;
  for (size_t i = 0; i < CONNECTION_CLASS_COUNT; i++)
    ALWAYS(connections->n[i] == 0);
  pthread_mutex_destroy(&connections->lock);
  free(connections);
}

/* The entry of the connection's address, or where to put it. */
static struct peer **peer_find(struct connections *connections, const uint8_t address[16]) {
  char mixed[16];
  for (size_t i = 0; i < sizeof mixed; i++)
    mixed[i] = (char)(address[i] ^ connections->secret[i]);
  struct peer **at = &connections->peers[text_hash(mixed, sizeof mixed) % ADDRESS_BUCKETS];
  while (*at && memcmp((*at)->address, address, 16) != 0)
    at = &(*at)->next;
  return at;
}

static void stranger_add(struct connections *connections, struct connection *connection) {
  connection->class = CLASS_STRANGER;
  connections->n[CLASS_STRANGER]++;
  TAILQ_INSERT_TAIL(&connections->strangers, connection, in_strangers);
  if (!connection->has_peer)
    return;

  struct peer **at = peer_find(connections, connection->peer);
  if (!*at) {
    *at = xcalloc(1, sizeof **at);
    memcpy((*at)->address, connection->peer, sizeof(*at)->address);
    TAILQ_INIT(&(*at)->strangers);
  }
  (*at)->n++;
  TAILQ_INSERT_TAIL(&(*at)->strangers, connection, in_peer);
}

/* Takes the connection out of its class. */
static void leave(struct connections *connections, struct connection *connection) {
  connections->n[connection->class]--;
  if (connection->class != CLASS_STRANGER)
    return;

  TAILQ_REMOVE(&connections->strangers, connection, in_strangers);
  if (!connection->has_peer)
    return;

  struct peer **at = peer_find(connections, connection->peer), *peer = *at;
  TAILQ_REMOVE(&peer->strangers, connection, in_peer);
  if (--peer->n == 0) {
    *at = peer->next;
    free(peer);
  }
}

/* Under the lock. */
static void end(struct connections *connections, struct connection *connection,
                enum connection_end reason) {
  if (connection->is_ended)
    return;
  leave(connections, connection);
  connection->is_ended = true;
  shutdown(connection->fd, SHUT_RDWR);
  metrics_note_end(reason);
}

void connection_end(struct connections *connections, struct connection *connection,
                    enum connection_end reason) {
  HOLD(&connections->lock);
  end(connections, connection, reason);
}

static size_t all_of(const struct connections *connections) {
  size_t n = 0;
  for (size_t i = 0; i < CONNECTION_CLASS_COUNT; i++)
    n += connections->n[i];
  return n;
}

void connections_add(struct connections *connections, struct connection *connection,
                     const uint8_t address[16]) {
  connection->is_ended = false;
  connection->has_peer = address != NULL;
  if (address)
    memcpy(connection->peer, address, sizeof connection->peer);

  HOLD(&connections->lock);
  stranger_add(connections, connection);
  if (address) {
    struct peer *peer = *peer_find(connections, address);
    if (peer->n > connections->per_address)
      end(connections, TAILQ_FIRST(&peer->strangers), END_ADDRESS);
  }

  /* The oldest stranger is the new connection itself when all others are clients' and the fleet's.
   */
  if (connections->n[CLASS_STRANGER] > connections->most_of_class[CLASS_STRANGER] ||
      all_of(connections) > connections->most)
    end(connections, TAILQ_FIRST(&connections->strangers), END_PLACES);
}

void connections_remove(struct connections *connections, struct connection *connection) {
  HOLD(&connections->lock);
  if (!connection->is_ended)
    leave(connections, connection);
}

void connections_set_class(struct connections *connections, struct connection *connection,
                           enum connection_class class) {
  if (connection->class == class)
    return;

  HOLD(&connections->lock);
  bool has_place = connections->n[class] < connections->most_of_class[class];
  if (!connection->is_ended && (class == CLASS_STRANGER || has_place)) {
    leave(connections, connection);
    if (class == CLASS_STRANGER) {
      stranger_add(connections, connection);
    } else {
      connection->class = class;
      connections->n[class]++;
    }
  }
}

void connections_count(struct connections *connections, size_t ret_n[CONNECTION_CLASS_COUNT]) {
  HOLD(&connections->lock);
  memcpy(ret_n, connections->n, sizeof connections->n);
}
