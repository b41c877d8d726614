/* The tokens in memory, and their updates from the database, which other servers and the command
 * line change too.
 *
 * A struct auth maps the SHA-256 of each live token to its roles, and has a negative cache of other
 * digests. The housekeeper replaces the table when the database's tokens changed; a worker adds a
 * token that another server made. Every change makes a new generation, so that a keep-alive
 * connection compares only that. Memory: a struct auth owns its entries. Threads: a struct auth
 * any; functions with a db or a worker, its thread. */
#ifndef WAVETUNE_SERVER_HTTP_TOKENS_H
#define WAVETUNE_SERVER_HTTP_TOKENS_H

#include "common/base/digest.h"
#include "server/db/db.h"
#include "server/http/route.h"
#include "server/server.h"

#define TOKEN_AGENT_SIZE 33

struct auth_token {
  struct digest digest;
  int64_t id;       /* in the database */
  int64_t replaces; /* id of the token that ends after this one was used; 0: none */
  unsigned roles;
  int64_t expires_ms; /* since 1970; 0: never */
  bool is_expired;    /* by the database's clock; never true in the table */
  char name[TOKEN_NAME_SIZE];
  char agent[TOKEN_AGENT_SIZE]; /* the only agent that it may act as; "": it is not bound */
};

/* By this machine's clock, because the database may be away. */
bool auth_has_expired(int64_t expires_ms);

struct auth;
must_check struct auth *auth_new(void);
void auth_free(struct auth *auth);
struct auth *server_auth(const struct server *server);

enum auth_answer {
  AUTH_KNOWN,
  AUTH_UNKNOWN, /* a recent look-up did not find it */
  AUTH_EXPIRED,
  AUTH_LOOK_UP, /* it must be looked up in the database */
  AUTH_BUSY,    /* the same, but there were too many look-ups recently */
};
enum auth_answer auth_find(struct auth *auth, const struct digest *digest,
                           struct auth_token *ret_token);

void auth_add_unknown(struct auth *auth, const struct digest *digest, bool is_expired);

/* auth_add adds tokens that a query returned to the table; auth_replace makes them the whole table.
 * `since`: auth_answers before the query. False: another answer came since then, so this one may be
 * outdated and is ignored; query again. */
must_check bool auth_add(struct auth *auth, const struct auth_token *tokens, size_t n,
                         uint64_t since);
must_check bool auth_replace(struct auth *auth, const struct auth_token *tokens, size_t n,
                             uint64_t since);
/* A token of an identity provider (server/oidc/) is that of an identity, whose digest is in the
 * table: notes that it was verified. AUTH_SESSIONS are kept; one that was dropped is verified
 * again. auth_forget_sessions drops all: keys or rules have changed. `since`:
 * auth_sessions_forgotten before the token was verified; one that was verified by what has changed
 * since then is not noted. */
#define AUTH_SESSIONS 4096
void auth_add_session(struct auth *auth, const struct digest *token, const struct digest *identity,
                      int64_t expires_ms, uint64_t since);
uint64_t auth_sessions_forgotten(struct auth *auth);
must_check bool auth_find_session(struct auth *auth, const struct digest *token,
                                  struct digest *ret_identity, int64_t *ret_expires_ms);
void auth_forget_sessions(struct auth *auth);

/* How many of the database's answers were added, including those that changed nothing. */
uint64_t auth_answers(struct auth *auth);
uint64_t auth_generation(struct auth *auth);
/* The live token of this name, or AUTH_UNKNOWN; AUTH_LOOK_UP: the table was not read yet. Linear in
 * the number of tokens. */
must_check enum auth_answer auth_find_name(struct auth *auth, const char *name,
                                           struct auth_token *ret_token);
/* Whether the token is neither revoked nor expired. Linear in the number of tokens. */
bool auth_is_live(struct auth *auth, int64_t id);

/* Notes the use of a token that replaces another one; the housekeeper then ends the other one. */
#define AUTH_USED_MAX 1024
void auth_note_use(struct auth *auth, int64_t id);
size_t auth_take_used(struct auth *auth, int64_t ret_ids[AUTH_USED_MAX]);

/* Looks up the tokens of requests that are not in the table: the requests continue, or are answered
 * 401. */
struct request;
struct request_private;
void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n);

/* Looks up the token of a request again, which a worker did not answer (OIDC_WAITS). Any thread. */
void tokens_look_up_again(struct request *request);

/* Defined by server/oidc/: what a token of an identity provider is worth. OIDC_IDENTIFIED: the
 * identity's row is in the database. OIDC_REFUSED: the answer is *error. OIDC_WAITS: the request
 * belongs to another thread, which calls tokens_look_up_again. OIDC_NOT_USED: there is no --oidc.
 */
enum oidc_answer { OIDC_IDENTIFIED, OIDC_REFUSED, OIDC_WAITS, OIDC_NOT_USED };
enum oidc_answer oidc_identify(struct worker *worker, struct request *request, const char *text,
                               struct digest *ret_identity, int64_t *ret_expires_ms,
                               struct error *error);

/* Answers 401: the request's token is not live, or no live token has its certificate. */
void tokens_answer_unknown(struct request_private *request, bool is_expired);

/* The agent id of a certificate, by tls_name_digest: the same at every server of a database, and
 * not guessable, so that no other agent can take the id first. False: the server has not read its
 * secret yet. */
must_check bool tokens_agent_of_certificate(const struct server *server,
                                            const struct digest *certificate,
                                            char ret_agent[TOKEN_AGENT_SIZE]);

/* The secret of this database, from which ids are made that cannot be guessed. It is made when
 * there is none. */
must_check bool tokens_secret(struct db *db, uint8_t ret_secret[SERVER_SECRET_SIZE],
                              struct error *error);

/* The tokens of these digests that are not revoked, expired ones included (is_expired);
 * `ret_tokens` has room for `n`. Tokens with a role that only a newer server knows are left out. */
must_check bool tokens_find(struct db *db, const struct digest *digests, size_t n,
                            struct auth_token *ret_tokens, size_t *ret_n, struct error *error);

/* Ends the tokens that these tokens replace, within a minute. */
must_check bool tokens_settle_used(struct db *db, const int64_t *ids, size_t n,
                                   struct error *error);

/* auth_is_live for the server's table. */
must_check bool token_is_live(const struct server *server, int64_t id);

/* Replaces the table in memory with the tokens of the database. */
must_check bool tokens_refresh(struct worker *worker, struct error *error);

/* Reads tokens that other servers changed. The housekeeper's. */
void tokens_housekeep(struct worker *worker);

#endif
