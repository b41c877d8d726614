/* A private PostgreSQL in its own folder, a child of this process: for `wavetune-server dev`.
 *
 * DIR/data is the cluster, DIR/run its socket's folder, DIR/postgres.log its log. It listens on
 * that socket only. PostgreSQL refuses to run as root: under root it runs as another user, which
 * owns data and run. Memory: a cluster owns everything. Threads: main's, which must live as long as
 * PostgreSQL, because the kernel stops PostgreSQL when the thread that started it ends. */
#ifndef WAVETUNE_SERVER_MAIN_CLUSTER_H
#define WAVETUNE_SERVER_MAIN_CLUSTER_H

#include "common/base/error.h"

struct cluster;

/* `bin` is the folder of initdb and postgres (NULL: they are searched for). PostgreSQL runs as
 * `user` when this process is root. */
must_check bool cluster_start(const char *folder, const char *bin, const char *user,
                              struct cluster **ret_cluster, struct error *error);
/* Stops PostgreSQL, cleanly if possible, waits for its end, and frees the cluster. */
void cluster_stop(struct cluster *cluster);
/* libpq's connection string for a database of the cluster; the caller's. */
must_check char *cluster_conninfo(const struct cluster *cluster, const char *database);
/* Whether PostgreSQL has ended. */
bool cluster_has_ended(struct cluster *cluster);
const char *cluster_log_path(const struct cluster *cluster);

#endif
