/* What the OpenAPI document says of each route beyond the table ROUTES, and the schemas of the
 * bodies.
 *
 * Memory: static texts. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_OPENAPI_SCHEMAS_H
#define WAVETUNE_SERVER_HTTP_OPENAPI_SCHEMAS_H

#include "server/http/route.h"

struct openapi_operation {
  const char *query; /* names of query arguments, separated by spaces; each is in openapi_queries */
  const char *request;      /* name of the body's schema; NULL: none */
  const char *request_type; /* media type of the body */
  const char *statuses;     /* of success, separated by spaces */
  const char *answer;       /* name of the answer's schema; NULL: no body */
  const char *answer_type;
};

extern const struct openapi_operation openapi_operations[ROUTE_COUNT];
extern const char openapi_schemas[]; /* a JSON object: name → schema */
extern const char openapi_queries[]; /* a JSON object: name → {"description", "schema"} */

#endif
