/* Enrolling: reads the body of POST /v1/agents, checks what its token admits, finds or makes the
 * agent, stores it, and gives it its own token. Each enrolment is one transaction.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; enrolment_parse
 * any. */
#include <fnmatch.h>

#include "common/base/log.h"
#include "server/agent/agents.h"
#include "server/agent/enrolment.sql.h"
#include "server/audit/audit.h"
#include "server/cache/environments.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/client.h"
#include "server/http/limits.h"
#include "server/http/request.h"
#include "server/http/tokens.h"
#include "server/lease/identity.h"
#include "server/lease/lease_kind.h"
#include "server/records.h"
#include "server/token/tokens.h"

void enrolment_release(struct enrolment *enrolment) {
  struct enrolment_device *devices = enrolment->devices.all;
  for (size_t i = 0; i < enrolment->devices.n; i++)
    environment_release(&devices[i].environment);
  record_release(&enrolment_record, enrolment);
}

static bool device_check(struct enrolment *enrolment, size_t i, struct error *error) {
  struct enrolment_device *devices = enrolment->devices.all, *device = &devices[i];
  if (!environment_parse(device->environment_json, &device->environment, error) ||
      !environment_is_full(&device->environment, error))
    return error_pointer_prefix(error, "/environment");

  device->environment_digest = environment_digest(&device->environment);

  if (!device->runs.all) {
    device->runs.all = xcalloc(REGIMES_UNSTATED, sizeof(char *));
    for (; device->runs.n < REGIMES_UNSTATED; device->runs.n++)
      device->runs.all[device->runs.n] = run_of_regime((enum regime)device->runs.n);
  }

  for (size_t other = 0; other < i; other++)
    if (strcmp(devices[other].device, device->device) == 0)
      return error_set(error, "device \"%.60s\" is listed twice", device->device);
  return true;
}

static bool enrolment_read(const json_t *json, struct enrolment *enrolment, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!record_read(&enrolment_record, json, "", enrolment, error))
    return false;

  if (enrolment->agent && !agent_id_is_valid(enrolment->agent))
    return error_at(
        error, "/agent",
        "\"agent\" must be the 32 hexadecimal digits of an earlier enrolment; leave it out for "
        "a new one");

  for (size_t i = 0; i < enrolment->trusted_keys.n; i++) {
    struct digest id;
    if (!digest_parse(enrolment->trusted_keys.all[i], &id))
      return error_at(error, json_pointer_index(at, sizeof at, "/trusted_keys", i),
                      "a trusted key is named by its id, \"sha256:\" and 64 hexadecimal digits");
  }

  for (size_t i = 0; i < enrolment->devices.n; i++)
    if (!device_check(enrolment, i, error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/devices", i));
  return true;
}

bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error) {
  struct enrolment enrolment;
  record_init(&enrolment_record, &enrolment);
  if (enrolment_read(json, &enrolment, error)) {
    *ret = enrolment;
    return true;
  }
  enrolment_release(&enrolment);
  return false;
}

/* The agents that a token of the role enrol admits. `environment` is JSON; NULL: any. */
struct enrolment_terms {
  bool is_live; /* the token exists and is neither revoked nor expired */
  int64_t uses_left;
  char *name; /* of the token */
  char *agent_name;
  json_t *environment;
};
#define RECORD_OF struct enrolment_terms
static const struct field terms_fields[] = {
    MEMBER(BOOL, is_live),    MEMBER(INTEGER, uses_left), MEMBER_AS("token_name", TEXT, name),
    MEMBER(TEXT, agent_name), MEMBER(JSON, environment),
};
#undef RECORD_OF
static const struct record terms_record = RECORD(NULL, struct enrolment_terms, terms_fields);

static void enrolment_terms_release(struct enrolment_terms *terms) {
  record_release(&terms_record, terms);
}
#define cleanup_enrolment_terms __attribute__((cleanup(enrolment_terms_release)))

static bool enrolment_terms_lock(struct db *db, int64_t token, struct enrolment_terms *ret,
                                 struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_enrolment_terms_lock, error, BIND("token", token));
  if (!rows)
    return false;

  ALWAYS(db_count(rows) == 1); /* tokens are never removed */
  db_read(rows, 0, &terms_record, ret);
  return true;
}

static bool enrolment_known(struct db *db, int64_t token, const char *boot, char **ret_agent,
                            struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_enrolment_known, error, BIND("token", token), BIND("boot", boot));
  if (!rows)
    return false;

  *ret_agent = db_count(rows) ? xstrdup(db_get(rows, 0, "id")) : NULL;
  return true;
}

