/* The table of tokens under a reader-writer lock, a negative cache, a limit of look-ups, and the
 * statements that fill the table. */
#include "server/http/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/client.h"
#include "server/http/http_private.h"
#include "server/http/request_private.h"
#include "server/http/tokens.sql.h"
#include "server/server.h"

#define UNKNOWN_MAX 1024
#define UNKNOWN_MS 10000
#define LOOKUPS_PER_SECOND 100
#define LOOKUPS_BURST 200

struct auth {
  pthread_rwlock_t lock;
  atomic_uint_fast64_t generation, answers;
  bool is_read; /* the whole table was, once */
  size_t n, capacity;
  struct auth_token *tokens;    /* sorted by digest */
  pthread_mutex_t unknown_lock; /* of the members below */
  struct unknown_token {
    struct digest digest;
    int64_t until_ms;
    bool is_expired;
  } unknown[UNKNOWN_MAX];
  struct session {
    struct digest token, identity;
    int64_t expires_ms; /* 0: the slot is free */
  } sessions[AUTH_SESSIONS];
  uint64_t n_forgotten; /* how often all sessions were */
  struct rate lookups;
  size_t n_used;
  int64_t used[AUTH_USED_MAX];
};

bool auth_has_expired(int64_t expires_ms) {
  struct timespec now;
  if (expires_ms == 0)
    return false;
  ALWAYS(clock_gettime(CLOCK_REALTIME, &now) == 0);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 >= expires_ms;
}

struct auth *auth_new(void) {
  struct auth *auth = xcalloc(1, sizeof *auth);
  pthread_rwlock_init(&auth->lock, NULL);
  pthread_mutex_init(&auth->unknown_lock, NULL);
  atomic_store(&auth->generation, 1);

  return auth;
}

struct auth *server_auth(const struct server *server) { return server_http(server)->auth; }

void auth_free(struct auth *auth) {
  if (!auth)
    return;
  pthread_rwlock_destroy(&auth->lock);
  pthread_mutex_destroy(&auth->unknown_lock);
  free(auth->tokens);
  free(auth);
}

static int token_compare(const void *a, const void *b) {
  return memcmp(((const struct auth_token *)a)->digest.bytes,
                ((const struct auth_token *)b)->digest.bytes, DIGEST_SIZE);
}

/* Not in constant time: what is compared is a hash, so timing reveals nothing about the token. */
static const struct auth_token *token_find(const struct auth *auth, const struct digest *digest) {
  const struct auth_token wanted = {.digest = *digest};
  return auth->n ? bsearch(&wanted, auth->tokens, auth->n, sizeof wanted, token_compare) : NULL;
}

/* Two digests may share a slot: the later one replaces the other. */
static struct unknown_token *unknown_slot(struct auth *auth, const struct digest *digest) {
  return &auth->unknown[(digest->bytes[0] | (size_t)digest->bytes[1] << 8) % UNKNOWN_MAX];
}

static struct session *session_slot(struct auth *auth, const struct digest *digest) {
  return &auth->sessions[(digest->bytes[0] | (size_t)digest->bytes[1] << 8) % AUTH_SESSIONS];
}

bool auth_find_session(struct auth *auth, const struct digest *token, struct digest *ret_identity,
                       int64_t *ret_expires_ms) {
  pthread_mutex_lock(&auth->unknown_lock);
  struct session session = *session_slot(auth, token);
  pthread_mutex_unlock(&auth->unknown_lock);
  *ret_identity = session.identity;
  *ret_expires_ms = session.expires_ms;
  return session.expires_ms && digest_equal(&session.token, token);
}

/* The token of the identity of a provider's token, with the end of the latter. */
static bool session_token(struct auth *auth, const struct digest *digest,
                          struct auth_token *ret_token) {
  struct digest identity;
  int64_t expires_ms;
  if (!auth_find_session(auth, digest, &identity, &expires_ms))
    return false;

  pthread_rwlock_rdlock(&auth->lock);
  const struct auth_token *token = token_find(auth, &identity);
  if (token)
    *ret_token = *token;
  pthread_rwlock_unlock(&auth->lock);
  ret_token->expires_ms = expires_ms;
  return token != NULL;
}

uint64_t auth_sessions_forgotten(struct auth *auth) {
  HOLD(&auth->unknown_lock);
  return auth->n_forgotten;
}

void auth_add_session(struct auth *auth, const struct digest *token, const struct digest *identity,
                      int64_t expires_ms, uint64_t since) {
  HOLD(&auth->unknown_lock);
  if (auth->n_forgotten == since)
    *session_slot(auth, token) = (struct session){*token, *identity, expires_ms};
}

