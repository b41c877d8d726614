/* Enrolling: who an agent is, and which token is its own. One transaction each.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include <fnmatch.h>

#include "common/base/log.h"
#include "server/agent/agents.h"
#include "server/agent/enrolment.h"
#include "server/audit/audit.h"
#include "server/http/answers.h"
#include "server/http/client.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/lease/grant/grants.h"
#include "server/lease/identity.h"
#include "server/records.h"

#define ENROL_ATTEMPTS 3

struct enrolling {
  struct request *request;
  const struct enrolment *enrolment;
  char id[AGENT_ID_SIZE];
  struct agent_owner owner; /* afterwards */
  /* What came of it. */
  char copy_of[AGENT_ID_SIZE]; /* refused because this agent is live on another machine; "": it is
                                  not for that */
  char *boot_before;
  struct lease_losses losses;
  char token[TOKEN_TEXT_SIZE]; /* "": none was made */
  int64_t rotate_in_ms;        /* -1: never */
};

static void enrolling_clear(struct enrolling *enrolling) {
  free(enrolling->boot_before);
  lease_losses_release(&enrolling->losses);
  *enrolling = (struct enrolling){
      .request = enrolling->request, .enrolment = enrolling->enrolment, .rotate_in_ms = -1};
}

/* What the enrolment token admits, also when the agent comes back with the token that it got. */
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
    ok = error_of_at(error, ERROR_FORBIDDEN, json_pointer_index(at, sizeof at, "/devices", i),
                     "the token \"%s\" enrols devices of %s, and \"%.60s\" is another", terms->name,
                     text, device->device);
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
  return error_of_at(error, ERROR_CONFLICT, "/agent",
                     "agent %s (\"%.60s\") lives on another machine, seen %s: one of the two has a "
                     "copy of the other's state "
                     "folder; remove the copy's, so that it enrols as itself, or, where the agent "
                     "moved, wait until the first "
                     "was not seen for a while",
                     agent, before->name, before->last_seen);
}

/* With a token of the role enrol. The answer to this boot nonce may have been lost: then it is the
 * same agent. An id that is taken is not given to anybody who has not its token: the agent is a new
 * one. */
static bool newcomer_admit(struct worker *worker, struct enrolling *enrolling,
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
    return error_of(error, ERROR_FORBIDDEN,
                    "the token \"%s\" %s; an admin makes another with \"wavetune token make\"",
                    terms.name,
                    terms.is_live ? "has enrolled as many agents as it may" : "has ended");
  return known || enrolment_use(worker->db, token, error);
}

/* With the agent's own token, or with one that is bound to no agent. */
static bool acquaintance_admit(struct worker *worker, struct enrolling *enrolling,
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
    /* A certificate's agent is its own from the first time on, whatever the token was that stood
     * for it before. */
    enrolling->owner =
        (struct agent_owner){request->is_by_certificate ? request->token_id : before.owner, true};
    if (!terms_check(enrolling->enrolment, &before.terms, error))
      return false;
  } else if (before.owner_is_enrol) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s has a token of its own, and only with that enrols again",
                       enrolling->id);
  } else if (before.is_of_certificate) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s is a client certificate's, and only with that enrols again",
                       enrolling->id);
  } else if (before.owner && !is_own && !is_admin && before.terms.is_live) {
    return error_of_at(error, ERROR_FORBIDDEN, "/agent",
                       "agent %s enrolled with the token \"%s\"; use that one, or revoke it first "
                       "with \"wavetune token revoke "
                       "%s\"",
                       enrolling->id, before.terms.name, before.terms.name);
  } else {
    bool keeps = is_admin && before.owner && before.terms.is_live;
    enrolling->owner = (struct agent_owner){keeps ? before.owner : request->token_id, false};
  }
  return machine_check(enrolling, enrolling->id, &before, error);
}

static bool agent_write(struct worker *worker, struct enrolling *enrolling, struct error *error) {
  const struct enrolment *enrolment = enrolling->enrolment;
  const struct server_options *options = server_options(worker->server);
  if (!agent_enrol(worker->db, enrolling->id, enrolment, enrolling->owner.token,
                   &enrolling->boot_before, error))
    return false;
  if (enrolling->boot_before[0] && strcmp(enrolling->boot_before, enrolment->boot) != 0 &&
      !leases_reclaim(worker, enrolling->id, &enrolling->losses, error))
    return false;
  const struct author *author = request_author(enrolling->request);
  json_t *detail =
      json_pack("{s:s, s:I}", "name", enrolment->name, "devices", (json_int_t)enrolment->devices.n);
  if (!audit_note(worker->db, author, AUDIT_ENROL, enrolling->id, detail, error))
    return false;
  int64_t life_ms = options->agent_token_ms;
  if (enrolling->request->is_by_certificate)
    return true; /* its authority replaces it */
  if (*enrolling->request->token_agent)
    return agent_token_rotate_in(worker->db, enrolling->request->token_id, &enrolling->rotate_in_ms,
                                 error);
  enrolling->rotate_in_ms = life_ms ? life_ms - life_ms / 3 : -1;
  return !enrolling->owner.has_token ||
         agent_token_make(worker->db, enrolling->id, 0, life_ms, author, enrolling->token, error);
}

/* One attempt, one transaction: the agent, its devices, its token and, when another process of it
 * ran before, its leases. */
