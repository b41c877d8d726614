/* Tokens of identity providers: parts, keys, signatures, claims, and rules over claims. What is
 * valid is compared with PyJWT in system/test_oidc.py. */
#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "server/oidc/jwt.h"
#include "server/oidc/rules.h"

#define NOW 1800000000

static char *base64url(const void *bytes, size_t size) {
  char *text = xcalloc(size / 3 * 4 + 8, 1);
  EVP_EncodeBlock((unsigned char *)text, bytes, (int)size);
  for (char *c = text; *c; c++)
    *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
  text[strcspn(text, "=")] = '\0';
  return text;
}

static char *number(EVP_PKEY *key, const char *name) {
  BIGNUM *value = NULL;
  uint8_t bytes[1024];
  cr_assert(EVP_PKEY_get_bn_param(key, name, &value));
  int size = BN_bn2bin(value, bytes);
  BN_free(value);
  return base64url(bytes, (size_t)size);
}

/* A set with the key as "k1". */
static char *set_of(EVP_PKEY *key, const char *more) {
  cleanup_free char *n = number(key, "n"), *e = number(key, "e");
  return xasprintf(
      "{\"keys\": [{\"kid\": \"k1\", \"kty\": \"RSA\", \"n\": \"%s\", \"e\": \"%s\"%s}]}", n, e,
      more);
}

static char *sign(EVP_PKEY *key, const char *head, const char *claims) {
  cleanup_free char *first = base64url(head, strlen(head)),
                    *second = base64url(claims, strlen(claims)),
                    *text = xasprintf("%s.%s", first, second);
  uint8_t signature[1024];
  size_t size = sizeof signature;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  cr_assert(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key));
  cr_assert(EVP_DigestSign(context, signature, &size, (uint8_t *)text, strlen(text)));
  EVP_MD_CTX_free(context);
  cleanup_free char *third = base64url(signature, size);
  return xasprintf("%s.%s", text, third);
}

static struct jwt_keys *keys_of(const char *text) {
  struct jwt_keys *keys = NULL;
  struct error error;
  return jwt_keys_parse(text, strlen(text), &keys, &error) ? keys : NULL;
}

static enum jwt_answer verify(const char *text, const struct jwt_keys *keys) {
  cleanup_jwt struct jwt jwt = {0};
  struct error error;
  cr_assert(jwt_parse(text, &jwt, &error), "%s", error.message);
  return jwt_verify(&jwt, keys, &error);
}

Test(jwt, a_signature_is_by_the_key_that_the_head_names) {
  EVP_PKEY *key = EVP_RSA_gen(2048), *other = EVP_RSA_gen(2048);
  cleanup_free char *set = set_of(key, "");
  struct jwt_keys *keys = keys_of(set);
  static const char head[] = "{\"alg\": \"RS256\", \"kid\": \"k1\"}";
  cleanup_free char *good = sign(key, head, "{}"), *bad = sign(other, head, "{}");
  cleanup_free char *unknown = sign(key, "{\"alg\": \"RS256\", \"kid\": \"k2\"}", "{}");
  cleanup_free char *confused = sign(key, "{\"alg\": \"HS256\", \"kid\": \"k1\"}", "{}");

  cr_expect_eq(verify(good, keys), JWT_VALID);
  cr_expect_eq(verify(bad, keys), JWT_REFUSED);
  cr_expect_eq(verify(unknown, keys), JWT_UNKNOWN_KEY);
  cr_expect_eq(verify(confused, keys), JWT_REFUSED);
  jwt_keys_free(keys);
  EVP_PKEY_free(key);
  EVP_PKEY_free(other);
}

Test(jwt, a_set_leaves_out_keys_for_other_uses_and_one_without_any_is_refused) {
  EVP_PKEY *key = EVP_RSA_gen(2048), *small = EVP_RSA_gen(1024);
  static const char *const others[] = {", \"use\": \"enc\"", ", \"alg\": \"RS512\""};
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
    cleanup_free char *set = set_of(key, others[i]);
    cr_expect_null(keys_of(set), "%s", others[i]);
  }
  cleanup_free char *set = set_of(key, ", \"use\": \"sig\", \"alg\": \"RS256\", \"x5t\": 7"),
                    *weak = set_of(small, "");
  struct jwt_keys *keys = keys_of(set);
  cr_assert_not_null(keys);
  cr_expect_eq(jwt_keys_count(keys), 1);
  cr_expect_null(keys_of(weak), "1024 bits");

  static const char *const wrong[] = {
      "", "[]", "{}", "{\"keys\": {}}", "{\"keys\": []}", "{\"keys\": [7, null, {}]}",
      "{\"keys\": [{\"kid\": \"a\", \"kty\": \"RSA\", \"n\": \"AQAB\", \"e\": \"AQAB\"}]}",
      "{\"keys\": [{\"kid\": \"a\", \"kty\": \"oct\", \"k\": \"AQAB\"}]}",
      /* 1, 1 is not on the curve */
      "{\"keys\": [{\"kid\": \"a\", \"kty\": \"EC\", \"crv\": \"P-256\","
      " \"x\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
      " \"y\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}]}"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_null(keys_of(wrong[i]), "%s", wrong[i]);
  jwt_keys_free(keys);
  EVP_PKEY_free(key);
  EVP_PKEY_free(small);
}

