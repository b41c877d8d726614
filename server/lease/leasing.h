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

/* What the search for leases that have expired goes by; times by clock_monotonic_ms, 0: not yet.
 * The housekeeper's. */
struct lease_clock {
  int64_t looked_ms;                     /* when it last checked the clock */
  int64_t resumed_ms;                    /* when it noticed that the process had paused */
  int64_t rests_until_ms, expire_all_ms; /* after a failure; when a search of all is due */
  /* From when on searches look for leases that are due: those that were due earlier are not held
   * any more, or are found by searches of all held ones. 0: not known yet. */
  int64_t due_since_ms;
  bool has_ahead; /* how far the database's clock is ahead of this one: at least and at most */
  int64_t ahead_least_ms, ahead_most_ms;
  bool must_shorten; /* leases, because that clock was stepped back */
};

struct leasing {
  struct lease_fronts *fronts;   /* lease_front.h */
  struct owner_shares *shares;   /* shares.h */
  struct known_devices *devices; /* lease_grant.c */
  struct lease_clock clock;      /* lease_expire.c */
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
