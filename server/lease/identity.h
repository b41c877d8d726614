/* Ids of leases, and whether a request may act as an agent or for the holder of a lease. The routes
 * of agents and leases check this first.
 *
 * A token may be bound to one agent. Then it may act only as that agent, and no other token may;
 * this is checked without the database. An agent that was enrolled with any other token belongs to
 * that token until the token is revoked or expires.
 *
 * Memory: none. Threads: the request's owner, with a worker's own connection; the functions of ids
 * are pure. */
#ifndef WAVETUNE_SERVER_LEASE_IDENTITY_H
#define WAVETUNE_SERVER_LEASE_IDENTITY_H

#include "server/http/request.h"
#include "server/lease/lease_kind.h"

/* Each of the next four returns false when it has answered the request: with 403, 404 or 409, or
 * because the database cannot be reached. */

/* Whether the token is bound to no agent, or to this one, which the body names at `pointer`. Does
 * not use the database. */
must_check bool identity_fits(struct request *request, const char *agent, const char *pointer);
/* Whether the request may act as the agent, which it names at `pointer`. An agent that belongs to
 * no token belongs to the request's token from now on. */
must_check bool identity_may_act_as(struct worker *worker, struct request *request,
                                    const char *agent, const char *pointer);
/* Whether the request may act as the "agent" in its body; true for a body without one, which the
 * route refuses. */
must_check bool identity_may_act(struct worker *worker, struct request *request);
/* Whether the request's agent was granted the lease in its path at the "epoch" in its body; true
 * for a body without an epoch, which the route refuses. */
must_check bool identity_may_hold(struct worker *worker, struct request *request);

/* The number and the kind of the lease in the path, after identity_may_hold. */
int64_t identity_lease(const struct request *request);
const struct lease_kind *identity_kind(const struct request *request);

/* The current epoch of a lease that the agent holds or, with agent "", that was granted for the
 * token; 0: another agent, or none, holds it. */
must_check bool identities_held_epoch(struct db *db, int64_t lease, const char *agent,
                                      int64_t token, int64_t *ret_epoch, struct error *error);

/* The id of a lease as an agent sees it: "17.MAC" for an agent with a token of its own, "17" for
 * any other; of a kind that is not the first one for agents, "KIND-17.MAC". The MAC is the first 16
 * bytes of HMAC-SHA256(secret, "17|epoch|agent"), with the same prefix, as base64url:
 * only the agent that was granted the lease at that epoch knows it, and a server checks it without
 * the database. Older agents accept only decimal ids, and a token that several agents share does
 * not identify one of them. Their ids are plain, and the database stores the token that a lease was
 * granted for. */
#define LEASE_ID_SIZE 64 /* a prefix, 19 digits, ".", 22 characters and a NUL fit */

/* `prefix`: "" or "KIND-". `agent`: the agent that the token is bound to, "" for none. Returns
 * `text`. */
char *lease_id_format(const uint8_t secret[SERVER_SECRET_SIZE], const char *prefix, int64_t lease,
                      int64_t epoch, const char *agent, char text[LEASE_ID_SIZE]);

enum lease_id_answer {
  LEASE_ID_GRANTED, /* to this agent at this epoch */
  LEASE_ID_PLAIN,   /* a decimal id, of an agent without a token of its own: see the database */
  LEASE_ID_FOREIGN, /* not granted to this agent at this epoch, or the id cannot show it */
  LEASE_ID_NONE,    /* not an id */
};
/* Sets *ret_lease unless the answer is LEASE_ID_NONE. In constant time for ids of one length. */
enum lease_id_answer lease_id_check(const uint8_t secret[SERVER_SECRET_SIZE], const char *text,
                                    int64_t epoch, const char *agent, int64_t *ret_lease);

#endif
