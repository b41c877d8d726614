/* POST /v1/demand, what deployments report; GET /v1/demand, what is untuned; POST /v1/demand/queue,
 * jobs for it.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/demand/demand.h"
#include "server/demand/demand_rate.h"
#include "server/http/answers.h"
#include "server/http/routes.h"
#include "server/records.h"
#include "server/server_private.h"

static const char *const no_arguments[] = {NULL};

struct demand_answer {
  int64_t accepted, ignored;
  enum demand_policy policy;
};
static const struct field answer_fields[] = {
    {"accepted", FIELD_INTEGER, offsetof(struct demand_answer, accepted), FIELD_ANSWER},
    {"ignored", FIELD_INTEGER, offsetof(struct demand_answer, ignored), FIELD_ANSWER},
    {"policy", FIELD_ENUM, offsetof(struct demand_answer, policy), FIELD_ANSWER,
     .names = demand_policy_names},
};
const struct record demand_answer_record =
    RECORD("DemandAnswer", struct demand_answer, answer_fields);

void route_demand_post(struct worker *worker, struct request *request) {
  enum demand_policy policy = server_options(worker->server)->demand;
  cleanup_demand_report struct demand_report report = {0};
  struct error error;
  int64_t wait_s;
  size_t accepted = 0;
  if (!request_query_only(request, no_arguments))
    return;

  if (!demand_rate_take(worker->server->demand_rate, request->token_name, DEMAND_POSTS_PER_MINUTE,
                        clock_monotonic_ms(), &wait_s)) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)wait_s);
    request_add_header(request, "Retry-After", text);
    answer_refusal(request, ERROR_RATE, "",
                   "the token %s posts more than %d reports a minute; join them, or wait %s s",
                   request->token_name, DEMAND_POSTS_PER_MINUTE, text);
    return;
  }
  if (!demand_report_parse(request->json, &report, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (policy != DEMAND_OFF &&
      !demand_keep(worker, &report, request_author(request), &accepted, &error)) {
    answer_failure(request, &error);
    return;
  }
  const struct demand_answer answer = {(int64_t)accepted, (int64_t)(report.items.n - accepted),
                                       policy};
  request_answer_json(request, 202, record_write(&demand_answer_record, &answer));
}

void route_demand_get(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", NULL};
  struct error error;
  json_t *items;
  int64_t limit;
  const char *after;
  if (!request_query_only(request, arguments) || !request_page(request, &limit, &after))
    return;

  if (!demand_list(worker->db, limit, &items, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200,
                        json_pack("{s:o, s:n, s:s}", "items", items, "next", "policy",
                                  demand_policy_name(server_options(worker->server)->demand)));
}

struct queue_request {
  int64_t top;
};
static const struct field queue_request_fields[] = {
    {"top", FIELD_INTEGER, offsetof(struct queue_request, top), FIELD_REQUIRED, .least = 1,
     .most = DEMAND_QUEUE_MAX},
};
const struct record demand_queue_request_record =
    RECORD("DemandQueueRequest", struct queue_request, queue_request_fields);

void route_demand_queue(struct worker *worker, struct request *request) {
  struct queue_request asked;
  struct error error;
  json_t *answers;
  if (!request_query_only(request, no_arguments))
    return;
  if (!record_read(&demand_queue_request_record, request->json, "", &asked, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (!demand_queue(worker, asked.top, request_author(request), &answers, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, 200, json_pack("{s:o}", "items", answers));
}