/* An agent before it enrols; its row is locked. All members are 0 when it is not known. */
struct agent_before {
  bool is_known, is_live;
  char *name, *machine, *last_seen; /* machine: NULL where it never stated one */
  int64_t owner;                    /* the token that it belongs to; 0: none */
  bool owner_is_enrol;    /* it has its own token, which it got when it enrolled with the owner */
  bool is_of_certificate; /* the owner represents a client certificate: no other token enrols as the
                             agent */
  struct enrolment_terms terms; /* of the owner; no limits unless it has the role enrol */
};
#define RECORD_OF struct agent_before
static const struct field before_fields[] = {
    MEMBER_AS("agent_is_live", BOOL, is_live),
    MEMBER(TEXT, name),
    MEMBER(TEXT, machine),
    MEMBER(TIME, last_seen),
    MEMBER_AS("token_id", ID, owner),
    MEMBER_AS("is_enrol", BOOL, owner_is_enrol),
    MEMBER(BOOL, is_of_certificate),
    MEMBER(RECORD, terms, .of = &terms_record),
};
#undef RECORD_OF
static const struct record before_record = RECORD(NULL, struct agent_before, before_fields);

static void agent_before_release(struct agent_before *before) {
  record_release(&before_record, before);
}
#define cleanup_agent_before __attribute__((cleanup(agent_before_release)))

static bool agent_before_lock(struct db *db, const char *agent, int64_t live_ms,
                              struct agent_before *ret, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_agent_before_lock, error, BIND("agent", agent), BIND("live_ms", live_ms));
  if (!rows)
    return false;

  *ret = (struct agent_before){0};
  if (db_count(rows))
    db_read(rows, 0, &before_record, ret);
  ret->is_known = db_count(rows) > 0;
  return true;
}

static bool agent_token_make(struct db *db, const char *agent, int64_t replaces, int64_t life_ms,
                             const struct author *author, char ret_token[TOKEN_TEXT_SIZE],
                             struct error *error) {
  if (!db_execute(db, &sql_agent_tokens_end, error, BIND("agent", agent),
                  BIND("replaces", replaces), BIND_AUTHOR(author)))
    return false;

  char random[9];
  random_hex(random, 4);
  cleanup_free char *name = xasprintf("agent-%s-%s", agent, random);
  struct token_request request;
  token_request_init(&request);
  request.name = name;
  request.role = "agent";
  request.expires_in_ms = life_ms ? life_ms : FIELD_NONE;
  request.agent = agent;
  request.replaces = replaces ? replaces : FIELD_NONE;
  return tokens_insert(db, &request, author, ret_token, error) ||
         error_become(error, error->kind == ERROR_CONFLICT ? ERROR_INTERNAL
                                                           : error->kind); /* the name is random */
}

/* An enrolment in progress: the request and its result. */
struct enrolling {
  struct worker *worker;
  struct request *request;
  const struct enrolment *enrolment;
  char id[AGENT_ID_SIZE];
  struct agent_owner owner;    /* after the enrolment */
  char copy_of[AGENT_ID_SIZE]; /* refused because this agent is live on another machine; else "" */
  char *boot_before;           /* of the agent's last enrolment; "": it is new */
  struct lease_losses losses;
  int64_t n_lost;
  char token[TOKEN_TEXT_SIZE]; /* "": none was made */
  int64_t rotate_in_ms;        /* -1: never */
};

static void enrolling_clear(struct enrolling *enrolling) {
  free(enrolling->boot_before);
  lease_losses_release(&enrolling->losses);
  *enrolling = (struct enrolling){.worker = enrolling->worker,
                                  .request = enrolling->request,
                                  .enrolment = enrolling->enrolment,
                                  .rotate_in_ms = -1};
}

/* Checks the limits of the enrolment token, also when the agent enrols again with its own token. */
static bool terms_check(const struct enrolment *enrolment, const struct enrolment_terms *terms,
                        struct error *error) {
  struct environment wanted = {0};
  struct error unread;
  char at[JSON_POINTER_SIZE];
  if (terms->agent_name && fnmatch(terms->agent_name, enrolment->name, 0) != 0)
    return error_of_at(error, ERROR_FORBIDDEN, "/name",
                       "the token \"%s\" enrols agents named \"%s\", and this one is \"%.60s\"",
                       terms->name, terms->agent_name, enrolment->name);

  if (!terms->environment)
    return true;

  bool ok = true;
  ALWAYS(
      environment_parse(terms->environment, &wanted, &unread)); /* it was when the token was made */
  for (size_t i = 0; ok && i < enrolment->devices.n; i++) {
    const struct enrolment_device *device = enrolment_device(enrolment, i);
    if (environment_fits(&wanted, &device->environment))
      continue;
    cleanup_free char *text = environment_format(&wanted);
    ok = error_of_at(
        error, ERROR_FORBIDDEN, json_pointer_index(at, sizeof at, "/devices", i),
        "the token \"%s\" enrols devices with %s, and \"%.60s\" has another environment",
        terms->name, text, device->device);
  }

  environment_release(&wanted);
  return ok;
}

