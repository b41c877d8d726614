/* Tokens between the database and the table in memory. Runs on database workers and on the housekeeper. */
#include "server/http/tokens.h"

#include "common/base/log.h"
#include "server/core/housekeep.h"
#include "server/http/response.h"
#include "server/server_private.h"
#include "server/store/tokens.h"
#include "server/store/values.h"

#define REFRESH_EVERY_MS 2000

static bool token_read(const struct db_rows *rows, int row, struct auth_token *ret) {
  *ret = (struct auth_token){.digest = db_get_digest(rows, row, "digest")};
  snprintf(ret->name, sizeof ret->name, "%s", db_get(rows, row, "name"));
  return role_parse(db_get(rows, row, "role"), &ret->role);
}

/* Those whose role is known here; returns how many. */
static size_t tokens_read(const struct db_rows *rows, struct auth_token *tokens) {
  size_t n = 0;
  for (int row = 0; row < db_count(rows); row++)
    n += token_read(rows, row, &tokens[n]);
  return n;
}

/* Lets the event thread go on with a request whose token is known now. */
static void authorised(struct request_private *request, const struct auth_token *token) {
  request->request.role = token->role;
  memcpy(request->request.token_name, token->name, sizeof token->name);
  request->state = REQUEST_AUTHORISED;
  atomic_fetch_sub(&request->request.server->n_suspended, 1);
  MHD_resume_connection(request->connection->mhd);
}

/* The token of the digest; NULL: nobody's. */
static const struct auth_token *token_of(const struct auth_token *tokens, size_t n, const struct digest *digest) {
  for (size_t i = 0; i < n; i++)
    if (digest_equal(&tokens[i].digest, digest))
      return &tokens[i];
  return NULL;
}

/* Asks again when another answer came meanwhile; that ends, because whoever had that one got ahead. */
static bool tokens_ask(struct worker *worker, const struct digest *digests, size_t n, struct auth_token *tokens,
                       size_t *ret_found, struct error *error) {
  uint64_t since;
  do {
    cleanup_rows struct db_rows *rows = NULL;
    since = auth_answers(worker->server->auth);
    if (!tokens_find(worker->db, digests, n, &rows, error))
      return false;
    *ret_found = tokens_read(rows, tokens);
  } while (!auth_add(worker->server->auth, tokens, *ret_found, since));
  return true;
}

void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n) {
  struct digest digests[ROUTE_BATCH_MAX];
  struct auth_token tokens[ROUTE_BATCH_MAX];
  struct error error;
  size_t n_found;
  for (size_t i = 0; i < n; i++)
    digests[i] = requests[i]->token;
  bool is_answered = tokens_ask(worker, digests, n, tokens, &n_found, &error);
  for (size_t i = 0; i < n; i++) {
    const struct auth_token *token = is_answered ? token_of(tokens, n_found, &digests[i]) : NULL;
    if (!is_answered) {
      log_debug("tokens: %s", error.message); /* nobody in particular asks: not where the database is */
      request_problem(&requests[i]->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                      "the token cannot be checked while the database is away; try again");
    } else if (token) {
      authorised(requests[i], token);
    } else {
      auth_add_nobody(worker->server->auth, &digests[i]);
      request_problem(&requests[i]->request, MHD_HTTP_UNAUTHORIZED, "", "the token is unknown or revoked");
    }
  }
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
  if (!tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}
