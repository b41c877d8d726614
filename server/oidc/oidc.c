/* From a provider's token to an identity: issuer, signature, claims, rule, row. */
#include "server/oidc/oidc.h"

#include <pthread.h>
#include <time.h>

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/client.h"
#include "server/http/request.h"
#include "server/http/router.h"
#include "server/http/tokens.h"
#include "server/oidc/keys.h"
#include "server/oidc/oidc.sql.h"
#include "server/oidc/rules.h"

#define CLAIM_SHOWN_MAX 200

/* What the file states. */
struct providers {
  struct oidc_issuers issuers;
  size_t n_keys;
  struct issuer_keys *keys[OIDC_ISSUERS_MAX]; /* in the order of the issuers */
};

struct oidc {
  struct auth *auth;
  pthread_rwlock_t lock;
  struct providers *providers; /* NULL: there are none; under the lock */
};

static void providers_free(struct providers *providers) {
  if (!providers)
    return;
  for (size_t i = 0; i < providers->n_keys; i++)
    issuer_keys_free(providers->keys[i]);
  oidc_issuers_release(&providers->issuers);
  free(providers);
}
DEFINE_CLEANUP(struct providers *, cleanup_providers_free, providers_free)

struct oidc *oidc_new(struct auth *auth) {
  struct oidc *oidc = xcalloc(1, sizeof *oidc);
  oidc->auth = auth;
  pthread_rwlock_init(&oidc->lock, NULL);
  return oidc;
}

void oidc_free(struct oidc *oidc) {
  if (!oidc)
    return;
  providers_free(oidc->providers);
  pthread_rwlock_destroy(&oidc->lock);
  free(oidc);
}

bool oidc_read(struct oidc *oidc, const char *path, struct error *error) {
  const struct issuer_keys_calls calls = {tokens_look_up_again, auth_forget_sessions, oidc->auth};
  __attribute__((cleanup(cleanup_providers_free))) struct providers *providers = NULL;
  if (path) {
    providers = xcalloc(1, sizeof *providers);
    if (!oidc_issuers_read(path, &providers->issuers, error))
      return false;
    for (; providers->n_keys < providers->issuers.n; providers->n_keys++)
      if (!issuer_keys_new(&providers->issuers.all[providers->n_keys], &calls,
                           &providers->keys[providers->n_keys], error))
        return false;
  }

  pthread_rwlock_wrlock(&oidc->lock);
  struct providers *old = oidc->providers;
  oidc->providers = TAKE(providers);
  pthread_rwlock_unlock(&oidc->lock);
  auth_forget_sessions(oidc->auth);
  providers_free(old);
  return true;
}

/* What a valid token gives its sender. The texts are its own: the file may be read again. */
struct identity {
  char name[TOKEN_NAME_SIZE];
  char *issuer, *role;
  struct texts channels;
  struct digest digest;
  json_t *shown; /* claims for the audit */
};

static void identity_release(struct identity *identity) {
  free(identity->issuer);
  free(identity->role);
  for (size_t i = 0; i < identity->channels.n; i++)
    free(identity->channels.all[i]);
  free(identity->channels.all);
  json_decref(identity->shown);
}

/* The claims by which people find the run, and those that the rule required. */
static json_t *claims_shown(const json_t *claims, const struct oidc_rule *rule) {
  static const char *const names[] = {"sub",          "jti",         "actor",  "user_login",
                                      "run_id",       "run_attempt", "sha",    "event_name",
                                      "workflow_ref", "pipeline_id", "job_id", NULL};
  json_t *shown = json_object();
  for (size_t i = 0; i < ARRAY_LENGTH(names) - 1 + rule->n_claims; i++) {
    bool is_listed = i < ARRAY_LENGTH(names) - 1;
    const char *name = is_listed ? names[i] : rule->claims[i - ARRAY_LENGTH(names) + 1].name;
    const char *text = json_string_value(json_object_get(claims, name));
    if (text)
      json_put(shown, name, json_stringn(text, utf8_cut(text, strlen(text), CLAIM_SHOWN_MAX)));
  }
  return shown;
}

static void identity_fill(struct identity *identity, const struct oidc_issuer *issuer,
                          const struct oidc_rule *rule, const json_t *claims) {
  oidc_name(issuer, claims, identity->name);
  identity->issuer = xstrdup(issuer->issuer);
  identity->role = xstrdup(rule->role);
  identity->channels.n = rule->channels.n;
  if (rule->channels.n)
    identity->channels.all = xcalloc(rule->channels.n, sizeof(char *));
  for (size_t i = 0; i < rule->channels.n; i++)
    identity->channels.all[i] = xstrdup(rule->channels.all[i]);
  identity->digest = oidc_identity_digest(issuer, rule, identity->name);
  identity->shown = claims_shown(claims, rule);
}