/* Two machines with one id: one is a copy of the other. */
static bool machine_check(struct enrolling *enrolling, const char *agent,
                          const struct agent_before *before, struct error *error) {
  const struct enrolment *enrolment = enrolling->enrolment;
  if (!before->is_known || !before->is_live || !enrolment->machine || !before->machine ||
      strcmp(before->machine, enrolment->machine) == 0)
    return true;

  snprintf(enrolling->copy_of, sizeof enrolling->copy_of, "%s", agent);
  return error_of_at(
      error, ERROR_CONFLICT, "/agent",
      "agent %s (\"%.60s\") is live on another machine, last seen %s: one of the two "
      "has a copy of the other's state folder; remove the copy, so that its agent "
      "enrols as a new one, or, where the agent moved, wait until the first is lost",
      agent, before->name, before->last_seen);
}

/* With a token of the role enrol: a new agent, or the one that this token enrolled with this boot
 * nonce when the answer was lost. Enrolling under a known id needs the token of that agent, so the
 * agent gets a new id here. */
static bool admit_by_enrolment_token(struct worker *worker, struct enrolling *enrolling,
                                     struct error *error) {
  const struct enrolment *enrolment = enrolling->enrolment;
  int64_t token = enrolling->request->token_id,
          live_ms = agent_live_ms(server_options(worker->server));
  cleanup_enrolment_terms struct enrolment_terms terms = {0};
  cleanup_agent_before struct agent_before before = {0};
  cleanup_free char *known = NULL;
  if (!enrolment_terms_lock(worker->db, token, &terms, error) ||
      !enrolment_known(worker->db, token, enrolment->boot, &known, error) ||
      (enrolment->agent &&
       !agent_before_lock(worker->db, enrolment->agent, live_ms, &before, error)))
    return false;

  random_hex(enrolling->id, (sizeof enrolling->id - 1) / 2);
  if (known || (enrolment->agent && !before.is_known))
    snprintf(enrolling->id, sizeof enrolling->id, "%s", known ? known : enrolment->agent);
  enrolling->owner = (struct agent_owner){token, true};

  if (!terms_check(enrolment, &terms, error) ||
      (!known && !machine_check(enrolling, enrolment->agent, &before, error)))
    return false;
  if (!terms.is_live || (!known && terms.uses_left == 0))
    return error_of(
        error, ERROR_FORBIDDEN,
        "the token \"%s\" %s; an admin makes another with \"wavetune token make\"", terms.name,
        terms.is_live ? "has enrolled as many agents as it may" : "is not valid any more");
  if (known)
    return true;

  return db_execute(worker->db, &sql_enrolment_use, error, BIND("token", token));
}

/* With the agent's own token, or with one that is bound to no agent. */
static bool admit_by_other_token(struct worker *worker, struct enrolling *enrolling,
                                 struct error *error) {
  const struct request *request = enrolling->request;
  const char *agent = *request->token_agent ? request->token_agent : enrolling->enrolment->agent;
  cleanup_agent_before struct agent_before before = {0};
  if (agent)
    snprintf(enrolling->id, sizeof enrolling->id, "%s", agent);
  else
    random_hex(enrolling->id, (sizeof enrolling->id - 1) / 2);

  if (!agent_before_lock(worker->db, enrolling->id, agent_live_ms(server_options(worker->server)),
                         &before, error))
    return false;

  bool is_own = before.owner == request->token_id, is_admin = request->roles == TOKEN_ADMIN;
  if (*request->token_agent) {
    /* A client certificate owns its agent from its first enrolment on, even if a token enrolled the
     * agent before. */
    enrolling->owner =
        (struct agent_owner){request->is_by_certificate ? request->token_id : before.owner, true};
    if (!terms_check(enrolling->enrolment, &before.terms, error))
      return false;
  } else if (before.owner_is_enrol) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s has its own token and can enrol again only with that",
                       enrolling->id);
  } else if (before.is_of_certificate) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s is a client certificate's and can enrol again only with that",
                       enrolling->id);
  } else if (before.owner && !is_own && !is_admin && before.terms.is_live) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s enrolled with the token \"%s\"; use that one, or revoke it first "
                       "with \"wavetune token revoke %s\"",
                       enrolling->id, before.terms.name, before.terms.name);
  } else {
    bool keeps = is_admin && before.owner && before.terms.is_live;
    enrolling->owner = (struct agent_owner){keeps ? before.owner : request->token_id, false};
  }

  return machine_check(enrolling, enrolling->id, &before, error);
}