static bool enrol_once(struct worker *worker, struct enrolling *enrolling, struct error *error) {
  enrolling_clear(enrolling);
  if (!db_begin(worker->db, error))
    return false;
  bool ok = enrolling->request->roles == TOKEN_ENROL ? newcomer_admit(worker, enrolling, error)
                                                     : acquaintance_admit(worker, enrolling, error);
  return db_end(worker->db, ok && agent_write(worker, enrolling, error), error);
}

/* A refusal is for the operator too. */
static void refusal_note(struct worker *worker, const struct request *request,
                         const struct enrolling *enrolling, const struct error *why) {
  const struct enrolment *enrolment = enrolling->enrolment;
  struct error error;
  char address[ADDRESS_SIZE];
  log_warning("agent: refused to enrol name=%s token=%s address=%s: %s", enrolment->name,
              request->token_name, client_address(request, address), why->message);
  if (*enrolling->copy_of && !agent_note_refused(worker->db, enrolling->copy_of, enrolment->machine,
                                                 enrolment->name, &error))
    log_warning("agent: cannot note that a copy of agent=%s was refused: %s", enrolling->copy_of,
                error.message);
}

static void enrolled_answer(struct worker *worker, struct request *request,
                            struct enrolling *enrolling) {
  const struct server_options *options = server_options(worker->server);
  agent_table_put(server_agents(worker->server), enrolling->id, enrolling->enrolment->boot, false,
                  enrolling->owner, clock_monotonic_ms());
  leases_settle_losses(worker, &enrolling->losses);
  char address[ADDRESS_SIZE];
  log_info("agent: enrolled agent=%s name=%s devices=%zu reclaimed=%zu token=%s address=%s",
           enrolling->id, enrolling->enrolment->name, enrolling->enrolment->devices.n,
           enrolling->losses.n, request->token_name, client_address(request, address));

  bool must_rotate = enrolling->owner.has_token && enrolling->rotate_in_ms >= 0;
  struct enrolled answer = {.agent = enrolling->id,
                            .heartbeat_every_ms = options->heartbeat_ms,
                            .lease_ms = options->lease_ms,
                            .reclaimed = (int64_t)enrolling->losses.n,
                            .token = *enrolling->token ? enrolling->token : NULL,
                            .rotate_in_ms = must_rotate ? enrolling->rotate_in_ms : FIELD_NONE};
  request_answer_json(request, *enrolling->boot_before ? 200 : 201,
                      record_write(&agent_answer_record, &answer));
}

void route_agent_post(struct worker *worker, struct request *request) {
  struct error error;
  cleanup_enrolment struct enrolment enrolment = {0};
  if (!enrolment_parse(request->json, &enrolment, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (enrolment.agent && !identity_fits(request, enrolment.agent, "/agent"))
    return;
  struct enrolling enrolling = {.request = request, .enrolment = &enrolment};
  bool ok = enrol_once(worker, &enrolling, &error);
  for (int attempt = 1; !ok && error.kind == ERROR_CONTENTION && attempt < ENROL_ATTEMPTS;
       attempt++)
    ok = enrol_once(worker, &enrolling, &error);
  if (!ok && (error.kind == ERROR_FORBIDDEN || error.kind == ERROR_CONFLICT))
    refusal_note(worker, request, &enrolling, &error);
  if (ok)
    enrolled_answer(worker, request, &enrolling);
  else
    answer_failure(request, &error);
  enrolling_clear(&enrolling);
}

/* The new token replaces the one that asks, which goes on until the new one was used: an answer
 * that is lost costs nothing. */
static bool token_replace(struct worker *worker, struct request *request,
                          char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  const struct server_options *options = server_options(worker->server);
  const struct author *author = request_author(request);
  cleanup_agent_before struct agent_before before = {0};
  if (!db_begin(worker->db, error))
    return false;
  bool ok = agent_before_lock(worker->db, request->token_agent, 0, &before, error) &&
            tokens_settle_used(worker->db, &request->token_id, 1, error) &&
            agent_token_make(worker->db, request->token_agent, request->token_id,
                             options->agent_token_ms, author, ret_token, error) &&
            audit_note(worker->db, author, AUDIT_REPLACE_TOKEN, request->token_agent, NULL, error);
  return db_end(worker->db, ok, error);
}

static bool token_may_be_replaced(const struct request *request, struct error *error) {
  if (request->is_by_certificate)
    return error_of(error, ERROR_FORBIDDEN,
                    "agent %s shows a certificate, which takes the place of a token of its own",
                    request->token_agent);
  return *request->token_agent ||
         error_of(error, ERROR_FORBIDDEN,
                  "the token \"%s\" is no agent's own; an enrolment token makes such agents",
                  request->token_name);
}

void route_agent_token(struct worker *worker, struct request *request) {
  static const char *const members[] = {NULL};
  int64_t life_ms = server_options(worker->server)->agent_token_ms;
  struct error error;
  char token[TOKEN_TEXT_SIZE];
  if (!json_only_members(request->json, "", members, &error) ||
      !token_may_be_replaced(request, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!identity_fits(request, request->segments[0], ""))
    return;
  if (!token_replace(worker, request, token, &error)) {
    answer_failure(request, &error);
    return;
  }
  log_info("agent: agent=%s replaces its token", request->token_agent);
  struct rotated answer = {token, life_ms ? life_ms - life_ms / 3 : FIELD_NONE};
  request_answer_json(request, 201, record_write(&agent_token_answer_record, &answer));
}
