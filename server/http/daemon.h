/* libmicrohttpd's daemon: its socket, its threads, its limits.
 *
 * Threads: the one that starts and stops the server. */
#ifndef WAVETUNE_SERVER_HTTP_DAEMON_H
#define WAVETUNE_SERVER_HTTP_DAEMON_H

#include "server/server.h"

struct daemon;
must_check bool daemon_start(struct server *server, struct daemon **ret_daemon,
                             struct error *error);
int daemon_port(const struct daemon *daemon);
/* Accepts no new connections; the open ones stay. */
void daemon_quiesce(struct daemon *daemon);
/* Ends all connections and the threads. No connection may be suspended: libmicrohttpd aborts the
 * process otherwise. */
void daemon_stop(struct daemon *daemon);

/* The main function of a database worker: a struct worker_thread. */
void *work_main(void *worker_thread);

#endif