/* In the transaction that stored a new agent with its devices. Enrolment tokens state how many
 * agents they enrol. */
static bool agents_check(struct worker *worker, const struct enrolling *enrolling,
                         struct error *error) {
  struct request *request = enrolling->request;
  const struct author *author = request_author(request);
  cleanup_rows struct db_rows *rows = NULL;
  if (request->roles != TOKEN_AGENT || *request->token_agent)
    return true;

  return (rows = db_query(worker->db, &sql_agents_of_token, error,
                          BIND("token", request->token_id))) &&
         limit_check(worker->server, author, LIMIT_AGENTS, db_get_integer(rows, 0, "agents"),
                     error) &&
         limit_check(worker->server, author, LIMIT_DEVICES, db_get_integer(rows, 0, "devices"),
                     error);
}

/* Stores the agent with exactly these devices, takes its leases back when an earlier process of it
 * held them, and gives it its own token. */
static bool agent_write(struct worker *worker, struct enrolling *enrolling, struct error *error) {
  const struct enrolment *enrolment = enrolling->enrolment;
  struct request *request = enrolling->request;
  const struct author *author = request_author(request);
  size_t n = enrolment->devices.n;
  cleanup_free const struct environment **environments = xcalloc(n, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    environments[i] = &enrolment_device(enrolment, i)->environment;

  cleanup_rows struct db_rows *rows = NULL, *ends = NULL;
  if (!environments_store(worker->db, environments, n, error) ||
      !(rows = db_query(worker->db, &sql_agent_enrol, error, BIND("id", enrolling->id),
                        BIND("token", enrolling->owner.token),
                        BIND_RECORD(&enrolment_record, enrolment))) ||
      !db_execute(worker->db, &sql_agent_devices, error, BIND("agent", enrolling->id),
                  BIND_RECORDS(&enrolment_device_record, enrolment->devices.all, n)))
    return false;

  enrolling->boot_before = xstrdup(db_get(rows, 0, "boot_before"));
  if (!*enrolling->boot_before && !agents_check(worker, enrolling, error))
    return false;
  bool is_restarted =
      *enrolling->boot_before && strcmp(enrolling->boot_before, enrolment->boot) != 0;
  if (is_restarted &&
      !leases_reclaim(worker, enrolling->id, &enrolling->losses, &enrolling->n_lost, error))
    return false;

  json_t *detail = json_pack("{s:s, s:I}", "name", enrolment->name, "devices", (json_int_t)n);
  if (!audit_note(worker->db, author, AUDIT_ENROL, enrolling->id, detail, error))
    return false;

  if (request->is_by_certificate) /* the authority renews the certificate */
    return true;
  if (*request->token_agent) {
    if (!(ends = db_query(worker->db, &sql_agent_token_rotate_in, error,
                          BIND("token", request->token_id))))
      return false;
    enrolling->rotate_in_ms = db_count(ends) ? db_get_integer(ends, 0, "ms") : -1;
    return true;
  }

  int64_t life_ms = server_options(worker->server)->agent_token_ms;
  enrolling->rotate_in_ms = life_ms ? life_ms - life_ms / 3 : -1;
  return !enrolling->owner.has_token ||
         agent_token_make(worker->db, enrolling->id, 0, life_ms, author, enrolling->token, error);
}

static bool enrol(struct db *db, void *context, struct error *error) {
  struct enrolling *enrolling = context;
  struct worker *worker = enrolling->worker;
  (void)db;
  enrolling_clear(enrolling);
  return (enrolling->request->roles == TOKEN_ENROL
              ? admit_by_enrolment_token(worker, enrolling, error)
              : admit_by_other_token(worker, enrolling, error)) &&
         agent_write(worker, enrolling, error);
}

/* Logs a refusal for operators. A refused copy of an agent is also noted in that agent's row. */
static void refusal_note(struct worker *worker, const struct request *request,
                         const struct enrolling *enrolling, const struct error *why) {
  const struct enrolment *enrolment = enrolling->enrolment;
  struct error error;
  char address[ADDRESS_SIZE];
  log_warning("agent: refused to enrol name=%s token=%s address=%s: %s", enrolment->name,
              request->token_name, client_address(request, address), why->message);
  if (!*enrolling->copy_of)
    return;

  if (!db_execute(worker->db, &sql_agent_note_refused, &error, BIND("agent", enrolling->copy_of),
                  BIND("machine", enrolment->machine), BIND("name", enrolment->name)))
    log_warning("agent: cannot note that a copy of agent=%s was refused: %s", enrolling->copy_of,
                error.message);
}

static void enrolled_answer(struct worker *worker, struct request *request,
                            struct enrolling *enrolling) {
  const struct server_options *options = server_options(worker->server);
  const struct agent_brief agent = {
      .id = enrolling->id, .boot = enrolling->enrolment->boot, .owner = enrolling->owner};
  agent_table_put(server_agents(worker->server), &agent, clock_monotonic_ms());
  fleet_enrolled(worker->server);
  leases_settle_losses(worker, &enrolling->losses);
  char address[ADDRESS_SIZE];
  log_info("agent: enrolled agent=%s name=%s devices=%zu reclaimed=%lld token=%s address=%s",
           enrolling->id, enrolling->enrolment->name, enrolling->enrolment->devices.n,
           (long long)enrolling->n_lost, request->token_name, client_address(request, address));

  bool must_rotate = enrolling->owner.has_token && enrolling->rotate_in_ms >= 0;
  struct enrolment_answer answer = {.agent = enrolling->id,
                                    .heartbeat_every_ms = options->heartbeat_ms,
                                    .lease_ms = options->lease_ms,
                                    .reclaimed = enrolling->n_lost,
                                    .token = *enrolling->token ? enrolling->token : NULL,
                                    .rotate_in_ms =
                                        must_rotate ? enrolling->rotate_in_ms : FIELD_NONE};
  request_answer_json(request, *enrolling->boot_before ? 200 : 201,
                      record_write(&agent_answer_record, &answer));
}

bool route_agent_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_enrolment struct enrolment enrolment = {0};
  if (!enrolment_parse(request->json, &enrolment, error))
    return false;
  if (enrolment.agent && !identity_fits(request, enrolment.agent, "/agent"))
    return true;

  struct enrolling enrolling = {.worker = worker, .request = request, .enrolment = &enrolment};
  bool ok = db_transaction(worker->db, DB_ATTEMPTS, enrol, &enrolling, error);
  if (!ok && error->kind == ERROR_FORBIDDEN)
    metrics_note_refusal(request->roles == TOKEN_ENROL ? REFUSED_ENROLMENT : REFUSED_AGENT);
  if (!ok && (error->kind == ERROR_FORBIDDEN || error->kind == ERROR_CONFLICT))
    refusal_note(worker, request, &enrolling, error);
  if (ok)
    enrolled_answer(worker, request, &enrolling);
  enrolling_clear(&enrolling);
  return ok;
}

