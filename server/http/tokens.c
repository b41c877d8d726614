/* Tokens between the database and the table in memory. Runs on database workers and on the housekeeper. */
#include "server/http/tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/base/log.h"
#include "server/db/values.h"
#include "server/housekeep.h"
#include "server/http/client.h"
#include "server/http/response.h"
#include "server/http/router.h"
#include "server/http/tokens.sql.h"
#include "server/http/traffic.h"
#include "server/server_private.h"
#include "server/token/token_store.h"

#define REFRESH_EVERY_MS 2000

static bool token_read(const struct db_rows *rows, int row, struct auth_token *ret) {
  *ret = (struct auth_token){.digest = db_get_digest(rows, row, "digest"),
                             .id = db_get_integer(rows, row, "id"),
                             .replaces = db_get_integer(rows, row, "replaces"),
                             .expires_ms = db_get_integer(rows, row, "expires_ms")};
  struct error unknown;
  snprintf(ret->name, sizeof ret->name, "%s", db_get(rows, row, "name"));
  snprintf(ret->agent, sizeof ret->agent, "%s", db_get(rows, row, "agent"));
  return roles_parse(db_get(rows, row, "role"), &ret->roles, &unknown);
}

/* Those whose role is known here; returns how many. */
static size_t tokens_read(const struct db_rows *rows, struct auth_token *tokens) {
  size_t n = 0;
  for (int row = 0; row < db_count(rows); row++)
    n += token_read(rows, row, &tokens[n]);
  return n;
}

bool tokens_agent_of_certificate(const struct server *server, const struct digest *certificate,
                                 char ret_agent[TOKEN_AGENT_SIZE]) {
  static const char kind[] = "certificate|"; /* no lease's: those begin with a digit */
  const uint8_t *secret = server_lease_secret(server);
  uint8_t message[sizeof kind - 1 + DIGEST_SIZE], mac[EVP_MAX_MD_SIZE];
  if (!secret)
    return false;

  memcpy(message, kind, sizeof kind - 1);
  memcpy(message + sizeof kind - 1, certificate->bytes, DIGEST_SIZE);
  ALWAYS(HMAC(EVP_sha256(), secret, SERVER_SECRET_SIZE, message, sizeof message, mac, NULL) != NULL);
  for (size_t i = 0; i < (TOKEN_AGENT_SIZE - 1) / 2; i++)
    snprintf(ret_agent + 2 * i, 3, "%02x", mac[i]);
  return true;
}

bool tokens_secret(struct db *db, uint8_t ret_secret[SERVER_SECRET_SIZE], struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  uint8_t random[SERVER_SECRET_SIZE];
  ALWAYS(RAND_bytes(random, sizeof random) == 1);
  bind_bytes(&parameters, "secret", random, sizeof random);
  bool ok = db_run(db, &sql_identities_secret_make, &parameters, NULL, error) &&
            db_run(db, &sql_identities_secret, NULL, &rows, error);
  OPENSSL_cleanse(random, sizeof random);
  if (!ok)
    return false;

  size_t size;
  cleanup_free uint8_t *secret = db_get_bytes(rows, 0, "secret", &size);
  ALWAYS(size == SERVER_SECRET_SIZE);
  memcpy(ret_secret, secret, size);
  OPENSSL_cleanse(secret, size);
  return true;
}

/* Lets the event thread go on with a request whose token is known now. */
static void authorised(struct request_private *request, struct auth_token *token) {
  if (request->request.is_by_certificate &&
      !tokens_agent_of_certificate(request->request.server, &request->token, token->agent)) {
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "", "the server is starting; try again");
    return;
  }
  if (token->replaces)
    auth_note_use(request->request.server->auth, token->id);
  request->request.roles = token->roles;
  request->auth_expires_ms = token->expires_ms;
  request->request.token_id = token->id;
  memcpy(request->request.token_agent, token->agent, sizeof token->agent);
  memcpy(request->request.token_name, token->name, sizeof token->name);
  request->state = REQUEST_AUTHORISED;
  atomic_fetch_sub(&request->request.server->n_suspended, 1);
  MHD_resume_connection(request->connection->mhd);
}

/* The token of the digest; NULL: nobody's. */
static struct auth_token *token_of(struct auth_token *tokens, size_t n, const struct digest *digest) {
  for (size_t i = 0; i < n; i++)
    if (digest_equal(&tokens[i].digest, digest))
      return &tokens[i];
  return NULL;
}

