/* Who may act as which agent, and for which lease: what the routes of agents and leases ask first.
 *
 * A token may be bound to one agent; then it acts as that agent alone, and nothing else acts as it:
 * this is known without the database. An agent that a token without such a bond enrolled is that
 * token's until the token is revoked or expires. Memory: none. Threads: the request's owner, with a
 * worker's own connection. */
#ifndef WAVETUNE_SERVER_LEASE_IDENTITY_H
#define WAVETUNE_SERVER_LEASE_IDENTITY_H

#include "server/http/request.h"

/* Each returns false when it has answered the request: with 403, 404 or 409, or because the
 * database is away. */

/* The token is bound to no other agent than this one, which the body has at `pointer`. Without the
 * database. */
must_check bool identity_fits(struct request *request, const char *agent, const char *pointer);
/* The request may act as the agent that its body names as "agent". A body without one is left to
 * the route to refuse. An agent that is no token's yet belongs to the request's from now on. */
must_check bool identity_may_act(struct worker *worker, struct request *request);
/* The request was granted the lease in its path at the "epoch" in its body. A body without one is
 * left to the route. */
must_check bool identity_may_hold(struct worker *worker, struct request *request);

/* The number of the lease in the path, of a request that identity_may_hold let through. */
int64_t identity_lease(const struct request *request);

/* The epoch of a lease that is held by the agent ("": by one that the token was granted it for); 0:
 * it is not. */
must_check bool identities_held_epoch(struct db *db, int64_t lease, const char *agent,
                                      int64_t token, int64_t *ret_epoch, struct error *error);

#endif