Test(jwt, text_that_is_no_token_is_refused) {
  static const char *const wrong[] = {"",
                                      ".",
                                      "..",
                                      "...",
                                      "e30.e30.",          /* {}.{}: no kid */
                                      "eyJraWQiOjd9.e30.", /* {"kid":7} */
                                      "eyJraWQiOiJhIn0=.e30.YQ",
                                      "eyJraWQiOiJhIn0.e30.Y",
                                      "eyJraWQiOiJhIn0.e30.YR", /* bits that are left over */
                                      "eyJraWQiOiJhIn0.e30.Y+",
                                      "eyJraWQiOiJhIn0.W10.YQ"}; /* [] */
  struct error error;
  struct jwt jwt;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_not(jwt_parse(wrong[i], &jwt, &error), "%s", wrong[i]);
  cr_assert(jwt_parse("eyJraWQiOiJhIn0.e30.YQ", &jwt, &error), "%s", error.message);
  cr_expect_str_eq(jwt.kid, "a");
  cr_expect_eq(jwt.signature_size, 1);
  jwt_release(&jwt);
}

static bool claims_are_good(const char *text, int64_t *ret_until_s) {
  struct error error;
  cleanup_json json_t *claims = NULL;
  cr_assert(json_parse(text, strlen(text), &claims, &error), "%s", error.message);
  return jwt_check_claims(claims, "https://i.test", "us", NOW, ret_until_s, &error);
}

Test(jwt, claims_hold_with_a_minute_of_leeway_for_at_most_31_days) {
  static const struct {
    const char *claims;
    bool is_good;
  } rows[] = {
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1800000000, \"exp\": 1800000300}",
       true},
      {"{\"iss\": \"https://i.test\", \"aud\": [\"us\"], \"iat\": 1800000059, \"exp\": 1799999941}",
       true},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1800000000, \"exp\": 1799999940}",
       false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1800000061, \"exp\": 1800000300}",
       false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"nbf\": 1800000061,"
       " \"exp\": 1800000300}",
       false},
      {"{\"iss\": \"https://i.test\", \"aud\": [\"us\", \"them\"], \"iat\": 1, \"exp\": "
       "1800000300}",
       false},
      {"{\"iss\": \"https://i.test/\", \"aud\": \"us\", \"iat\": 1, \"exp\": 1800000300}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"exp\": 1800000300}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"exp\": 1802678400}", true},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"exp\": 1802678401}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"exp\": 9224318015940}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"exp\": 1e300}", false},
      {"{\"iss\": \"https://i.test\", \"aud\": \"us\", \"iat\": 1, \"exp\": \"1800000300\"}",
       false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
    int64_t until_s = 0;
    cr_expect_eq(claims_are_good(rows[i].claims, &until_s), rows[i].is_good, "%s", rows[i].claims);
  }
  int64_t until_s = 0;
  cr_expect(claims_are_good(rows[0].claims, &until_s));
  cr_expect_eq(until_s, 1800000360);
}

static struct oidc_issuers issuers_of(const char *text) {
  struct oidc_issuers issuers;
  struct error error;
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  cr_assert(oidc_issuers_parse(json, &issuers, &error), "%s %s", error.pointer, error.message);
  return issuers;
}

Test(rules, the_first_rule_whose_claims_all_hold_counts) {
  struct oidc_issuers issuers = issuers_of(
      "[{\"issuer\": \"https://i.test\", \"name\": \"ci\", \"audience\": \"us\", \"rules\": ["
      "{\"claims\": {\"project_id\": \"7\", \"ref\": \"v*\"}, \"role\": \"submitter\"},"
      "{\"claims\": {\"project_id\": \"7\", \"protected\": \"true\"}, \"role\": \"reader\"},"
      "{\"claims\": {\"namespace_id\": \"1\"}, \"role\": \"demand\"}]}]");
  static const struct {
    const char *claims, *role;
  } rows[] = {{"{\"project_id\": \"7\", \"ref\": \"v1\"}", "submitter"},
              {"{\"project_id\": 7, \"ref\": \"v\"}", "submitter"},
              {"{\"project_id\": \"7\", \"ref\": \"main\", \"protected\": \"true\"}", "reader"},
              {"{\"project_id\": \"7\", \"ref\": \"main\", \"protected\": true}", NULL},
              {"{\"project_id\": \"77\", \"ref\": \"v1\"}", NULL},
              {"{\"project_id\": [\"7\"], \"ref\": \"v1\"}", NULL},
              {"{\"project_id\": \"8\", \"ref\": \"v1\", \"namespace_id\": \"1\"}", "demand"},
              {"{}", NULL}};
  for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
    struct error error;
    cleanup_json json_t *claims = NULL;
    cr_assert(json_parse(rows[i].claims, strlen(rows[i].claims), &claims, &error));
    const struct oidc_rule *rule = oidc_rule_find(&issuers.all[0], claims);
    cr_expect(string_equal(rule ? rule->role : NULL, rows[i].role), "%s", rows[i].claims);
  }
  cr_expect_not_null(oidc_issuer_find(&issuers, "https://i.test"));
  cr_expect_null(oidc_issuer_find(&issuers, "https://i.test/"));
  cr_expect_null(oidc_issuer_find(&issuers, NULL));
  oidc_issuers_release(&issuers);
}

Test(rules, only_this_machine_may_be_without_tls) {
  static const char *const good[] = {"https://a", "http://127.0.0.1", "http://127.0.0.1:80/x",
                                     "http://localhost:1", "http://[::1]/"};
  static const char *const bad[] = {"",         "https://",           "https:///x",
                                    "http://a", "http://127.0.0.1.a", "http://127.0.0.1@a/",
                                    "ftp://a",  "http://localhosta"};
  for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
    cr_expect(oidc_url_is_good(good[i]), "%s", good[i]);
  for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
    cr_expect_not(oidc_url_is_good(bad[i]), "%s", bad[i]);
}
