/* What identity providers and clients send: a set of keys, a token, and the file of --oidc. The
 * first line is a set, the second a token, the rest a file. Whatever the bytes, no token is valid
 * that its key did not sign: the corpus has keys whose private halves were thrown away, and tokens
 * that they signed. */
#include "server/oidc/jwt.h"
#include "server/oidc/rules.h"
#include "tests/fuzz/fuzz.h"

static void token_read(const char *set, const char *text, const struct oidc_issuers *issuers) {
  cleanup_jwt struct jwt jwt = {0};
  struct jwt_keys *keys = NULL;
  struct error error;
  int64_t until_s;
  if (!jwt_keys_parse(set, strlen(set), &keys, &error))
    check_refusal(&error);
  else
    ALWAYS(jwt_keys_count(keys) > 0);

  if (!jwt_parse(text, &jwt, &error)) {
    check_refusal(&error);
  } else {
    ALWAYS(jwt.kid[0] && jwt.signed_size < strlen(text));
    const char *alg = json_string_value(json_object_get(jwt.head, "alg"));
    if (keys && jwt_verify(&jwt, keys, &error) == JWT_VALID)
      ALWAYS(string_equal(alg, "RS256") || string_equal(alg, "ES256"));
    if (!jwt_check_claims(jwt.claims, "https://i.test", "us", 1800000000, &until_s, &error))
      check_refusal(&error);
    else
      ALWAYS(until_s > 1800000000);

    for (size_t i = 0; i < issuers->n; i++) {
      char name[TOKEN_NAME_SIZE];
      cleanup_free char *seen = oidc_claims_seen(&issuers->all[i], jwt.claims);
      oidc_name(&issuers->all[i], jwt.claims, name);
      for (const char *c = name; *c; c++)
        ALWAYS(*c > ' ' && *c < 0x7f);
      ALWAYS(strchr(name, ':') && seen);
      const struct oidc_rule *rule = oidc_rule_find(&issuers->all[i], jwt.claims);
      if (rule)
        ALWAYS(rule->n_claims > 0 && rule->role[0]);
    }
  }
  jwt_keys_free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *set = line_next(&at, end), *text = line_next(&at, end);
  cleanup_json json_t *file = NULL;
  struct oidc_issuers issuers = {0};
  struct error error;
  if (json_parse(at, (size_t)(end - at), &file, &error) &&
      !oidc_issuers_parse(file, &issuers, &error)) {
    check_refusal(&error);
    oidc_issuers_release(&issuers);
  }
  token_read(set, text, &issuers);
  oidc_issuers_release(&issuers);
  return 0;
}
