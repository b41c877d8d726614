/* Finding the token of a request. Memory and threads: credentials.h. */
#include "server/http/credentials.h"

#include <stdatomic.h>
#include <strings.h>

#include "common/base/log.h"
#include "server/http/client.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/sign_in.h"

static void connection_set_token(struct connection *connection, const struct auth_token *token) {
  if (token->replaces)
    auth_note_use(connection->http->auth, token->id);
  connection->token = *token;
}

/* Sets the connection's token: it stays when the header is the same as before, else it is searched
 * for in the table. Without a header the answer is AUTH_KNOWN and the role TOKEN_ANYONE. */
static enum auth_answer authorise(struct connection *connection, struct digest *ret_digest) {
  struct auth *auth = connection->http->auth;
  uint64_t generation = auth_generation(auth);
  const char *authorization = connection->headers[HEADER_AUTHORIZATION];
  size_t size = authorization ? strlen(authorization) : 0;
  if (connection->auth_generation == generation && connection->authorization_size == size &&
      !auth_has_expired(connection->token.expires_ms) &&
      memcmp(connection->authorization, authorization ? authorization : "", size) == 0)
    return AUTH_KNOWN;

  struct auth_token token = {.roles = TOKEN_ANYONE};
  if (authorization) {
    const char *bearer = header_bearer(authorization);
    if (!bearer)
      return AUTH_UNKNOWN;
    *ret_digest = digest_of(bearer, strlen(bearer));
    enum auth_answer answer = auth_find(auth, ret_digest, &token);
    if (answer != AUTH_KNOWN)
      return answer;
  }

  bool fits = size < sizeof connection->authorization;
  connection_set_token(connection, &token);
  connection->authorization_size = size;
  connection->auth_generation = fits ? generation : 0;
  if (size && fits)
    memcpy(connection->authorization, authorization, size);
  return AUTH_KNOWN;
}

void credentials_read(struct connection *connection, struct credentials *ret) {
  static atomic_bool is_warned;
  const char *authorization = connection->headers[HEADER_AUTHORIZATION];
  const char *protocol = connection->headers[HEADER_FORWARDED_PROTO];

  *ret = (struct credentials){0};
  if (connection->is_proxy && authorization && protocol && strcasecmp(protocol, "http") == 0 &&
      !atomic_exchange(&is_warned, true))
    log_warning("http: a client sent its token to the trusted proxy over http:// "
                "(X-Forwarded-Proto): let the proxy accept only https://");

  if (!client_certificate(connection, &ret->certificate, &ret->refusal)) {
    ret->answer = AUTH_UNKNOWN;
    return;
  }

  ret->is_by_proxy = !authorization && sign_in_is_stated(connection);
  if (!ret->is_by_proxy && (!ret->certificate || authorization)) {
    ret->answer = authorise(connection, &ret->digest);
    return;
  }

  /* The token is not kept: the next request may be from another client of the same proxy. */
  struct auth_token token;
  connection->auth_generation = 0;
  if (ret->is_by_proxy) {
    bool is_known = sign_in_find(connection, &token, &ret->refusal);
    ret->answer = is_known ? AUTH_KNOWN : AUTH_UNKNOWN;
    if (is_known)
      connection_set_token(connection, &token);
    return;
  }

  ret->digest = ret->certificate->digest;
  ret->answer = auth_find(connection->http->auth, &ret->digest, &token);
  if (ret->answer == AUTH_KNOWN &&
      !tokens_agent_of_certificate(connection->server, &ret->digest, token.agent))
    ret->answer = AUTH_LOOK_UP; /* the worker answers that the server is starting */

  if (ret->answer == AUTH_KNOWN)
    connection_set_token(connection, &token);
}
