/* Responses as libmicrohttpd objects. What is taken over is freed with the response.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_RESPONSE_H
#define WAVETUNE_SERVER_HTTP_RESPONSE_H

#include "server/http/request_private.h"

struct blob;

must_check struct MHD_Response *response_text(const char *content_type, char *body, size_t size); /* body taken over */
must_check struct MHD_Response *response_empty(void);
void response_header(struct MHD_Response *response, const char *name, const char *value);
/* ETag and Cache-Control. */
void response_entity_headers(struct MHD_Response *response, const char *etag, bool immutable);
const char *status_title(int status);

/* A stored file with its range, ETag and 304; the blob's reference is taken over. */
void request_answer_blob(struct request *request, struct blob *blob);

#endif
