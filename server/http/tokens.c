/* Tokens between the database and the table in memory. Runs on database workers and on the
 * housekeeper. */
#include "server/http/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/housekeep.h"
#include "server/http/client.h"
#include "server/http/response.h"
#include "server/http/router.h"
#include "server/http/tokens.sql.h"
#include "server/http/traffic.h"
#include "server/server_private.h"

/* A row of a statement that reads tokens. */
struct token_row {
  int64_t id, replaces, expires_ms;
  char *name, *role, *agent;
  struct digest digest;
  bool is_expired;
};
static const struct field token_fields[] = {
    {"id", FIELD_ID, offsetof(struct token_row, id)},
    {"name", FIELD_TEXT, offsetof(struct token_row, name)},
    {"role", FIELD_TEXT, offsetof(struct token_row, role)},
    {"digest", FIELD_DIGEST, offsetof(struct token_row, digest)},
    {"agent", FIELD_TEXT, offsetof(struct token_row, agent)},
    {"replaces", FIELD_ID, offsetof(struct token_row, replaces)},
    {"expires_ms", FIELD_INTEGER, offsetof(struct token_row, expires_ms)},
    {"is_expired", FIELD_BOOL, offsetof(struct token_row, is_expired)},
};
static const struct record token_record = RECORD(NULL, struct token_row, token_fields);

/* Leaves out tokens with a role that a newer server has made. `ret` has room for all rows; returns
 * how many were read. */
static size_t tokens_read(const struct db_rows *rows, struct auth_token *ret) {
  size_t n_rows, n = 0;
  struct token_row *all = db_read_all(rows, &token_record, &n_rows);
  for (size_t i = 0; i < n_rows; i++) {
    const struct token_row *row = &all[i];
    struct error unknown;
    ret[n] = (struct auth_token){.digest = row->digest,
                                 .id = row->id,
                                 .replaces = row->replaces == FIELD_NONE ? 0 : row->replaces,
                                 .expires_ms = row->expires_ms == FIELD_NONE ? 0 : row->expires_ms,
                                 .is_expired = row->is_expired};
    snprintf(ret[n].name, sizeof ret[n].name, "%s", row->name);
    snprintf(ret[n].agent, sizeof ret[n].agent, "%s", row->agent ? row->agent : "");
    n += roles_parse(row->role, &ret[n].roles, &unknown);
  }
  db_records_free(&token_record, all, n_rows);
  return n;
}

bool tokens_find(struct db *db, const struct digest *digests, size_t n,
                 struct auth_token *ret_tokens, size_t *ret_n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &digests[i]);
  bind_array(&parameters, "digests", &array);
  if (!db_run(db, &sql_tokens_find, &parameters, &rows, error))
    return false;
  *ret_n = tokens_read(rows, ret_tokens);
  return true;
}

bool tokens_settle_used(struct db *db, const int64_t *ids, size_t n, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, ids[i]);
  bind_array(&parameters, "ids", &array);
  return db_run(db, &sql_tokens_settle_used, &parameters, NULL, error);
}

bool token_is_live(const struct server *server, int64_t id) {
  return auth_is_live(server->auth, id);
}

bool tokens_agent_of_certificate(const struct server *server, const struct digest *certificate,
                                 char ret_agent[TOKEN_AGENT_SIZE]) {
  static const char kind[] = "certificate|"; /* no lease's: those begin with a digit */
  const uint8_t *secret = server_lease_secret(server);
  uint8_t message[sizeof kind - 1 + DIGEST_SIZE];
  if (!secret)
    return false;

  memcpy(message, kind, sizeof kind - 1);
  memcpy(message + sizeof kind - 1, certificate->bytes, DIGEST_SIZE);
  struct digest mac = digest_keyed(secret, SERVER_SECRET_SIZE, message, sizeof message);
  for (size_t i = 0; i < (TOKEN_AGENT_SIZE - 1) / 2; i++)
    snprintf(ret_agent + 2 * i, 3, "%02x", mac.bytes[i]);
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
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                    "the server is starting; try again");
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

void tokens_answer_unknown(struct request_private *request, bool is_expired) {
  struct error why;
  const char *name =
      request->request.is_by_certificate ? request->connection->certificate->name : NULL;
  if (name)
    error_set(&why,
              "no live token stands for the client certificate of \"%s\"; an admin makes one with "
              "\"wavetune token make "
              "NAME --role agent --certificate '%s'\"",
              name, name);
  else
    error_set(&why, "%s", is_expired ? TOKEN_EXPIRED_TEXT : "the token is unknown or revoked");
  traffic_note_refusal(is_expired ? TRAFFIC_REFUSED_EXPIRED : TRAFFIC_REFUSED_UNKNOWN);
  client_note_refused(&request->request, why.message);
  request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "", "%s", why.message);
}

void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n) {
  struct auth *auth = worker->server->auth;
  struct digest digests[QUEUE_TOKENS_MAX];
  struct auth_token found[QUEUE_TOKENS_MAX], live[QUEUE_TOKENS_MAX];
  size_t n_found = 0, n_live;
  struct error error;
  bool is_answered;
  uint64_t since;
  for (size_t i = 0; i < n; i++)
    digests[i] = requests[i]->token;

  /* Asks again when another answer came meanwhile; that ends, because whoever had that one got
   * ahead. */
  do {
    since = auth_answers(auth);
    is_answered = tokens_find(worker->db, digests, n, found, &n_found, &error);
    n_live = 0;
    for (size_t i = 0; is_answered && i < n_found; i++)
      if (!found[i].is_expired)
        live[n_live++] = found[i];
  } while (is_answered && !auth_add(auth, live, n_live, since));

  for (size_t i = 0; i < n; i++) {
    log_set_request(requests[i]->request.id);
    struct auth_token *token = NULL;
    for (size_t k = 0; k < n_found && !token; k++)
      if (digest_equal(&found[k].digest, &digests[i]))
        token = &found[k];

    if (!is_answered) {
      log_debug("tokens: %s",
                error.message); /* nobody in particular asks: not where the database is */
      request_problem(&requests[i]->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                      "the token cannot be checked while the database is away; try again");
    } else if (token && !token->is_expired) {
      authorised(requests[i], token);
    } else {
      auth_add_nobody(auth, &digests[i], token != NULL);
      tokens_answer_unknown(requests[i], token != NULL);
    }
  }
  log_set_request(NULL);
}

bool tokens_refresh(struct worker *worker, struct error *error) {
  bool is_newest;
  do {
    cleanup_rows struct db_rows *rows = NULL;
    uint64_t since = auth_answers(worker->server->auth);
    if (!db_run(worker->db, &sql_tokens_live, NULL, &rows, error))
      return false;
    cleanup_free struct auth_token *tokens = xcalloc((size_t)db_count(rows), sizeof *tokens);
    size_t n = tokens_read(rows, tokens);
    is_newest = auth_replace(worker->server->auth, tokens, n, since);
  } while (!is_newest); /* as above */
  return true;
}

void tokens_housekeep(struct worker *worker) {
  struct auth *auth = worker->server->auth;
  struct error error;
  int64_t used[AUTH_USED_MAX];
  size_t n_used = auth_take_used(auth, used);
  bool is_settled = n_used == 0 || tokens_settle_used(worker->db, used, n_used, &error);
  for (size_t i = 0; i < n_used && !is_settled; i++)
    auth_note_use(auth, used[i]);

  if (!is_settled || !tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}
