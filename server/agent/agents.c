/* Agents: their heartbeats, written to the database in bulk; drained and resumed; listed.
 * Enrolling is in enrolment.c.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the heartbeat:
 * event threads. */
#include "server/agent/agents.h"

#include "common/base/log.h"
#include "common/enrolment/enrolment.h"
#include "server/agent/agents.sql.h"
#include "server/agent/enrolment.sql.h"
#include "server/audit/audit.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/gauges.h"
#include "server/http/request.h"
#include "server/http/tokens.h"
#include "server/lease/identity.h"
#include "server/records.h"
#include "server/server.h"

#define FORGET_MS (60 * 60 * 1000)
#define FLUSH_MAX 20000 /* agents in one statement */

#define RECORD_OF struct agent_brief
static const struct field brief_fields[] = {
    MEMBER(TEXT, id),
    MEMBER(TEXT, boot),
    MEMBER(BOOL, is_draining),
    MEMBER_AS("token_id", ID, owner.token),
    MEMBER_AS("has_token", BOOL, owner.has_token),
};
#undef RECORD_OF
static const struct record brief_record = RECORD(NULL, struct agent_brief, brief_fields);

static struct db_array ids_array(char (*ids)[AGENT_ID_SIZE], size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_text(&array, ids[i]);
  return array;
}

void agents_look_up(struct worker *worker) {
  struct agent_table *table = server_agents(worker->server);
  cleanup_free char(*ids)[AGENT_ID_SIZE] = xcalloc(AGENTS_LOOKUP_MAX, sizeof *ids);
  size_t n = agent_table_lookups(table, AGENTS_LOOKUP_MAX, ids), n_found;
  struct error error;
  if (n == 0)
    return;

  struct db_array array = ids_array(ids, n);
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_agents_brief, &error, parameter_array("ids", &array));
  if (!rows) {
    log_warning("agents: %s", error.message);
    return;
  }

  struct agent_brief *found = db_read_all(rows, &brief_record, &n_found);
  int64_t now_ms = clock_monotonic_ms();
  for (size_t i = 0; i < n_found; i++)
    agent_table_found(table, &found[i], now_ms);
  for (size_t i = 0; i < n; i++)
    agent_table_absent(table, ids[i], now_ms);
  db_records_free(&brief_record, found, n_found);
}

/* Stores what heartbeats stated of yielded devices, for those that stated it. */
static bool yielded_flush(struct db *db, char (*ids)[AGENT_ID_SIZE], const int64_t *ages_ms,
                          char *const *yielded, size_t n, struct error *error) {
  cleanup_free int64_t *stated_ms = xcalloc(n, sizeof *stated_ms);
  struct db_array agents, stated;
  size_t n_stated = 0;
  db_array_init(&agents);
  db_array_init(&stated);
  for (size_t i = 0; i < n; i++) {
    if (!yielded[i])
      continue;
    db_array_text(&agents, ids[i]);
    db_array_text(&stated, yielded[i]);
    stated_ms[n_stated++] = ages_ms[i];
  }

  if (n_stated == 0)
    return true;
  return db_execute(db, &sql_devices_yielded, error, parameter_array("ids", &agents),
                    parameter_array("yielded", &stated), BIND_ALL("ages_ms", stated_ms, n_stated));
}

static bool heartbeats_flush(struct db *db, struct agent_table *table, struct error *error) {
  cleanup_free char(*ids)[AGENT_ID_SIZE] = xcalloc(FLUSH_MAX, sizeof *ids);
  cleanup_free int64_t *ages_ms = xcalloc(FLUSH_MAX, sizeof *ages_ms);
  cleanup_free char **yielded = xcalloc(FLUSH_MAX, sizeof *yielded);
  size_t n = agent_table_take_seen(table, clock_monotonic_ms(), FLUSH_MAX, ids, ages_ms, yielded);
  if (n == 0)
    return true;

  struct db_array array = ids_array(ids, n);
  bool ok = db_execute(db, &sql_agents_seen, error, parameter_array("ids", &array),
                       BIND_ALL("ages_ms", ages_ms, n));
  if (!ok)
    agent_table_untake(table, ids, n);

  ok = ok && yielded_flush(db, ids, ages_ms, yielded, n, error);
  for (size_t i = 0; i < n; i++)
    free(yielded[i]);
  return ok;
}

