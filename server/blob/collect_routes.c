/* POST /v1/gc: removes what nobody needs any more, or says what that would be. Database workers. */
#include "common/base/log.h"
#include "server/blob/collect.h"
#include "server/http/answers.h"
#include "server/http/routes.h"

#define KEEP_DAYS 30

void route_gc_post(struct worker *worker, struct request *request) {
  static const char *const members[] = {"dry_run", "keep_days", NULL}, *const no_arguments[] = {NULL};
  struct error error;
  int64_t keep_days = KEEP_DAYS;
  bool is_dry = false;
  json_t *collected;
  if (!request_query_only(request, no_arguments))
    return;
  if (!json_only_members(request->json, "", members, &error) ||
      !json_get_bool(request->json, "", "dry_run", JSON_NOT_NULL, &is_dry, &error) ||
      !json_get_integer(request->json, "", "keep_days", JSON_NOT_NULL, 1, 36500, &keep_days, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!collect(worker->db, keep_days, is_dry ? NULL : request_author(request), &collected, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!is_dry)
    log_info("gc: %s removed %zu releases and %lld files", request->token_name,
             json_array_size(json_object_get(collected, "releases")),
             (long long)json_integer_value(json_object_get(json_object_get(collected, "files"), "n")));
  json_object_set_new(collected, "dry_run", json_boolean(is_dry));
  json_object_set_new(collected, "keep_days", json_integer(keep_days));
  request_answer_json(request, 200, collected);
}
