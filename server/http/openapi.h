/* The OpenAPI 3.1 document of the server, made from ROUTES, the records and openapi.json.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_OPENAPI_H
#define WAVETUNE_SERVER_HTTP_OPENAPI_H

#include "common/base/json.h"

must_check json_t *openapi_document(void); /* new reference */
must_check char *openapi_text(void);       /* the caller's */

#endif