/* Connections keep the token of their last request, so they need the new generation. */
void auth_forget_sessions(struct auth *auth) {
  pthread_mutex_lock(&auth->unknown_lock);
  memset(auth->sessions, 0, sizeof auth->sessions);
  auth->n_forgotten++;
  pthread_mutex_unlock(&auth->unknown_lock);
  atomic_fetch_add(&auth->generation, 1);
}

enum auth_answer auth_find(struct auth *auth, const struct digest *digest,
                           struct auth_token *ret_token) {
  pthread_rwlock_rdlock(&auth->lock);
  const struct auth_token *token = token_find(auth, digest);
  if (token)
    *ret_token = *token;
  pthread_rwlock_unlock(&auth->lock);
  if (token || session_token(auth, digest, ret_token))
    return auth_has_expired(ret_token->expires_ms) ? AUTH_EXPIRED : AUTH_KNOWN;

  int64_t now_ms = clock_monotonic_ms();
  HOLD(&auth->unknown_lock);
  const struct unknown_token *unknown = unknown_slot(auth, digest);
  if (unknown->until_ms > now_ms && digest_equal(&unknown->digest, digest))
    return unknown->is_expired ? AUTH_EXPIRED : AUTH_UNKNOWN;
  return rate_take(&auth->lookups, now_ms, LOOKUPS_PER_SECOND, LOOKUPS_BURST) ? AUTH_LOOK_UP
                                                                              : AUTH_BUSY;
}

bool auth_add(struct auth *auth, const struct auth_token *tokens, size_t n, uint64_t since) {
  pthread_rwlock_wrlock(&auth->lock);
  bool is_newest = auth_answers(auth) == since;
  for (size_t i = 0; is_newest && i < n; i++) {
    struct auth_token *known = (struct auth_token *)token_find(auth, &tokens[i].digest);
    if (known) { /* an identity's ends with the last of its tokens */
      if (known->expires_ms && known->expires_ms < tokens[i].expires_ms)
        known->expires_ms = tokens[i].expires_ms;
      continue;
    }
    GROW(auth->tokens, auth->n, auth->capacity);
    auth->tokens[auth->n++] = tokens[i];
    qsort(auth->tokens, auth->n, sizeof *auth->tokens, token_compare);
    atomic_fetch_add(&auth->generation, 1);
    atomic_fetch_add(&auth->answers, 1);
  }

  pthread_rwlock_unlock(&auth->lock);
  return is_newest;
}

void auth_add_unknown(struct auth *auth, const struct digest *digest, bool is_expired) {
  HOLD(&auth->unknown_lock);
  *unknown_slot(auth, digest) =
      (struct unknown_token){*digest, clock_monotonic_ms() + UNKNOWN_MS, is_expired};
}

bool auth_replace(struct auth *auth, const struct auth_token *tokens, size_t n, uint64_t since) {
  struct auth_token *sorted = xmemdup(tokens, n * sizeof *tokens);
  if (n)
    qsort(sorted, n, sizeof *sorted, token_compare);

  pthread_rwlock_wrlock(&auth->lock);
  bool is_newest = auth_answers(auth) == since, is_same = auth->n == n;
  for (size_t i = 0; is_same && i < n; i++) {
    const struct auth_token *a = &auth->tokens[i], *b = &sorted[i];
    is_same = token_compare(a, b) == 0 && a->id == b->id && a->roles == b->roles &&
              a->expires_ms == b->expires_ms && a->replaces == b->replaces &&
              strcmp(a->name, b->name) == 0;
  }

  if (is_newest && !is_same) {
    struct auth_token *old = auth->tokens;
    auth->tokens = sorted;
    sorted = old;
    auth->n = auth->capacity = n;
    atomic_fetch_add(&auth->generation, 1);
  }

  if (is_newest) {
    auth->is_read = true;
    atomic_fetch_add(&auth->answers, 1);
  }
  pthread_rwlock_unlock(&auth->lock);
  free(sorted);
  return is_newest;
}

bool auth_is_live(struct auth *auth, int64_t id) {
  bool is_live = false;
  pthread_rwlock_rdlock(&auth->lock);
  for (size_t i = 0; i < auth->n && !is_live; i++)
    is_live = auth->tokens[i].id == id && !auth_has_expired(auth->tokens[i].expires_ms);
  pthread_rwlock_unlock(&auth->lock);
  return is_live;
}

enum auth_answer auth_find_name(struct auth *auth, const char *name, struct auth_token *ret_token) {
  bool is_found = false;
  pthread_rwlock_rdlock(&auth->lock);
  bool is_read = auth->is_read;
  for (size_t i = 0; i < auth->n && !is_found; i++) {
    const struct auth_token *token = &auth->tokens[i];
    is_found = strcmp(token->name, name) == 0 && !auth_has_expired(token->expires_ms);
    if (is_found)
      *ret_token = *token;
  }
  pthread_rwlock_unlock(&auth->lock);
  return is_found ? AUTH_KNOWN : is_read ? AUTH_UNKNOWN : AUTH_LOOK_UP;
}

