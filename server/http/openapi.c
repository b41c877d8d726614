/* Makes the OpenAPI document. Pure functions. */
#include "server/http/openapi.h"

json_t *openapi_document(void) { return json_pack("{s:s}", "openapi", "3.1.0"); }

char *openapi_text(void) {
  json_t *document = openapi_document();
  char *text = json_dumps(document, JSON_COMPACT);
  ALWAYS(text != NULL);
  json_decref(document);
  return text;
}
