/* Tokens between the database and the table in memory. Runs on database workers and on the housekeeper. */
#include "server/http/tokens.h"

#include "common/log.h"
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

/* Lets the event thread go on with a request whose token is known now. */
static void authorised(struct request_private *request, const struct auth_token *token) {
  request->request.role = token->role;
  memcpy(request->request.token_name, token->name, sizeof token->name);
  request->state = REQUEST_AUTHORISED;
  atomic_fetch_sub(&request->request.server->n_suspended, 1);
  MHD_resume_connection(request->connection->mhd);
}

void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n) {
  struct digest digests[ROUTE_BATCH_MAX];
  struct error error;
  cleanup_rows struct db_rows *rows = NULL;
  for (size_t i = 0; i < n; i++)
    digests[i] = requests[i]->token;
  if (!tokens_find(worker->db, digests, n, &rows, &error)) {
    for (size_t i = 0; i < n; i++)
      request_unavailable(&requests[i]->request, &error);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    struct auth_token token;
    int row = 0;
    while (row < db_count(rows) && !(token_read(rows, row, &token) && digest_equal(&token.digest, &digests[i])))
      row++;
    if (row < db_count(rows)) {
      auth_add(worker->server->auth, &token);
      authorised(requests[i], &token);
    } else {
      auth_add_nobody(worker->server->auth, &digests[i]);
      request_problem(&requests[i]->request, MHD_HTTP_UNAUTHORIZED, "", "the token is unknown or revoked");
    }
  }
}

bool tokens_refresh(struct worker *worker, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!tokens_live(worker->db, &rows, error))
    return false;
  size_t n = 0;
  cleanup_free struct auth_token *tokens = xcalloc((size_t)db_count(rows), sizeof *tokens);
  for (int row = 0; row < db_count(rows); row++)
    n += token_read(rows, row, &tokens[n]);
  auth_replace(worker->server->auth, tokens, n);
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
