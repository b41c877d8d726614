/* /v1/compatibilities: which environments an operator lets serve each other.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/cache/compatibilities.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"

static const char *const no_arguments[] = {NULL};

void route_compatibility_post(struct worker *worker, struct request *request) {
  cleanup_compatibility struct compatibility compatibility = {0};
  struct error error;
  int64_t id;
  if (!request_query_only(request, no_arguments))
    return;
  if (!compatibility_parse(request->json, &compatibility, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!compatibility_add(worker->db, &compatibility, request_author(request), &id, &error)) {
    answer_failure(request, &error);
  } else if (!id) {
    answer_refusal(request, ERROR_CONFLICT, "",
                   "there are %d compatibilities; remove those that nobody needs",
                   COMPATIBILITIES_MAX);
  } else {
    cleanup_free char *text = xasprintf("%lld", (long long)id);
    response_memory_forget_channels(worker->server);
    request_answer_json(request, 201, json_pack("{s:s}", "id", text));
  }
}

void route_compatibility_list(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", "after", NULL};
  struct error error;
  int64_t limit, after, next;
  json_t *items;
  if (!request_query_only(request, arguments) || !page_by_id(request, 0, &limit, &after))
    return;

  if (!compatibilities_list(worker->db, after, limit, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, page_to_json(items, next));
}

void route_compatibility_delete(struct worker *worker, struct request *request) {
  struct error error;
  int64_t id;
  bool is_found;
  if (!request_query_only(request, no_arguments) || !answer_id(request, "compatibility", &id))
    return;

  if (!compatibility_remove(worker->db, id, request_author(request), &is_found, &error)) {
    answer_failure(request, &error);
  } else if (!is_found) {
    answer_refusal(request, ERROR_MISSING, "",
                   "there is no compatibility %lld; GET /v1/compatibilities lists all",
                   (long long)id);
  } else {
    response_memory_forget_channels(worker->server);
    request_answer_empty(request, 204);
  }
}
