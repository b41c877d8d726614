/* The event threads' side of a request: read, authorise, bound, answer from memory or hand to a
 * worker.
 *
 * These are libmicrohttpd's callbacks; none blocks. */
#ifndef WAVETUNE_SERVER_HTTP_DISPATCH_H
#define WAVETUNE_SERVER_HTTP_DISPATCH_H

#include "server/http/request_private.h"

void dispatch_connection(void *server, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code);
void *dispatch_target(void *server, const char *target, struct MHD_Connection *mhd);
enum MHD_Result dispatch_access(void *server, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **connection);
void dispatch_completed(void *server, struct MHD_Connection *mhd, void **connection,
                        enum MHD_RequestTerminationCode code);

/* The main function of a database worker: a struct worker_thread. */
void *work_main(void *worker_thread);

/* Parses the body of a JSON route, once. Answers 400 and returns false when it is none. */
must_check bool request_parse_body(struct request_private *request);

#endif
