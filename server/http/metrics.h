/* Prometheus' text format of everything that is counted. Any thread. */
#ifndef WAVETUNE_SERVER_HTTP_METRICS_H
#define WAVETUNE_SERVER_HTTP_METRICS_H

#include "server/server.h"

must_check char *metrics_text(struct server *server, size_t *ret_size); /* the caller's */

#endif