void auth_note_use(struct auth *auth, int64_t id) {
  bool is_noted = false;
  HOLD(&auth->unknown_lock);
  for (size_t i = 0; i < auth->n_used && !is_noted; i++)
    is_noted = auth->used[i] == id;
  if (!is_noted && auth->n_used < AUTH_USED_MAX)
    auth->used[auth->n_used++] = id;
}

size_t auth_take_used(struct auth *auth, int64_t ret_ids[AUTH_USED_MAX]) {
  HOLD(&auth->unknown_lock);
  size_t n = auth->n_used;
  memcpy(ret_ids, auth->used, n * sizeof *ret_ids);
  auth->n_used = 0;
  return n;
}

uint64_t auth_answers(struct auth *auth) {
  return atomic_load_explicit(&auth->answers, memory_order_acquire);
}
uint64_t auth_generation(struct auth *auth) {
  return atomic_load_explicit(&auth->generation, memory_order_acquire);
}

bool token_is_live(const struct server *server, int64_t id) {
  return auth_is_live(server_http(server)->auth, id);
}

/* Leaves out tokens with a role that only a newer server knows. `ret` has room for all rows;
 * returns how many were read. */
static size_t tokens_read(const struct db_rows *rows, struct auth_token *ret) {
  size_t n = 0;
  for (int row = 0; row < db_count(rows); row++) {
    struct error unknown;
    ret[n] = (struct auth_token){.digest = db_get_digest(rows, row, "digest"),
                                 .id = db_get_integer(rows, row, "id"),
                                 .replaces = db_get_integer(rows, row, "replaces"),
                                 .expires_ms = db_get_integer(rows, row, "expires_ms"),
                                 .is_expired = db_get_bool(rows, row, "is_expired")};

    snprintf(ret[n].name, sizeof ret[n].name, "%s", db_get(rows, row, "name"));
    snprintf(ret[n].agent, sizeof ret[n].agent, "%s", db_get(rows, row, "agent"));
    n += roles_parse(db_get(rows, row, "role"), &ret[n].roles, &unknown);
  }

  return n;
}

bool tokens_find(struct db *db, const struct digest *digests, size_t n,
                 struct auth_token *ret_tokens, size_t *ret_n, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_tokens_find, error, BIND_ALL("digests", digests, n));
  if (!rows)
    return false;
  *ret_n = tokens_read(rows, ret_tokens);
  return true;
}

bool tokens_settle_used(struct db *db, const int64_t *ids, size_t n, struct error *error) {
  return db_execute(db, &sql_tokens_settle_used, error, BIND_ALL("ids", ids, n));
}

bool tokens_agent_of_certificate(const struct server *server, const struct digest *certificate,
                                 char ret_agent[TOKEN_AGENT_SIZE]) {
  static const char kind[] = "certificate|"; /* the text of a lease's id begins with a digit */
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
  uint8_t random[SERVER_SECRET_SIZE];

  ALWAYS(RAND_bytes(random, sizeof random) == 1);
  bool ok = db_execute(db, &sql_identities_secret_make, error,
                       parameter_bytes("secret", random, sizeof random)) &&
            (rows = db_query(db, &sql_identities_secret, error));
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

void tokens_answer_unknown(struct request_private *request, bool is_expired) {
  struct error why;
  const char *name =
      request->request.is_by_certificate ? request->connection->certificate->name : NULL;

  if (name)
    error_set(&why,
              "no live token has the client certificate of \"%s\"; an admin makes one with "
              "\"wavetune token make NAME --role agent --certificate '%s'\"",
              name, name);
  else
    error_set(&why, "%s",
              is_expired ? "the token has expired; an admin makes another with \"wavetune token "
                           "make\""
                         : "the token is unknown or revoked");

  metrics_note_refusal(is_expired ? REFUSED_EXPIRED : REFUSED_UNKNOWN);
  client_note_refused(&request->request, why.message);
  request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "%s", why.message);
}

void tokens_look_up_again(struct request *request) {
  struct request_private *private_ = request_private_of(request);
  enum queue_answer answer = queue_add(server_http(request->server)->queue, private_, true);
  if (answer == QUEUE_ADDED)
    return;

  counter_add(COUNTER_queue_shed, answer == QUEUE_FULL);
  request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "%s",
                  answer == QUEUE_FULL ? "too many requests wait for the database; try again"
                                       : "the server is stopping; try again");
}

/* Whether the digest of the request's token is to be looked up: of a provider's token that of its
 * identity. False: the request is answered, or waits. */
