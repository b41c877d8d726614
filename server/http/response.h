/* Responses as libmicrohttpd objects. What is taken over is freed with the response.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_RESPONSE_H
#define WAVETUNE_SERVER_HTTP_RESPONSE_H

#include "server/http/request_private.h"

must_check struct MHD_Response *response_text(const char *content_type, char *body, size_t size); /* body taken over */
must_check struct MHD_Response *response_empty(void);
void response_header(struct MHD_Response *response, const char *name, const char *value);
/* ETag and Cache-Control. */
void response_entity_headers(struct MHD_Response *response, const char *etag, bool immutable);
const char *status_title(int status);

/* An immutable file with its range, ETag and 304. `release` is called with `context` once the bytes are not needed any
 * more, on any thread. */
void request_answer_file(struct request *request, const char *etag, uint8_t *bytes, size_t size,
                         void (*release)(void *context), void *context);

#endif
