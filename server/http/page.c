/* Pages of lists. Threads: the request's owner. */
#include "server/http/page.h"

#include <inttypes.h>

#include "server/http/answers.h"
#include "server/http/header.h"

bool page_by_id(struct request *request, int64_t start, int64_t *ret_limit, int64_t *ret_after) {
  const char *text;
  uint64_t after = 0;
  if (!request_page(request, ret_limit, &text))
    return false;
  if (text && (!header_size(text, &after) || after > INT64_MAX)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "the query argument \"after\" must be the \"next\" of the page before");
    return false;
  }
  *ret_after = text ? (int64_t)after : start;
  return true;
}

json_t *page_to_json(json_t *items, int64_t next) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, next);
  return json_pack("{s:o, s:o}", "items", items, "next", next ? json_string(text) : json_null());
}