/* The new token replaces the one of the request, which stays valid until the new one is used,
 * because the answer may be lost. */
bool route_agent_token(struct worker *worker, struct request *request, struct error *error) {
  static const char *const members[] = {NULL};
  int64_t life_ms = server_options(worker->server)->agent_token_ms;
  const struct author *author = request_author(request);
  const char *agent = request->token_agent;
  cleanup_agent_before struct agent_before before = {0};
  char token[TOKEN_TEXT_SIZE];
  if (!json_only_members(request->json, "", members, error))
    return false;
  if (request->is_by_certificate)
    return error_of(error, ERROR_FORBIDDEN,
                    "agent %s uses a client certificate instead of its own token", agent);
  if (!*agent)
    return error_of(
        error, ERROR_FORBIDDEN,
        "the token \"%s\" is not an agent's own token; agents get one when they enrol with "
        "an enrolment token",
        request->token_name);
  if (!identity_fits(request, request->segments[0], ""))
    return true;

  if (!db_begin(worker->db, error) ||
      !db_end(worker->db,
              agent_before_lock(worker->db, agent, 0, &before, error) &&
                  tokens_settle_used(worker->db, &request->token_id, 1, error) &&
                  agent_token_make(worker->db, agent, request->token_id, life_ms, author, token,
                                   error) &&
                  audit_note(worker->db, author, AUDIT_REPLACE_TOKEN, agent, NULL, error),
              error))
    return false;

  log_info("agent: agent=%s replaces its token", agent);
  struct agent_token_answer answer = {token, life_ms ? life_ms - life_ms / 3 : FIELD_NONE};
  return request_answer_json(request, 201, record_write(&agent_token_answer_record, &answer));
}
