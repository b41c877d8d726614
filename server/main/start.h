/* Starts and stops the coordinator.
 *
 * Memory: a server owns everything; server_start makes it, server_stop ends and frees it. Threads:
 * main's. */
#ifndef WAVETUNE_SERVER_MAIN_START_H
#define WAVETUNE_SERVER_MAIN_START_H

#include "server/server.h"

must_check bool server_start(const struct server_options *options, struct server **ret_server,
                             struct error *error);
/* Accepts no more connections, answers every parked and queued request with 503, joins the threads
 * and frees the server. */
void server_stop(struct server *server);
/* Reads the files of --tls-… and --oidc again; logs the result. */
void server_reload(struct server *server);

#endif
