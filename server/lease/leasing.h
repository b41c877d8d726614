/* What leasing keeps in memory: of a server the fronts of queues, what owners used, and the classes
 * of devices; of a connection the places that its transaction opens. A connection leads to it
 * (db_context); one that has none opens leases without moving fronts back, as commands do.
 *
 * Memory: the server owns a leasing and the contexts of its connections. Threads: its members have
 * locks; a context belongs to the thread of its connection. */
#ifndef WAVETUNE_SERVER_LEASE_LEASING_H
#define WAVETUNE_SERVER_LEASE_LEASING_H

#include "server/db/db.h"
#include "server/server.h"

struct leasing {
  struct lease_fronts *fronts;   /* lease_front.h */
  struct owner_shares *shares;   /* shares.h */
  struct known_devices *devices; /* lease_grant.c */
};
struct leasing *leasing_new(void);
void leasing_free(struct leasing *leasing);
struct leasing *server_leasing(const struct server *server);

struct lease_connection {
  struct leasing *leasing;
  struct lease_opened *opened; /* lease_front.h */
};
/* For a connection that has none; leasing_detach frees it. */
void leasing_attach(struct leasing *leasing, struct db *db);
void leasing_detach(struct db *db);
/* NULL: the connection has none. */
struct leasing *leasing_of(const struct db *db);

#endif
