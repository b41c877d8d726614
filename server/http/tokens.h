/* How the tokens in memory follow the database's: other servers and the command line make and
 * revoke them too.
 *
 * Threads: whose worker it is. */
#ifndef WAVETUNE_SERVER_HTTP_TOKENS_H
#define WAVETUNE_SERVER_HTTP_TOKENS_H

#include "server/http/auth.h"
#include "server/http/request_private.h"

#define TOKEN_EXPIRED_TEXT                                                                         \
  "the token has expired; an admin makes another with \"wavetune token make\""

/* Requests of tokens that this process never saw: lets them go on or answers 401. */
void tokens_look_up(struct worker *worker, struct request_private *requests[], size_t n);

/* Answers 401: what the request shows is no live token's. */
void tokens_answer_unknown(struct request_private *request, bool is_expired);

/* The agent whose identity a certificate is, by tls_name_digest: the same one at every server of a
 * database, and not to be guessed, so that no other agent can take the id first. False: the server
 * has not read its secret yet. */
must_check bool tokens_agent_of_certificate(const struct server *server,
                                            const struct digest *certificate,
                                            char ret_agent[TOKEN_AGENT_SIZE]);

/* The secret of this database, with which ids are made that cannot be guessed: made when there is
 * none, the same for all servers. */
must_check bool tokens_secret(struct db *db, uint8_t ret_secret[SERVER_SECRET_SIZE],
                              struct error *error);

/* The tokens of these digests that are not revoked, also those that are past their time
 * (is_expired); `ret_tokens` has room for `n`. Not those with a role that only a newer server
 * knows. */
must_check bool tokens_find(struct db *db, const struct digest *digests, size_t n,
                            struct auth_token *ret_tokens, size_t *ret_n, struct error *error);

/* These tokens, which replace others, have been used: the others end within a minute. */
must_check bool tokens_settle_used(struct db *db, const int64_t *ids, size_t n,
                                   struct error *error);

/* Whether the token, as the table in memory has it, is neither revoked nor past its time. */
must_check bool token_is_live(const struct server *server, int64_t id);

/* Replaces the table in memory by the database's. */
must_check bool tokens_refresh(struct worker *worker, struct error *error);

#endif
