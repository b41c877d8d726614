/* Who may act as which agent, and for which lease: what the dispatcher and the routes of agents ask before anything else.
 *
 * A token that is bound to an agent is known to be right or wrong without the database. For any other the database is asked,
 * once for all requests of a batch. Refusals are answered here.
 * Memory: none. Threads: the requests' owner. */
#ifndef WAVETUNE_SERVER_HTTP_IDENTITY_H
#define WAVETUNE_SERVER_HTTP_IDENTITY_H

#include "server/http/auth.h"
#include "server/http/request.h"

/* The agent whose identity a certificate is, by tls_name_digest: the same one at every server of a database, and not to be
 * guessed, so that no other agent can take the id first. False: the server has not read its secret yet. */
must_check bool identity_of_certificate(const struct server *server, const struct digest *certificate,
                                        char ret_agent[TOKEN_AGENT_SIZE]);

/* Whether a server takes what this token is bound to: with --require-enrolment agents have tokens of their own. */
bool identity_is_enough(const struct server *server, unsigned roles, const char *token_agent);
/* The same for a request whose route is known, which may be for agents only; false: it is answered. */
must_check bool identity_suffices(struct request *request);

/* False, and answered: the token is bound to another agent than this one, which the body has at `pointer`. */
must_check bool identity_fits(struct request *request, const char *agent, const char *pointer);

/* Of requests with a member "agent" in their bodies (of /v1/leases), or with a lease's id in the path and its "epoch" in the
 * body: answers those that may not act as that agent, or were not granted that lease, moves the others to the front and
 * returns how many there are. What has no such member is left to its route to refuse. */
size_t identity_keep_agents(struct worker *worker, struct request **requests, size_t n);
size_t identity_keep_leases(struct worker *worker, struct request **requests, size_t n);

/* The number of the lease in the path, of a request that identity_keep_leases kept. */
int64_t identity_lease(const struct request *request);

#endif