void agents_housekeep(struct worker *worker) {
  struct agent_table *table = server_agents(worker->server);
  cleanup_rows struct db_rows *draining = NULL, *live = NULL;
  struct error error;
  agent_table_forget(table, clock_monotonic_ms(), FORGET_MS);
  if (!heartbeats_flush(worker->db, table, &error) ||
      !(draining = db_query(worker->db, &sql_agents_brief_draining, &error)) ||
      !(live = db_query(worker->db, &sql_agents_live, &error,
                        BIND("live_ms", agent_live_ms(server_options(worker->server)))))) {
    log_warning("agents: %s", error.message);
    return;
  }

  cleanup_free const char **ids = xcalloc((size_t)db_count(draining), sizeof *ids);
  for (int row = 0; row < db_count(draining); row++)
    ids[row] = db_get(draining, row, "id");
  agent_table_set_draining(table, ids, (size_t)db_count(draining));

  /* Counted in the database, because an agent may send its heartbeats to several servers. Draining
   * agents count too. */
  struct gauges *gauges = gauges_take(worker->server);
  gauges->n_agents = (size_t)db_get_integer(live, 0, "n");
  gauges_give(gauges);
}

/* A request to drain an agent, or one device of it; `reason` NULL ends the draining. Owns its
 * texts. */
struct drain_request {
  char *device; /* NULL: the whole agent */
  char *reason;
};
static bool agent_drain(struct db *db, const char *agent, const struct drain_request *drain,
                        const struct author *author, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(db, error) &&
            (rows = drain->device ? db_query(db, &sql_device_drain, error, BIND("agent", agent),
                                             BIND("device", drain->device),
                                             BIND("reason", drain->reason), BIND_AUTHOR(author))
                                  : db_query(db, &sql_agent_drain, error, BIND("agent", agent),
                                             BIND("reason", drain->reason), BIND_AUTHOR(author)));
  if (ok && db_affected(rows) == 0 && drain->device)
    ok = error_of_at(
        error, ERROR_MISSING, "/device",
        "there is no agent \"%.40s\" with a device \"%.40s\"; GET /v1/agents lists them", agent,
        drain->device);
  else if (ok && db_affected(rows) == 0)
    ok = error_of(error, ERROR_MISSING, "there is no agent \"%.40s\"; GET /v1/agents lists them",
                  agent);
  ok = ok && audit_note(db, author, drain->reason ? AUDIT_DRAIN : AUDIT_RESUME, agent,
                        json_pack("{s:s*, s:s*}", "device", drain->device, "reason", drain->reason),
                        error);
  return db_end(db, ok, error);
}

/* The last enrolment of an agent's id from another machine, which was refused. */
struct agent_refusal {
  char *at, *machine, *name;
};
#define RECORD_OF struct agent_refusal
static const struct field refusal_fields[] = {
    MEMBER(TIME, at, 0, "refused_at"),
    MEMBER(TEXT, machine, 0, "refused_machine"),
    MEMBER(TEXT, name, 0, "refused_name"),
};
static const struct record refusal_record = ANSWER(NULL, refusal_fields);
#undef RECORD_OF

enum agent_state { AGENT_LIVE, AGENT_LOST, AGENT_DRAINING, AGENT_ENDED };
static const char *const state_names[] = {"live", "lost", "draining", "ended", NULL};

struct agent {
  char *id, *name, *version, *drain_reason, *drained_by, *removed_at, *removed_by, *last_seen;
  enum agent_state state;
  int64_t drained_by_id, removed_by_id;
  struct texts trusted_keys;
  json_t *devices;
  struct agent_refusal refused;
};
#define SCHEMA_DEVICES                                                                             \
  "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"required\": [\"device\", "            \
  "\"backend\", \"environment\"],"                                                                 \
  " \"properties\": {\"device\": {\"type\": \"string\"}, \"backend\": {\"type\": \"string\"},"     \
  " \"environment\": " SCHEMA_ENVIRONMENT ", \"facts\": {\"type\": [\"object\", \"null\"]},"       \
  " \"runs\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}},"                           \
  " \"drain_reason\": {\"type\": [\"string\", \"null\"]}, \"drained_by\": " SCHEMA_BY              \
  ", \"drained_by_id\": " SCHEMA_BY_ID ", \"yielded_since\": {\"type\": [\"string\", \"null\"],"   \
  " \"format\": \"date-time\"}, \"yield_reason\": {\"type\": [\"string\", \"null\"]}}}}"
