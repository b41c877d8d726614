/* Agents and the environments that they have: live, drain, list. Enrolling is in
 * enrolment_routes.c.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the heartbeat:
 * event threads. */
#include "common/base/log.h"
#include "common/enrolment/enrolment.h"
#include "server/agent/agents.h"
#include "server/cache/environments.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/lease/identity.h"
#include "server/records.h"

void route_environment_list(struct worker *worker, struct request *request) {
  struct error error;
  int64_t limit, after, next;
  json_t *items;
  static const char *const names[] = {"limit", "after", NULL};
  if (!request_query_only(request, names) || !page_by_id(request, 0, &limit, &after))
    return;
  int64_t live_ms = agent_live_ms(server_options(worker->server));
  if (environments_list(worker->db, live_ms, after, limit, &items, &next, &error))
    request_answer_json(request, 200, page_to_json(items, next));
  else
    answer_failure(request, &error);
}

/* False, and answered: the agent is another's. Without the database: what is not known here is
 * asked for by the beat. */
static bool beat_is_own(struct server *server, struct request *request) {
  const char *id = request->segments[0];
  if (*request->token_agent)
    return identity_fits(request, id, "");
  struct agent_owner owner = agent_table_owner(server_agents(server), id);
  bool is_own =
      owner.token == 0 || owner.token == request->token_id || request->roles == TOKEN_ADMIN;
  if (owner.has_token)
    answer_refusal(request, ERROR_FORBIDDEN, "",
                   "agent %.40s has a token of its own, and only with that acts as it", id);
  else if (!is_own && token_is_live(server, owner.token))
    answer_refusal(request, ERROR_FORBIDDEN, "",
                   "agent %.40s enrolled with another token than \"%s\", which is still live", id,
                   request->token_name);
  else
    return true;
  return false;
}

/* By the event thread, which does not wait for the database. */
static void beat_answer(struct server *server, struct request *request, const char *boot) {
  struct beaten answer = {.heartbeat_every_ms = server_options(server)->heartbeat_ms};
  const char *id = request->segments[0];
  struct error error;
  if (!beat_is_own(server, request))
    return;

  switch (agent_table_beat(server_agents(server), id, boot, clock_monotonic_ms(),
                           &answer.is_draining)) {
  case AGENT_BEATS:
    request_answer_json(request, 200, record_write(&heartbeat_answer_record, &answer));
    return;
  case AGENT_ABSENT:
    error_of(&error, ERROR_MISSING,
             "agent \"%.40s\" is not enrolled with this boot nonce; enrol again", id);
    break;
  case AGENT_ASKED:
    error_of(&error, ERROR_UNAVAILABLE, "agent \"%.40s\" is being looked up; try again", id);
    break;
  }
  answer_failure(request, &error);
}

void route_agent_heartbeat(struct server *server, struct request *request) {
  struct beat beat = {0};
  struct error error;
  if (record_read(&heartbeat_request_record, request->json, "", &beat, &error))
    beat_answer(server, request, beat.boot);
  else
    answer_failure(request, &error);
  record_release(&heartbeat_request_record, &beat);
}

static const struct field drain_fields[] = {
    {"device", FIELD_TEXT, offsetof(struct drain_request, device),
     .about = "only this one of the agent"},
    {"reason", FIELD_TEXT, offsetof(struct drain_request, reason), FIELD_STATED, .least = 1,
     .most = 1000, .about = "null ends the draining"},
};
const struct record drain_request_record =
    RECORD("DrainRequest", struct drain_request, drain_fields);

void route_agent_drain(struct worker *worker, struct request *request) {
  const char *id = request->segments[0];
  struct drain_request drain = {0};
  struct error error;
  if (!record_read(&drain_request_record, request->json, "", &drain, &error) ||
      !agent_drain(worker->db, id, &drain, request_author(request), &error)) {
    answer_failure(request, &error);
  } else {
    if (!drain.device)
      agent_table_drain(server_agents(worker->server), id, drain.reason != NULL);
    log_info("agent: %s agent=%s device=%s reason=%s",
             drain.reason ? "draining" : "drained no more", id, drain.device, drain.reason);
    request_answer_json(request, 200,
                        json_pack("{s:s, s:s?, s:s?}", "agent", id, "device", drain.device,
                                  "drain_reason", drain.reason));
  }
  record_release(&drain_request_record, &drain);
}

void route_agent_list(struct worker *worker, struct request *request) {
  static const char *const names[] = {"limit", "after", NULL};
  struct error error;
  int64_t limit;
  const char *after;
  json_t *items;
  cleanup_free char *next = NULL;
  if (!request_query_only(request, names) || !request_page(request, &limit, &after))
    return;
  int64_t live_ms = agent_live_ms(server_options(worker->server));
  if (agents_list(worker->db, live_ms, after ? after : "", limit, &items, &next, &error))
    request_answer_json(request, 200, json_pack("{s:o, s:s?}", "items", items, "next", next));
  else
    answer_failure(request, &error);
}
