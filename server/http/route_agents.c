/* Agents and the environments that they have: enrol, live, drain, list.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the heartbeat: event threads. */
#include "common/base/log.h"
#include "server/core/agents.h"
#include "server/core/enrolment.h"
#include "server/core/leases.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/store/drift.h"
#include "server/store/environments.h"

#define ENROL_ATTEMPTS 3

static void environments_answer(struct worker *worker, struct request *request) {
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
    answer_failure(worker, request, &error);
}

void route_environment_list(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    environments_answer(worker, requests[i]);
}

/* One attempt, one transaction: the agent, its devices and, when another process of it ran before, its leases. */
static bool enrol_once(struct worker *worker, const struct agent_row *agent, char **ret_boot_before,
                       struct lease_losses *losses, struct error *error) {
  int64_t live_ms = agent_live_ms(server_options(worker->server));
  if (!db_begin(worker->db, error))
    return false;
  bool ok = agent_enrol(worker->db, agent, ret_boot_before, error);
  if (ok && **ret_boot_before && strcmp(*ret_boot_before, agent->boot) != 0)
    ok = leases_reclaim(worker->db, agent->id, live_ms, losses, error) && leases_judge_losses(worker, losses, error);
  if (ok)
    return db_commit(worker->db, error);
  db_rollback(worker->db);
  return false;
}

static void enrol(struct worker *worker, struct request *request) {
  struct error error;
  cleanup_enrolment struct enrolment enrolment = {0};
  if (!enrolment_parse(request->json, &enrolment, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  char id[AGENT_ID_SIZE];
  if (enrolment.agent)
    memcpy(id, enrolment.agent, sizeof id);
  else
    random_hex(id, (sizeof id - 1) / 2);
  struct device_row devices[ENROLMENT_DEVICES_MAX];
  for (size_t i = 0; i < enrolment.n_devices; i++)
    devices[i] = (struct device_row){enrolment.devices[i].device, enrolment.devices[i].backend,
                                     &enrolment.devices[i].environment, enrolment.devices[i].facts};
  struct agent_row agent = {id, enrolment.boot, enrolment.name, enrolment.version, enrolment.n_devices, devices};
  cleanup_free char *boot_before = NULL;
  struct lease_losses losses = {0};
  bool ok = false;
  for (int attempt = 0; !ok && attempt < ENROL_ATTEMPTS; attempt++) {
    free(TAKE(boot_before));
    lease_losses_release(&losses);
    ok = enrol_once(worker, &agent, &boot_before, &losses, &error);
    if (!ok && db_failure(worker->db) != DB_FAILURE_RETRY)
      break;
  }
  if (!ok) {
    answer_failure(worker, request, &error);
    lease_losses_release(&losses);
    return;
  }
  agent_table_put(server_agents(worker->server), id, agent.boot, false, clock_monotonic_ms());
  leases_settle_losses(worker, &losses);
  const struct server_options *options = server_options(worker->server);
  log_info("agent: enrolled agent=%s name=%s devices=%zu reclaimed=%zu", id, agent.name, agent.n_devices, losses.n);
  json_t *answer =
      json_pack("{s:s, s:I, s:I, s:I}", "agent", id, "heartbeat_every_ms", (json_int_t)options->heartbeat_ms,
                "lease_ms", (json_int_t)options->lease_ms, "reclaimed", (json_int_t)losses.n);
  ALWAYS(answer != NULL);
  request_answer_json(request, *boot_before ? 200 : 201, answer);
  lease_losses_release(&losses);
}

void route_agent_post(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    enrol(worker, requests[i]);
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

static void drain(struct worker *worker, struct request *request) {
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
  if (device ? !device_set_drain(worker->db, id, device, reason, &known, &error)
             : !agent_set_drain(worker->db, id, reason, &known, &error)) {
    answer_failure(worker, request, &error);
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
  log_info("agent: %s agent=%s%s%s%s%s", reason ? "draining" : "drained no more", id, device ? " device=" : "",
           device ? device : "", reason ? " reason=" : "", reason ? reason : "");
  json_t *answer = json_pack("{s:s, s:s?, s:s?}", "agent", id, "device", device, "drain_reason", reason);
  ALWAYS(answer != NULL);
  request_answer_json(request, 200, answer);
}

void route_agent_drain(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    drain(worker, requests[i]);
}

static void agents_answer(struct worker *worker, struct request *request) {
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
    answer_failure(worker, request, &error);
}

void route_agent_list(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    agents_answer(worker, requests[i]);
}