#define RECORD_OF struct agent
static const struct field agent_fields[] = {
    MEMBER_AS("agent", TEXT, id, FIELD_NOT_NULL, "id"),
    MEMBER(TEXT, name, FIELD_NOT_NULL),
    MEMBER(TEXT, version, FIELD_NOT_NULL),
    MEMBER(ENUM, state, FIELD_NOT_NULL, .names = state_names),
    MEMBER(TEXT, drain_reason),
    MEMBER(TEXT, drained_by, .schema = SCHEMA_BY),
    MEMBER(ID, drained_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TIME, removed_at),
    MEMBER(TEXT, removed_by, .schema = SCHEMA_BY),
    MEMBER(ID, removed_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TEXTS, trusted_keys, .schema = SCHEMA_DIGESTS,
           .about = "it accepts only kernels that one of these keys signed"),
    MEMBER(JSON, devices, FIELD_NOT_NULL, .schema = SCHEMA_DEVICES),
    MEMBER(RECORD, refused, .of = &refusal_record,
           .about = "the last refused enrolment of its id from another machine, if within a day"),
    MEMBER(TIME, last_seen),
};
const struct record agent_record = ANSWER("Agent", agent_fields);
#undef RECORD_OF

/* Whether the request may send heartbeats for its agent; false: it was answered. The database is
 * not read: the housekeeper looks up an agent that is not known here. */
static bool beat_is_allowed(struct server *server, struct request *request) {
  const char *id = request->segments[0];
  if (*request->token_agent)
    return identity_fits(request, id, "");

  struct agent_owner owner = agent_table_owner(server_agents(server), id);
  bool is_own =
      owner.token == 0 || owner.token == request->token_id || request->roles == TOKEN_ADMIN;

  if (!owner.has_token && (is_own || !token_is_live(server, owner.token)))
    return true;

  metrics_note_refusal(REFUSED_AGENT);
  if (owner.has_token)
    answer_refusal(request, ERROR_FORBIDDEN, "",
                   "agent %.40s has its own token; only requests with that may act as it", id);
  else
    answer_refusal(request, ERROR_FORBIDDEN, "",
                   "agent %.40s enrolled with another token than \"%s\", which is still live", id,
                   request->token_name);
  return false;
}

void route_agent_heartbeat(struct server *server, struct request *request) {
  struct heartbeat_answer answer = {.heartbeat_every_ms = server_options(server)->heartbeat_ms};
  const char *id = request->segments[0];
  struct heartbeat heartbeat = {0};
  const json_t *stated = json_object_get(request->json, "yielded");
  cleanup_free char *yielded = stated ? json_canonical(stated) : NULL;
  struct error error;

  if (!record_read(&heartbeat_request_record, request->json, "", &heartbeat, &error)) {
    answer_failure(request, &error);
  } else if (beat_is_allowed(server, request)) {
    switch (agent_table_beat(server_agents(server), id, heartbeat.boot, yielded,
                             clock_monotonic_ms(), &answer.is_draining)) {
    case AGENT_BEATS:
      request_answer_json(request, 200, record_write(&heartbeat_answer_record, &answer));
      break;
    case AGENT_ABSENT:
      answer_refusal(request, ERROR_MISSING, "",
                     "agent \"%.40s\" is not enrolled with this boot nonce; enrol again", id);
      break;
    case AGENT_LOOKUP:
      answer_refusal(request, ERROR_UNAVAILABLE, "",
                     "agent \"%.40s\" is being looked up; try again", id);
      break;
    }
  }

  record_release(&heartbeat_request_record, &heartbeat);
}

/* An agent's last request: it has handed back its leases. */
bool route_agent_end(struct worker *worker, struct request *request, struct error *error) {
  const char *id = request->segments[0];
  struct heartbeat heartbeat = {0};
  if (!record_read(&heartbeat_request_record, request->json, "", &heartbeat, error))
    return false;

  cleanup_free char *boot = TAKE(heartbeat.boot);
  record_release(&heartbeat_request_record, &heartbeat);
  if (!identity_may_act_as(worker, request, id, ""))
    return true;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_agent_end, error, BIND("agent", id), BIND("boot", boot));
  if (!rows)
    return false;
  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "agent \"%.40s\" is not enrolled with this boot nonce",
                    id);
  log_info("agent: ended agent=%s", id);
  fleet_changed(worker->server);
  return request_answer_empty(request, 204);
}

