/* Checks of identities. Memory and threads: as the header says. */
#include "server/http/identity.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "server/agent/identities.h"
#include "server/http/answers.h"
#include "server/http/router.h"

bool identity_of_certificate(const struct server *server, const struct digest *certificate,
                             char ret_agent[TOKEN_AGENT_SIZE]) {
  static const char kind[] = "certificate|"; /* no lease's: those begin with a digit */
  const uint8_t *secret = server_lease_secret(server);
  uint8_t message[sizeof kind - 1 + DIGEST_SIZE], mac[EVP_MAX_MD_SIZE];
  if (!secret)
    return false;
  memcpy(message, kind, sizeof kind - 1);
  memcpy(message + sizeof kind - 1, certificate->bytes, DIGEST_SIZE);
  ALWAYS(HMAC(EVP_sha256(), secret, LEASE_SECRET_SIZE, message, sizeof message, mac, NULL) != NULL);
  for (size_t i = 0; i < (TOKEN_AGENT_SIZE - 1) / 2; i++)
    snprintf(ret_agent + 2 * i, 3, "%02x", mac[i]);
  return true;
}

bool identity_is_enough(const struct server *server, unsigned roles, const char *token_agent) {
  return roles != TOKEN_AGENT || *token_agent || !server_options(server)->require_enrolment;
}

bool identity_suffices(struct request *request) {
  const struct route *route = route_of(request->route);
  bool is_for_agents = route->roles == MAY_WORK || route->roles == MAY_ENROL;
  if (!server_options(request->server)->require_enrolment || *request->token_agent || request->roles == TOKEN_ENROL ||
      (request->roles != TOKEN_AGENT && !is_for_agents))
    return true;
  request_problem(request, 403, "",
                  "this server takes agents with tokens of their own only, and \"%s\" is no agent's: make a token with "
                  "\"wavetune token make NAME --role enrol\" and start the agent with it",
                  request->token_name);
  return false;
}

bool identity_fits(struct request *request, const char *agent, const char *pointer) {
  if (!*request->token_agent || strcmp(request->token_agent, agent) == 0)
    return true;
  request_problem(request, 403, pointer, "the token \"%s\" acts as agent %s alone, not as agent \"%.40s\"",
                  request->token_name, request->token_agent, agent);
  return false;
}

static struct claim claim_of(const struct request *request) {
  return (struct claim){.token = request->token_id, .is_admin = request->roles == TOKEN_ADMIN};
}

/* The secret is read once, before the server is ready. */
static size_t starting_answer(struct request **requests, size_t n) {
  struct error error;
  error_set(&error, "the server is starting; try again");
  for (size_t i = 0; i < n; i++)
    request_unavailable(requests[i], &error);
  return 0;
}

size_t identity_keep_agents(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct claim *claims = xcalloc(n, sizeof *claims);
  cleanup_free struct request **askers = xcalloc(n, sizeof *askers);
  struct error error;
  size_t n_kept = 0, n_claims = 0;
  if (!server_lease_secret(worker->server))
    return starting_answer(requests, n);
  for (size_t i = 0; i < n; i++) {
    const char *agent = json_string_value(json_object_get(requests[i]->json, "agent"));
    if (agent && !*requests[i]->token_agent) {
      askers[n_claims] = requests[i];
      claims[n_claims] = claim_of(requests[i]);
      claims[n_claims++].agent = agent;
    } else if (!agent || identity_fits(requests[i], agent, "/agent")) {
      requests[n_kept++] = requests[i];
    }
  }
  bool ok = n_claims == 0 || identities_check_agents(worker->db, claims, n_claims, &error);
  for (size_t i = 0; i < n_claims; i++) {
    const struct claim *claim = &claims[i];
    bool must_claim = claim->is_unclaimed && !claim->is_admin;
    if (!ok || (must_claim && !identities_claim(worker->db, claim->agent, claim->token, &error)))
      answer_failure(askers[i], &error);
    else if (claim->is_anothers && claim->owner_is_agent)
      request_problem(askers[i], 403, "/agent", "agent %s has a token of its own, and only with that acts as it",
                      claim->agent);
    else if (claim->is_anothers)
      request_problem(askers[i], 403, "/agent",
                      "agent %s enrolled with the token \"%s\"; another acts as it only when that one was revoked",
                      claim->agent, claim->owner);
    else
      requests[n_kept++] = askers[i];
  }
  return n_kept;
}

static void not_granted_answer(struct request *request) {
  struct error error;
  error_set(&error, "lease \"%.64s\" was not granted to you", request->segments[0]);
  request_problem_extra(request, 403, &error, json_pack("{s:s}", "lease", request->segments[0]));
}

/* Of a token that several agents may share: whose the results of an earlier epoch are is not known any more. They are not
 * taken, and the agent, if it was granted the lease, hears that it has lost it. */
static void claim_refuse(struct request *request, const struct claim *claim) {
  struct error error;
  if (!claim->is_stale || claim->owner_is_agent) {
    not_granted_answer(request);
    return;
  }
  error_set(&error, "lease %lld is no longer yours at this epoch", (long long)claim->lease);
  request_problem_extra(request, 409, &error, json_pack("{s:n}", "epoch"));
}

int64_t identity_lease(const struct request *request) { return strtoll(request->segments[0], NULL, 10); }

size_t identity_keep_leases(struct worker *worker, struct request **requests, size_t n) {
  cleanup_free struct claim *claims = xcalloc(n, sizeof *claims);
  cleanup_free struct request **askers = xcalloc(n, sizeof *askers);
  const uint8_t *secret = server_lease_secret(worker->server);
  struct error error;
  size_t n_kept = 0, n_claims = 0;
  if (!secret)
    return starting_answer(requests, n);
  for (size_t i = 0; i < n; i++) {
    struct request *request = requests[i];
    struct claim claim = claim_of(request);
    bool has_epoch = json_get_integer(request->json, "", "epoch", JSON_REQUIRED, 1, INT64_MAX, &claim.epoch, &error);
    enum lease_id_answer answer =
        lease_id_check(secret, request->segments[0], claim.epoch, request->token_agent, &claim.lease);
    if (answer == LEASE_ID_NONE) {
      request_problem(request, 404, "", "there is no lease \"%.40s\"", request->segments[0]);
    } else if (!has_epoch || answer == LEASE_ID_GRANTED) {
      requests[n_kept++] = request;
    } else if (answer == LEASE_ID_PLAIN) {
      askers[n_claims] = request;
      claims[n_claims++] = claim;
    } else {
      not_granted_answer(request);
    }
  }
  bool ok = n_claims == 0 || identities_check_leases(worker->db, claims, n_claims, &error);
  for (size_t i = 0; i < n_claims; i++) {
    if (!ok)
      answer_failure(askers[i], &error);
    else if (claims[i].is_anothers)
      claim_refuse(askers[i], &claims[i]);
    else
      requests[n_kept++] = askers[i];
  }
  return n_kept;
}
