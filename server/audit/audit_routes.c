/* GET /v1/audit: which token wrote what.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/time.h"
#include "server/audit/audit.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"

/* False, and answered: an argument is wrong. */
static bool filter_read(struct request *request, struct audit_filter *ret) {
  static const char *const names[] = {"limit", "after", "since", "token", "action", "object", NULL};
  const char *since = request_query(request, "since");
  struct audit_filter filter = {.token = request_query(request, "token"),
                                .action = request_query(request, "action"),
                                .object = request_query(request, "object")};
  enum audit_action action;
  if (!request_query_only(request, names) ||
      !page_by_id(request, INT64_MAX, &filter.limit, &filter.before))
    return false;
  if (filter.action && !audit_action_parse(filter.action, &action)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "action=\"%.40s\" is no action of an entry, like submit, move or sign",
                   filter.action);
    return false;
  }
  if (since && !(duration_parse(since, &filter.last_ms) && filter.last_ms) &&
      !time_parse(since, &filter.since_us)) {
    answer_refusal(request, ERROR_INVALID, "",
                   "since=\"%.40s\" is no time such as 2026-01-31T12:00:00Z, 12h or 7d", since);
    return false;
  }
  *ret = filter;
  return true;
}

void route_audit_get(struct worker *worker, struct request *request) {
  struct audit_filter filter;
  struct error error;
  json_t *items;
  int64_t next;
  if (!filter_read(request, &filter))
    return;
  if (!audit_list(worker->db, &filter, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, page_to_json(items, next));
}