void tokens_answer_unknown(struct request_private *request, bool is_expired) {
  struct error why;
  const char *name = request->request.is_by_certificate ? request->connection->certificate->name : NULL;
  if (name)
    error_set(
        &why,
        "no live token stands for the client certificate of \"%s\"; an admin makes one with \"wavetune token make "
        "NAME --role agent --certificate '%s'\"",
        name, name);
  else
    error_set(&why, "%s", is_expired ? TOKEN_EXPIRED_TEXT : "the token is unknown or revoked");
  traffic_note_refusal(is_expired ? TRAFFIC_REFUSED_EXPIRED : TRAFFIC_REFUSED_UNKNOWN);
  client_note_refused(&request->request, why.message);
  request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "", "%s", why.message);
}

/* Asks again when another answer came meanwhile; that ends, because whoever had that one got ahead. */
static bool tokens_ask(struct worker *worker, const struct digest *digests, size_t n, struct auth_token *tokens,
                       size_t *ret_found, struct digest *expired, size_t *ret_expired, struct error *error) {
  uint64_t since;
  do {
    cleanup_rows struct db_rows *rows = NULL;
    since = auth_answers(worker->server->auth);
    if (!tokens_find(worker->db, digests, n, &rows, error))
      return false;
    *ret_found = *ret_expired = 0;
    for (int row = 0; row < db_count(rows); row++) {
      if (db_get_bool(rows, row, "is_expired"))
        expired[(*ret_expired)++] = db_get_digest(rows, row, "digest");
      else
        *ret_found += token_read(rows, row, &tokens[*ret_found]);
    }
  } while (!auth_add(worker->server->auth, tokens, *ret_found, since));
  return true;
}

void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n) {
  struct digest digests[ROUTE_BATCH_MAX], expired[ROUTE_BATCH_MAX];
  struct auth_token tokens[ROUTE_BATCH_MAX];
  struct error error;
  size_t n_found, n_expired;
  for (size_t i = 0; i < n; i++)
    digests[i] = requests[i]->token;
  bool is_answered = tokens_ask(worker, digests, n, tokens, &n_found, expired, &n_expired, &error);
  for (size_t i = 0; i < n; i++) {
    log_set_request(requests[i]->request.id);
    struct auth_token *token = is_answered ? token_of(tokens, n_found, &digests[i]) : NULL;
    if (!is_answered) {
      log_debug("tokens: %s", error.message); /* nobody in particular asks: not where the database is */
      request_problem(&requests[i]->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                      "the token cannot be checked while the database is away; try again");
    } else if (token) {
      authorised(requests[i], token);
    } else {
      bool is_expired = false;
      for (size_t k = 0; k < n_expired && !is_expired; k++)
        is_expired = digest_equal(&expired[k], &digests[i]);
      auth_add_nobody(worker->server->auth, &digests[i], is_expired);
      tokens_answer_unknown(requests[i], is_expired);
    }
  }
  log_set_request(NULL);
}

bool tokens_refresh(struct worker *worker, struct error *error) {
  uint64_t since;
  bool is_newest;
  do {
    cleanup_rows struct db_rows *rows = NULL;
    since = auth_answers(worker->server->auth);
    if (!tokens_live(worker->db, &rows, error))
      return false;
    cleanup_free struct auth_token *tokens = xcalloc((size_t)db_count(rows), sizeof *tokens);
    size_t n = tokens_read(rows, tokens);
    is_newest = auth_replace(worker->server->auth, tokens, n, since);
  } while (!is_newest); /* as above */
  return true;
}

void tokens_housekeep(struct worker *worker) {
  static _Thread_local int64_t next_ms;
  struct error error;
  int64_t now_ms = clock_monotonic_ms();
  if (now_ms < next_ms)
    return;
  next_ms = now_ms + REFRESH_EVERY_MS;
  int64_t used[AUTH_USED_MAX];
  size_t n_used = auth_take_used(worker->server->auth, used);
  bool is_settled = !n_used || tokens_settle_used(worker->db, used, n_used, &error);
  for (size_t i = 0; i < n_used && !is_settled; i++)
    auth_note_use(worker->server->auth, used[i]);
  if (!is_settled || !tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}
