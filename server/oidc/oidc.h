/* Tokens of identity providers (OpenID Connect), such as those that CI systems give their jobs, in
 * place of a secret (serve --oidc).
 *
 * A valid token is of an identity, which has a row in the table of tokens: its name, and the roles
 * and channels of the rule. The row expires with the last of its tokens; the server keeps which
 * tokens it verified in memory (http/tokens.h). oidc_identify, which http/ calls, is declared
 * there.
 *
 * Memory: a struct oidc owns its issuers. Threads: any; oidc_read: the one that starts the server.
 */
#ifndef WAVETUNE_SERVER_OIDC_OIDC_H
#define WAVETUNE_SERVER_OIDC_OIDC_H

#include "common/base/error.h"

struct oidc;
struct auth;
struct server;
/* The sessions of `auth`, which must outlive it, are forgotten when an issuer withdraws a key. */
must_check struct oidc *oidc_new(struct auth *auth);
void oidc_free(struct oidc *oidc);
struct oidc *server_oidc(const struct server *server);

/* Reads the file (rules.h) in place of the one before, and starts to fetch keys; NULL: none.
 * Requests that wait for keys of the old one are looked up again. */
must_check bool oidc_read(struct oidc *oidc, const char *path, struct error *error);

#endif