static bool is_identified(struct worker *worker, struct request_private *request) {
  const char *authorization = request->connection->headers[HEADER_AUTHORIZATION],
             *text = authorization ? header_bearer(authorization) : NULL;
  struct error error;
  struct digest identity;
  if (!text || !strchr(text, '.')) /* tokens of this server have no dots */
    return true;

  /* Another request has brought the same token. */
  if (auth_find_session(server_http(worker->server)->auth, &request->token, &identity,
                        &request->session_expires_ms)) {
    request->token = identity;
    return true;
  }

  uint64_t since = auth_sessions_forgotten(server_http(worker->server)->auth);
  request->session_expires_ms = 0;
  switch (oidc_identify(worker, &request->request, text, &identity, &request->session_expires_ms,
                        &error)) {
  case OIDC_IDENTIFIED:
    auth_add_session(server_http(worker->server)->auth, &request->token, &identity,
                     request->session_expires_ms, since);
    request->token = identity;
    return true;
  case OIDC_REFUSED:
    if (error.kind == ERROR_UNAUTHENTICATED || error.kind == ERROR_FORBIDDEN) {
      metrics_note_refusal(REFUSED_PROVIDER);
      client_note_refused(&request->request, error.message);
      if (error.kind == ERROR_UNAUTHENTICATED)
        error_prefix(&error, "the identity provider's token is refused: ");
    }
    answer_failure(&request->request, &error);
    return false;
  case OIDC_WAITS:
    return false;
  default:
    return true;
  }
}

void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n) {
  struct server *server = worker->server;
  struct digest digests[QUEUE_TOKENS_MAX];
  struct auth_token found[QUEUE_TOKENS_MAX], live[QUEUE_TOKENS_MAX];
  size_t n_found = 0, n_live;
  struct error error;
  bool is_answered;
  uint64_t since;

  size_t n_identified = 0;
  for (size_t i = 0; i < n; i++) {
    struct request_private *request = requests[i];
    log_set_request(request->request.id);
    if (is_identified(worker, request))
      requests[n_identified++] = request;
  }
  log_set_request(NULL);
  n = n_identified;
  for (size_t i = 0; i < n; i++)
    digests[i] = requests[i]->token;

  /* Queries again when another thread added an answer meanwhile: then that thread made progress. */
  do {
    since = auth_answers(server_http(server)->auth);
    is_answered = tokens_find(worker->db, digests, n, found, &n_found, &error);
    n_live = 0;
    for (size_t i = 0; is_answered && i < n_found; i++)
      if (!found[i].is_expired)
        live[n_live++] = found[i];
  } while (is_answered && !auth_add(server_http(server)->auth, live, n_live, since));

  for (size_t i = 0; i < n; i++) {
    struct request *request = &requests[i]->request;
    struct auth_token *token = NULL;
    log_set_request(request->id);
    for (size_t k = 0; k < n_found && !token; k++)
      if (digest_equal(&found[k].digest, &digests[i]))
        token = &found[k];

    if (!is_answered) { /* the sentence may have the database's address, which clients do not get */
      log_debug("tokens: %s", error.message);
      request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                      "the token cannot be checked while the database is away; try again");
    } else if (!token || token->is_expired) {
      auth_add_unknown(server_http(server)->auth, &digests[i], token != NULL);
      tokens_answer_unknown(requests[i], token != NULL);
    } else if (request->is_by_certificate &&
               !tokens_agent_of_certificate(server, &digests[i], token->agent)) {
      request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is starting; try again");
    } else {
      if (token->replaces)
        auth_note_use(server_http(server)->auth, token->id);
      struct auth_token given = *token; /* requests may have the same one */
      if (requests[i]->session_expires_ms)
        given.expires_ms = requests[i]->session_expires_ms;
      request_set_token(requests[i], &given);
      requests[i]->state = REQUEST_AUTHORISED;
      request_resume(requests[i]);
    }
  }

  log_set_request(NULL);
}

bool tokens_refresh(struct worker *worker, struct error *error) {
  bool is_newest;
  do {
    uint64_t since = auth_answers(server_http(worker->server)->auth);
    cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_tokens_live, error);
    if (!rows)
      return false;
    cleanup_free struct auth_token *tokens = xcalloc((size_t)db_count(rows), sizeof *tokens);
    size_t n = tokens_read(rows, tokens);
    is_newest = auth_replace(server_http(worker->server)->auth, tokens, n, since);
  } while (!is_newest); /* as in tokens_look_up */

  return true;
}

void tokens_housekeep(struct worker *worker) {
  struct auth *auth = server_http(worker->server)->auth;
  struct error error;
  int64_t used[AUTH_USED_MAX];
  size_t n_used = auth_take_used(auth, used);
  bool is_settled = n_used == 0 || tokens_settle_used(worker->db, used, n_used, &error);
  for (size_t i = 0; i < n_used && !is_settled; i++)
    auth_note_use(auth, used[i]);

  if (!is_settled || !tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}