/* Verifies the token. OIDC_IDENTIFIED: *identity is filled. */
static enum oidc_answer token_verify(struct providers *providers, const struct jwt *jwt,
                                     struct request *request, struct identity *identity,
                                     int64_t *ret_until_s, struct error *error) {
  const char *url = json_string_value(json_object_get(jwt->claims, "iss"));
  const struct oidc_issuer *issuer = oidc_issuer_find(&providers->issuers, url);
  if (!issuer) {
    error_of(error, ERROR_UNAUTHENTICATED,
             "it is of the issuer \"%.200s\", which serve --oidc does not name", url ? url : "");
    return OIDC_REFUSED;
  }

  /* The claims first: no fetch for a token that would be refused anyhow. */
  struct issuer_keys *keys = providers->keys[issuer - providers->issuers.all];
  if (!jwt_check_claims(jwt->claims, issuer->issuer, issuer->audience, (int64_t)time(NULL),
                        ret_until_s, error))
    return OIDC_REFUSED;
  enum keys_answer answer = issuer_keys_verify(keys, jwt, request, error);
  if (answer != KEYS_VALID)
    return answer == KEYS_WAIT ? OIDC_WAITS : OIDC_REFUSED;

  const struct oidc_rule *rule = oidc_rule_find(issuer, jwt->claims);
  if (!rule) {
    cleanup_free char *seen = oidc_claims_seen(issuer, jwt->claims);
    error_of(error, ERROR_FORBIDDEN,
             "the token is valid, but no rule of serve --oidc holds for it: it has %s", seen);
    return OIDC_REFUSED;
  }

  identity_fill(identity, issuer, rule, jwt->claims);
  return OIDC_IDENTIFIED;
}

/* Puts the identity's row, whose digest is then its own, and a row of the audit. */
static bool identity_store(struct db *db, struct identity *identity, const struct jwt *jwt,
                           int64_t until_s, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  double issued_s = json_number_value(json_object_get(jwt->claims, "iat"));

  bool ok =
      db_begin(db, error) &&
      (rows = db_query(db, &sql_identity_put, error, BIND("name", identity->name),
                       BIND("role", identity->role), BIND("digest", &identity->digest),
                       BIND("until_s", until_s), BIND("issuer", identity->issuer),
                       BIND("issued_s", (int64_t)issued_s - JWT_LEEWAY_S),
                       parameter_texts("channels", (const char *const *)identity->channels.all,
                                       identity->channels.n)));
  if (ok && !db_count(rows))
    ok = error_of(error, ERROR_UNAUTHENTICATED,
                  "the tokens of \"%s\" that were issued until now were revoked", identity->name);
  if (ok) {
    identity->digest = db_get_digest(rows, 0, "digest");
    char peer[ADDRESS_SIZE]; /* request_author would remember a request without a token */
    const struct author author = {db_get_integer(rows, 0, "id"), identity->name, identity->role,
                                  client_address(request, peer)};
    json_t *detail = json_pack("{s:s, s:O, s:I}", "issuer", identity->issuer, "claims",
                               identity->shown, "until", (json_int_t)until_s);
    ALWAYS(detail != NULL);
    ok = audit_note(db, &author, AUDIT_ACCEPT_TOKEN, identity->name, detail, error);
  }
  return db_end(db, ok, error);
}

enum oidc_answer oidc_identify(struct worker *worker, struct request *request, const char *text,
                               struct digest *ret_identity, int64_t *ret_expires_ms,
                               struct error *error) {
  struct oidc *oidc = server_oidc(worker->server);
  cleanup_jwt struct jwt jwt = {0};
  __attribute__((cleanup(identity_release))) struct identity identity = {0};
  int64_t until_s;
  if (!jwt_parse(text, &jwt, error)) {
    error_become(error, ERROR_UNAUTHENTICATED);
    return OIDC_REFUSED;
  }

  pthread_rwlock_rdlock(&oidc->lock);
  enum oidc_answer answer =
      oidc->providers ? token_verify(oidc->providers, &jwt, request, &identity, &until_s, error)
                      : OIDC_NOT_USED;
  pthread_rwlock_unlock(&oidc->lock);
  if (answer != OIDC_IDENTIFIED)
    return answer;
  if (!identity_store(worker->db, &identity, &jwt, until_s, request, error)) {
    if (error->kind != ERROR_UNAUTHENTICATED && error->kind != ERROR_INTERNAL) {
      log_debug("oidc: %s", error->message); /* it may have the database's address */
      error_of(error, ERROR_UNAVAILABLE,
               "the token cannot be accepted while the database is away; try again");
    }
    return OIDC_REFUSED;
  }

  counter_add(COUNTER_oidc_tokens, 1);
  log_info("oidc: accepted a token of %s with the role %s", identity.name, identity.role);
  *ret_identity = identity.digest;
  *ret_expires_ms = until_s * 1000;
  return OIDC_IDENTIFIED;
}
