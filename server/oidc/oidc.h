/* Tokens of identity providers (OpenID Connect), such as those that CI systems give their jobs, in
 * place of a secret (serve --oidc).
 *
 * A valid token is of an identity, which has a row in the table of tokens: its name, and the roles
 * and channels of the rule. The row expires with the last of its tokens; the server keeps which
 * tokens it verified in memory (http/tokens.h). oidc_identify, which http/ calls, is declared
 * there.
 *
 * Memory: a struct oidc owns its issuers. Threads: any; oidc_free: one, when no other uses it. */
#ifndef WAVETUNE_SERVER_OIDC_OIDC_H
#define WAVETUNE_SERVER_OIDC_OIDC_H

#include "common/base/error.h"

struct oidc;
struct auth;
/* Reads the file (rules.h) and starts to fetch keys. The sessions of `auth`, which must outlive it,
 * are forgotten when an issuer withdraws a key. */
must_check bool oidc_new(const char *path, struct auth *auth, struct oidc **ret_oidc,
                         struct error *error);
void oidc_free(struct oidc *oidc);

#endif
