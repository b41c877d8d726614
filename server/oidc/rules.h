/* The file of --oidc: which identity providers' tokens are accepted, and what each may do. A JSON
 * array of issuers:
 *
 *   [{"issuer": "https://token.actions.githubusercontent.com", "name": "github",
 *     "audience": "https://tuning.example",
 *     "rules": [{"claims": {"repository_id": "1296269", "ref": "refs/heads/main"},
 *                "role": "submitter,publisher", "channels": ["nightly-*"]}]}]
 *
 * A rule holds for a token that has all of its claims: with the same text, or, where the rule's
 * text ends with "*", with one that begins so. The first that matches counts. Each names an id that
 * never changes hands, as the name of a repository can.
 *
 * Memory: issuers own their texts. Threads: pure functions; issuers do not change. */
#ifndef WAVETUNE_SERVER_OIDC_RULES_H
#define WAVETUNE_SERVER_OIDC_RULES_H

#include "common/record/record.h"
#include "server/http/route.h"

struct oidc_claim {
  char *name, *value;
};
struct oidc_rule {
  RECORD_ARRAY(struct oidc_claim, n_claims, claims);
  char *role; /* names separated by commas */
  struct texts channels;
};
struct oidc_issuer {
  char *issuer; /* the URL, as tokens have it in "iss" */
  char *name;   /* what the names of its identities begin with */
  char *audience;
  char *jwks_url;    /* NULL: as its discovery document states */
  char *ca;          /* PEM file; NULL: the system's authorities */
  int64_t refresh_s; /* how often keys are fetched */
  int64_t pause_s;   /* between two fetches at least, whatever tokens name */
  int64_t keep_s;    /* how long keys are used while the issuer does not answer */
  RECORD_ARRAY(struct oidc_rule, n_rules, rules);
};
struct oidc_issuers {
  size_t n;
  struct oidc_issuer *all;
};
#define OIDC_ISSUERS_MAX 16

/* Release `ret` after a failure too. */
must_check bool oidc_issuers_parse(const json_t *json, struct oidc_issuers *ret,
                                   struct error *error);
must_check bool oidc_issuers_read(const char *path, struct oidc_issuers *ret, struct error *error);
void oidc_issuers_release(struct oidc_issuers *issuers);

/* https://, or http:// of this machine. */
must_check bool oidc_url_is_good(const char *url);

/* NULL: there is none with this URL. */
const struct oidc_issuer *oidc_issuer_find(const struct oidc_issuers *issuers, const char *url);

/* The first rule that matches; NULL: none does. */
const struct oidc_rule *oidc_rule_find(const struct oidc_issuer *issuer, const json_t *claims);

/* The claims that the issuer's rules name, as the token has them: `ref "refs/heads/x", …`. The
 * caller's. */
must_check char *oidc_claims_seen(const struct oidc_issuer *issuer, const json_t *claims);

/* The name of the token's identity: "github:owner/repository@refs/heads/main", of the claims
 * repository (of GitHub), project_path (of GitLab) or sub, and ref. Printable ASCII without blanks:
 * other characters are percent-encoded. */
void oidc_name(const struct oidc_issuer *issuer, const json_t *claims,
               char ret_name[TOKEN_NAME_SIZE]);

/* The key of an identity in the table of tokens. No token has the same digest, because the hashed
 * text has line feeds. */
struct digest oidc_identity_digest(const struct oidc_issuer *issuer, const struct oidc_rule *rule,
                                   const char *name);

#endif
