/* People who are signed in by a trusted proxy (serve --sign-in): the proxy states the name of the
 * user and the groups in headers, and a rule says as which token such a request acts.
 *
 * The proxy must also send a secret. Its address alone proves too little: other users of its
 * machine can send from there, and a proxy that was set up only to forward certificates would pass
 * on these headers as a stranger wrote them. A secret in a file works with every proxy, over TCP
 * and on one machine; certificates of proxies would have to be told from those of agents.
 *
 * A browser sends what signs it in at the proxy with every request, even one that a foreign page
 * makes. So requests that may change something need what a foreign page cannot send: see
 * sign_in_may_write.
 *
 * Memory: a server owns its rules. Threads: read-only after the start; functions with a connection,
 * its event thread. */
#ifndef WAVETUNE_SERVER_HTTP_SIGN_IN_H
#define WAVETUNE_SERVER_HTTP_SIGN_IN_H

#include "common/base/error.h"
#include "server/server.h"

struct auth_token;
struct connection;
struct sign_in;

/* *ret_rules is NULL when the options have none. */
must_check bool sign_in_new(const struct server_options *options, struct sign_in **ret_rules,
                            struct error *error);
void sign_in_free(struct sign_in *rules);
const char *sign_in_user_header(const struct sign_in *rules);
const char *sign_in_groups_header(const struct sign_in *rules);

/* Whether the connection is a trusted proxy's, and its present request has the header with the
 * user. From any other address the header is ignored. */
bool sign_in_is_stated(const struct connection *connection);
/* The live token as which the stated user acts, by the first rule that fits. Where other users may
 * act as the same token, its name becomes TOKEN:USER, so that what is written names the person;
 * no token that an admin makes has such a name. False: the request is refused; ERROR_UNAVAILABLE:
 * until the server has read its tokens. */
must_check bool sign_in_find(const struct connection *connection, struct auth_token *ret_token,
                             struct error *error);
/* Whether the present request of a signed-in user may have a method other than GET and HEAD: it
 * has the header X-Wavetune, which a browser sends to another origin only if that permits it (this
 * server never does), and the browser does not state another origin than the request's. */
must_check bool sign_in_may_write(const struct connection *connection, struct error *error);

#endif
