/* POST /v1/demand, what deployments report; GET /v1/demand, what is untuned; POST /v1/demand/queue, jobs for it.
 *
 * Memory: reports live as long as the handler. Threads: database workers. */
#include "server/demand/demand.h"

#include "server/demand/demand_rate.h"
#include "server/demand/demand_store.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/server_private.h"

static const char *const no_arguments[] = {NULL};

static void report_answer(struct request *request, size_t accepted, size_t n, enum demand_policy policy) {
  request_answer_json(request, 202,
                      json_pack("{s:I, s:I, s:s}", "accepted", (json_int_t)accepted, "ignored",
                                (json_int_t)(n - accepted), "policy", demand_policy_name(policy)));
}

void route_demand_post(struct worker *worker, struct request *request) {
  enum demand_policy policy = server_options(worker->server)->demand;
  cleanup_demand_report struct demand_report report = {0};
  struct error error;
  int64_t wait_s;
  size_t accepted = 0;
  if (!request_query_only(request, no_arguments))
    return;
  if (!demand_rate_take(worker->server->demand_rate, request->token_name, DEMAND_POSTS_PER_MINUTE, clock_monotonic_ms(),
                        &wait_s)) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)wait_s);
    request_add_header(request, "Retry-After", text);
    request_problem(request, 429, "", "the token %s posts more than %d reports a minute; join them, or wait %s s",
                    request->token_name, DEMAND_POSTS_PER_MINUTE, text);
  } else if (!demand_report_parse(request->json, &report, &error)) {
    request_refuse(request, 422, &error);
  } else if (policy != DEMAND_OFF && !demand_keep(worker, &report, request_author(request), &accepted, &error)) {
    answer_failure(request, &error);
  } else {
    report_answer(request, accepted, report.n, policy);
  }
}

static json_t *wanted_to_json(const struct demand_wanted *wanted) {
  json_t *item = json_pack(
      "{s:o, s:s, s:s, s:s, s:O, s:O, s:I, s:I, s:f, s:f, s:f, s:s}", "kernel", json_digest_text(&wanted->kernel),
      "name", wanted->name, "tag", wanted->tag, "regime", wanted->regime, "key", wanted->key, "environment",
      wanted->environment, "hits", (json_int_t)wanted->hits, "misses", (json_int_t)wanted->misses, "tuning_ms",
      wanted->tuning_ms, "gain", wanted->gain, "saved_ms", wanted->saved_ms, "last_at", wanted->last_at);
  ALWAYS(item != NULL);
  json_object_set_new(item, "kernel_ms", wanted->kernel_ms > 0 ? json_real(wanted->kernel_ms) : json_null());
  return item;
}

void route_demand_get(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", NULL};
  cleanup_demand_list struct demand_list list = {0};
  struct error error;
  int64_t limit;
  const char *after;
  if (!request_query_only(request, arguments) || !request_page(request, &limit, &after))
    return;
  if (!demand_wanted_load(worker->db, limit, &list, &error)) {
    answer_failure(request, &error);
    return;
  }
  json_t *items = json_array();
  for (size_t i = 0; i < list.n; i++)
    ALWAYS(json_array_append_new(items, wanted_to_json(&list.all[i])) == 0);
  request_answer_json(request, 200,
                      json_pack("{s:o, s:n, s:s}", "items", items, "next", "policy",
                                demand_policy_name(server_options(worker->server)->demand)));
}

void route_demand_queue(struct worker *worker, struct request *request) {
  static const char *const members[] = {"top", NULL};
  struct error error;
  int64_t top;
  json_t *answers;
  if (!request_query_only(request, no_arguments))
    return;
  if (!json_only_members(request->json, "", members, &error) ||
      !json_get_integer(request->json, "", "top", JSON_REQUIRED, 1, 1000, &top, &error))
    request_refuse(request, 422, &error);
  else if (!demand_queue(worker, top, request_author(request), &answers, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, json_pack("{s:o}", "items", answers));
}
