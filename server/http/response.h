/* Responses as libmicrohttpd objects. What is taken over is freed with the response.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_RESPONSE_H
#define WAVETUNE_SERVER_HTTP_RESPONSE_H

#include "server/http/request_private.h"

must_check struct MHD_Response *response_text(const char *content_type, char *body,
                                              size_t size); /* body taken over */
must_check struct MHD_Response *response_empty(void);
void response_header(struct MHD_Response *response, const char *name, const char *value);
/* ETag and Cache-Control. */
void response_entity_headers(struct MHD_Response *response, const char *etag, bool immutable);
const char *status_title(int status);

/* Problem documents with a status of HTTP's own (400, 405, 413, …). What a handler finds wrong has
 * a kind, from which its status follows: answers.h. `extra` (may be NULL, taken over) holds
 * extension members. */
void request_problem(struct request *request, int status, const char *pointer, const char *format,
                     ...) printf_like(4, 5);
void request_problem_extra(struct request *request, int status, const struct error *error,
                           json_t *extra);

#endif