#define RECORD_OF struct drain_request
static const struct field drain_fields[] = {
    MEMBER(TEXT, device, .about = "drains only this device of the agent"),
    MEMBER(TEXT, reason, FIELD_STATED, .least = 1, .most = 1000, .about = "null ends the draining"),
};
#undef RECORD_OF
const struct record drain_request_record =
    RECORD("DrainRequest", struct drain_request, drain_fields);

bool route_agent_drain(struct worker *worker, struct request *request, struct error *error) {
  const char *id = request->segments[0];
  struct drain_request drain = {0};

  bool ok = record_read(&drain_request_record, request->json, "", &drain, error) &&
            agent_drain(worker->db, id, &drain, request_author(request), error);
  if (ok) {
    fleet_changed(worker->server);
    if (!drain.device)
      agent_table_drain(server_agents(worker->server), id, drain.reason != NULL);
    log_info("agent: %s agent=%s device=%s reason=%s", drain.reason ? "draining" : "resumed", id,
             drain.device, drain.reason);
    request_answer_json(request, 200,
                        json_pack("{s:s, s:s?, s:s?}", "agent", id, "device", drain.device,
                                  "drain_reason", drain.reason));
  }

  record_release(&drain_request_record, &drain);
  return ok;
}

/* Removes an agent that is not live, and ends its tokens: whatever has a copy of them must enrol
 * again. */
static bool agent_remove(struct worker *worker, const char *agent, const struct author *author,
                         struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_begin(worker->db, error) &&
            (rows = db_query(worker->db, &sql_agent_remove, error, BIND("agent", agent),
                             BIND("live_ms", agent_live_ms(server_options(worker->server))),
                             BIND_AUTHOR(author)));
  if (ok && !db_count(rows))
    ok = error_of(error, ERROR_MISSING,
                  "there is no agent \"%.40s\"; GET /v1/agents?all=true lists all", agent);
  else if (ok && db_get_bool(rows, 0, "is_live"))
    ok = error_of(error, ERROR_CONFLICT,
                  "agent %.40s (%.80s) is live, last seen at %s; stop it first, or drain it", agent,
                  db_get(rows, 0, "name"), db_get(rows, 0, "last_seen"));
  ok = ok &&
       db_execute(worker->db, &sql_agent_tokens_end, error, BIND("agent", agent),
                  BIND("replaces", 0), BIND_AUTHOR(author)) &&
       audit_note(worker->db, author, AUDIT_REMOVE_AGENT, agent,
                  json_pack("{s:s}", "name", db_get(rows, 0, "name")), error);
  return db_end(worker->db, ok, error);
}

bool route_agent_delete(struct worker *worker, struct request *request, struct error *error) {
  const char *id = request->segments[0];
  if (!agent_remove(worker, id, request_author(request), error))
    return false;

  log_info("agent: removed agent=%s by=%s", id, request->token_name);
  fleet_changed(worker->server);
  if (!tokens_refresh(worker, error))
    log_warning("tokens: %s", error->message);
  return request_answer_empty(request, 204);
}

bool route_agent_list(struct worker *worker, struct request *request, struct error *error) {
  const char *all = request_query(request, "all"), *after;
  int64_t limit;
  if (!page_read(request, &limit, &after, error))
    return false;
  if (all && !string_equal(all, "true") && !string_equal(all, "false"))
    return error_set(error, "all=\"%.40s\" must be true or false", all);

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_agents_list, error,
               BIND("live_ms", agent_live_ms(server_options(worker->server))),
               BIND("after", after ? after : ""), parameter_bool("all", string_equal(all, "true")),
               BIND("limit", limit));
  if (!rows)
    return false;

  int n = db_count(rows);
  return request_answer_json(request, 200,
                             json_pack("{s:o, s:s?}", "items", db_rows_to_json(rows, &agent_record),
                                       "next", n == limit ? db_get(rows, n - 1, "id") : NULL));
}
