/* Agents and the environments that they have: live, drain, list. Enrolling is in route_agent_post.c.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the heartbeat: event threads. */
#include "common/base/log.h"
#include "server/agent/agents.h"
#include "server/agent/drift_store.h"
#include "server/agent/environments.h"
#include "server/agent/identity.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"

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

/* False, and answered: the agent is another's. Without the database: what is not known here is asked for by the beat. */
static bool beat_is_own(struct server *server, struct request *request) {
  const char *id = request->segments[0];
  if (*request->token_agent)
    return identity_fits(request, id, "");
  struct agent_owner owner = agent_table_owner(server_agents(server), id);
  bool is_own = owner.token == 0 || owner.token == request->token_id || request->roles == TOKEN_ADMIN;
  if (owner.has_token)
    request_problem(request, 403, "", "agent %.40s has a token of its own, and only with that acts as it", id);
  else if (!is_own && token_is_live(server, owner.token))
    request_problem(request, 403, "", "agent %.40s enrolled with another token than \"%s\", which is still live", id,
                    request->token_name);
  else
    return true;
  return false;
}

void route_agent_heartbeat(struct server *server, struct request *request) {
  static const char *const members[] = {"boot", NULL};
  struct error error;
  const char *boot;
  bool is_draining = false;
  if (!json_only_members(request->json, "", members, &error) ||
      !json_get_string(request->json, "", "boot", JSON_REQUIRED, &boot, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!beat_is_own(server, request))
    return;
  switch (agent_table_beat(server_agents(server), request->segments[0], boot, clock_monotonic_ms(), &is_draining)) {
  case AGENT_BEATS: {
    json_t *answer = json_pack("{s:I, s:b}", "heartbeat_every_ms", (json_int_t)server_options(server)->heartbeat_ms,
                               "draining", is_draining);
    ALWAYS(answer != NULL);
    request_answer_json(request, 200, answer);
    return;
  }
  case AGENT_ABSENT:
    request_problem(request, 404, "", "agent \"%.40s\" is not enrolled with this boot nonce; enrol again",
                    request->segments[0]);
    return;
  case AGENT_ASKED:
    error_set(&error, "agent \"%.40s\" is being looked up; try again", request->segments[0]);
    request_unavailable(request, &error);
    return;
  }
}

void route_agent_drain(struct worker *worker, struct request *request) {
  static const char *const members[] = {"device", "reason", NULL};
  struct error error;
  const char *id = request->segments[0], *device = NULL, *reason = NULL;
  bool known;
  if (!json_only_members(request->json, "", members, &error) ||
      !json_get_string(request->json, "", "device", JSON_OPTIONAL, &device, &error) ||
      !json_get_string(request->json, "", "reason", JSON_OPTIONAL, &reason, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!json_object_get(request->json, "reason")) {
    request_problem(request, 422, "/reason", "\"reason\" is missing; null ends the draining");
    return;
  }
  if (reason && (!*reason || strlen(reason) > 1000)) {
    request_problem(request, 422, "/reason", "\"reason\" has %zu bytes; it must have 1 to 1000, or be null",
                    strlen(reason));
    return;
  }
  if (device ? !device_set_drain(worker->db, id, device, reason, request_author(request), &known, &error)
             : !agent_set_drain(worker->db, id, reason, request_author(request), &known, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!known) {
    request_problem(request, 404, device ? "/device" : "",
                    "there is no agent \"%.40s\"%s%.40s%s; GET /v1/agents lists them", id,
                    device ? " with a device \"" : "", device ? device : "", device ? "\"" : "");
    return;
  }
  if (!device)
    agent_table_drain(server_agents(worker->server), id, reason != NULL);
  log_info("agent: %s agent=%s device=%s reason=%s", reason ? "draining" : "drained no more", id, device, reason);
  json_t *answer = json_pack("{s:s, s:s?, s:s?}", "agent", id, "device", device, "drain_reason", reason);
  ALWAYS(answer != NULL);
  request_answer_json(request, 200, answer);
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
