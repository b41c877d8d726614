/* Base64url, JSON, keys of numbers, and one EVP_DigestVerify. */
#include "server/oidc/jwt.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#define KID_SIZE_MAX 256
#define RSA_BITS_MIN 2048
#define RSA_BITS_MAX 8192
#define RSA_EXPONENT_BITS_MAX 32
#define P256_SIZE 32 /* bytes of a coordinate, and of each half of a signature */
#define TIME_MAX 9007199254740992.0

DEFINE_CLEANUP(BIGNUM *, cleanup_bignum_free, BN_free)
DEFINE_CLEANUP(OSSL_PARAM_BLD *, cleanup_builder_free, OSSL_PARAM_BLD_free)
DEFINE_CLEANUP(OSSL_PARAM *, cleanup_params_free, OSSL_PARAM_free)
DEFINE_CLEANUP(EVP_PKEY_CTX *, cleanup_pkey_context_free, EVP_PKEY_CTX_free)
DEFINE_CLEANUP(EVP_MD_CTX *, cleanup_md_context_free, EVP_MD_CTX_free)
DEFINE_CLEANUP(ECDSA_SIG *, cleanup_ecdsa_free, ECDSA_SIG_free)

struct jwt_keys {
  size_t n;
  struct jwt_key {
    char *kid;
    const char *alg;
    EVP_PKEY *key;
  } all[JWT_KEYS_MAX];
};

static int base64url_value(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* Decodes exactly what RFC 7515 writes: no padding, and no bits that are left over. NULL: it is
 * something else. The result ends with a NUL, which *ret_size does not count. */
static uint8_t *base64url_decode(const char *text, size_t length, size_t *ret_size) {
  if (length % 4 == 1)
    return NULL;

  cleanup_free uint8_t *bytes = xcalloc(length / 4 * 3 + 4, 1);
  size_t n = 0;
  unsigned bits = 0, n_bits = 0;
  for (size_t i = 0; i < length; i++) {
    int value = base64url_value(text[i]);
    if (value < 0)
      return NULL;
    bits = bits << 6 | (unsigned)value;
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      bytes[n++] = (uint8_t)(bits >> n_bits);
      bits &= (1u << n_bits) - 1;
    }
  }

  if (bits != 0)
    return NULL;
  *ret_size = n;
  return TAKE(bytes);
}

/* A public key from its numbers; NULL: they make none. Takes over neither. */
static EVP_PKEY *key_make(const char *type, OSSL_PARAM_BLD *builder) {
  __attribute__((cleanup(cleanup_params_free))) OSSL_PARAM *params =
      OSSL_PARAM_BLD_to_param(builder);
  __attribute__((cleanup(cleanup_pkey_context_free))) EVP_PKEY_CTX *context =
      EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
  EVP_PKEY *key = NULL;
  ALWAYS(params && context && EVP_PKEY_fromdata_init(context) == 1);
  return EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) == 1 ? key : NULL;
}

static uint8_t *member_bytes(const json_t *jwk, const char *name, size_t *ret_size) {
  const json_t *value = json_object_get(jwk, name);
  return json_is_string(value)
             ? base64url_decode(json_string_value(value), json_string_length(value), ret_size)
             : NULL;
}

static EVP_PKEY *key_of_rsa(const json_t *jwk) {
  size_t n_size = 0, e_size = 0;
  cleanup_free uint8_t *n_bytes = member_bytes(jwk, "n", &n_size);
  cleanup_free uint8_t *e_bytes = member_bytes(jwk, "e", &e_size);
  if (!n_bytes || !e_bytes || n_size > RSA_BITS_MAX / 8 + 1 || e_size > 8)
    return NULL;

  __attribute__((cleanup(cleanup_bignum_free))) BIGNUM *n = BN_bin2bn(n_bytes, (int)n_size, NULL);
  __attribute__((cleanup(cleanup_bignum_free))) BIGNUM *e = BN_bin2bn(e_bytes, (int)e_size, NULL);
  __attribute__((cleanup(cleanup_builder_free))) OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
  ALWAYS(n && e && builder);
  if (BN_num_bits(n) < RSA_BITS_MIN || BN_num_bits(n) > RSA_BITS_MAX || !BN_is_odd(n) ||
      BN_num_bits(e) > RSA_EXPONENT_BITS_MAX || !BN_is_odd(e) || BN_is_one(e))
    return NULL;

  ALWAYS(OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
         OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) == 1);
  return key_make("RSA", builder);
}

/* OpenSSL refuses a point that is not on the curve. */
static EVP_PKEY *key_of_p256(const json_t *jwk) {
  size_t x_size = 0, y_size = 0;
  cleanup_free uint8_t *x = member_bytes(jwk, "x", &x_size), *y = member_bytes(jwk, "y", &y_size);
  if (!string_equal(json_string_value(json_object_get(jwk, "crv")), "P-256") || !x || !y ||
      x_size != P256_SIZE || y_size != P256_SIZE)
    return NULL;

  uint8_t point[1 + 2 * P256_SIZE] = {4}; /* uncompressed */
  memcpy(point + 1, x, P256_SIZE);
  memcpy(point + 1 + P256_SIZE, y, P256_SIZE);
  __attribute__((cleanup(cleanup_builder_free))) OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
  ALWAYS(builder &&
         OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) == 1 &&
         OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) ==
             1);
  return key_make("EC", builder);
}

/* Adds the key of a set, unless it is for something else. */
static void key_add(struct jwt_keys *keys, const json_t *jwk) {
  const char *kid = json_string_value(json_object_get(jwk, "kid")),
             *kty = json_string_value(json_object_get(jwk, "kty")),
             *use = json_string_value(json_object_get(jwk, "use")),
             *stated = json_string_value(json_object_get(jwk, "alg"));
  bool is_rsa = string_equal(kty, "RSA"), is_ec = string_equal(kty, "EC");
  const char *alg = is_rsa ? "RS256" : "ES256";
  if (!kid || !*kid || strlen(kid) > KID_SIZE_MAX || (!is_rsa && !is_ec) ||
      (use && !string_equal(use, "sig")) || (stated && !string_equal(stated, alg)))
    return;

  EVP_PKEY *key = is_rsa ? key_of_rsa(jwk) : key_of_p256(jwk);
  if (key)
    keys->all[keys->n++] = (struct jwt_key){xstrdup(kid), alg, key};
}

bool jwt_keys_parse(const char *text, size_t size, struct jwt_keys **ret_keys,
                    struct error *error) {
  cleanup_json json_t *set = NULL;
  if (size > JWT_KEYS_BYTES_MAX)
    return error_set(error, "the set of keys has %zu bytes; the limit is %zu", size,
                     JWT_KEYS_BYTES_MAX);
  if (!json_parse(text, size, &set, error))
    return false;

  const json_t *list = json_object_get(set, "keys"), *jwk;
  size_t i;
  if (!json_is_array(list))
    return error_at(error, "/keys", "this is no set of keys: it has no array \"keys\"");
  if (json_array_size(list) > JWT_KEYS_MAX)
    return error_at(error, "/keys", "the set has %zu keys; the limit is %d", json_array_size(list),
                    JWT_KEYS_MAX);

  struct jwt_keys *keys = xcalloc(1, sizeof *keys);
  json_array_foreach (list, i, jwk)
    key_add(keys, jwk);

  if (keys->n == 0) {
    jwt_keys_free(keys);
    return error_at(error, "/keys", "the set has no key with a \"kid\" for RS256 or ES256");
  }

  *ret_keys = keys;
  return true;
}

void jwt_keys_free(struct jwt_keys *keys) {
  if (!keys)
    return;
  for (size_t i = 0; i < keys->n; i++) {
    free(keys->all[i].kid);
    EVP_PKEY_free(keys->all[i].key);
  }
  free(keys);
}

size_t jwt_keys_count(const struct jwt_keys *keys) { return keys->n; }

bool jwt_keys_have(const struct jwt_keys *keys, const struct jwt_keys *old) {
  bool are_there = true;
  for (size_t i = 0; i < old->n && are_there; i++) {
    are_there = false;
    for (size_t k = 0; k < keys->n && !are_there; k++)
      are_there = strcmp(keys->all[k].kid, old->all[i].kid) == 0 &&
                  EVP_PKEY_eq(keys->all[k].key, old->all[i].key) == 1;
  }
  return are_there;
}

/* A part of a token that is a JSON object. */
static json_t *part_object(const char *text, size_t length) {
  size_t size;
  struct error unread;
  json_t *object = NULL;
  cleanup_free uint8_t *bytes = base64url_decode(text, length, &size);
  if (bytes && json_parse((const char *)bytes, size, &object, &unread) && json_is_object(object))
    return object;
  json_decref(object);
  return NULL;
}

bool jwt_parse(const char *text, struct jwt *ret, struct error *error) {
  const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
  cleanup_jwt struct jwt jwt = {.text = text};
  if (!second || strlen(text) > JWT_SIZE_MAX)
    return error_set(error,
                     "it is no JSON Web Token: three parts with dots between them, of at most "
                     "%d bytes together",
                     JWT_SIZE_MAX);

  jwt.signed_size = (size_t)(second - text);
  jwt.head = part_object(text, (size_t)(first - text));
  jwt.claims = part_object(first + 1, (size_t)(second - first - 1));
  jwt.signature = base64url_decode(second + 1, strlen(second + 1), &jwt.signature_size);
  if (!jwt.head || !jwt.claims || !jwt.signature)
    return error_set(error, "it is no JSON Web Token: a part is not base64url, or no JSON object");

  jwt.kid = json_string_value(json_object_get(jwt.head, "kid"));
  if (!jwt.kid || !*jwt.kid || strlen(jwt.kid) > KID_SIZE_MAX)
    return error_set(error, "its head names no key (\"kid\")");
  if (json_object_get(jwt.head, "crit"))
    return error_set(error, "its head has \"crit\", which this server does not know");

  *ret = jwt;
  jwt = (struct jwt){0};
  return true;
}

void jwt_release(struct jwt *jwt) {
  json_decref(jwt->head);
  json_decref(jwt->claims);
  free(jwt->signature);
  *jwt = (struct jwt){0};
}

/* The signature as OpenSSL wants it: of ES256 in DER rather than as two numbers. NULL: it cannot be
 * one. The result is OpenSSL's to free. */
static unsigned char *signature_of(const struct jwt *jwt, bool is_ec, size_t *ret_size) {
  if (!is_ec) {
    *ret_size = jwt->signature_size;
    return OPENSSL_memdup(jwt->signature, jwt->signature_size);
  }
  if (jwt->signature_size != 2 * (size_t)P256_SIZE)
    return NULL;

  __attribute__((cleanup(cleanup_ecdsa_free))) ECDSA_SIG *pair = ECDSA_SIG_new();
  unsigned char *der = NULL;
  ALWAYS(pair && ECDSA_SIG_set0(pair, BN_bin2bn(jwt->signature, P256_SIZE, NULL),
                                BN_bin2bn(jwt->signature + P256_SIZE, P256_SIZE, NULL)) == 1);
  int size = i2d_ECDSA_SIG(pair, &der);
  ALWAYS(size > 0);
  *ret_size = (size_t)size;
  return der;
}

enum jwt_answer jwt_verify(const struct jwt *jwt, const struct jwt_keys *keys,
                           struct error *error) {
  const char *alg = json_string_value(json_object_get(jwt->head, "alg"));
  const struct jwt_key *key = NULL;
  for (size_t i = 0; i < keys->n; i++) /* keys of two types may have one kid (RFC 7517, 4.5) */
    if (strcmp(keys->all[i].kid, jwt->kid) == 0 && (!key || string_equal(alg, keys->all[i].alg)))
      key = &keys->all[i];
  if (!key) {
    error_of(error, ERROR_UNAUTHENTICATED, "the issuer has no key \"%.64s\"", jwt->kid);
    return JWT_UNKNOWN_KEY;
  }

  if (!string_equal(alg, key->alg)) {
    error_of(error, ERROR_UNAUTHENTICATED,
             "its algorithm is \"%.32s\"; that of the key \"%.64s\" is %s", alg ? alg : "",
             jwt->kid, key->alg);
    return JWT_REFUSED;
  }

  size_t size = 0;
  unsigned char *signature = signature_of(jwt, EVP_PKEY_is_a(key->key, "EC"), &size);
  __attribute__((cleanup(cleanup_md_context_free))) EVP_MD_CTX *context = EVP_MD_CTX_new();
  ALWAYS(context != NULL);
  bool is_valid = signature &&
                  EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key->key) == 1 &&
                  EVP_DigestVerify(context, signature, size, (const unsigned char *)jwt->text,
                                   jwt->signed_size) == 1;
  OPENSSL_free(signature);
  if (is_valid)
    return JWT_VALID;
  error_of(error, ERROR_UNAUTHENTICATED, "its signature is not by the key \"%.64s\"", jwt->kid);
  return JWT_REFUSED;
}

/* A NumericDate, which may have a fraction. */
static bool time_read(const json_t *claims, const char *name, bool is_required, double *ret,
                      struct error *error) {
  const json_t *value = json_object_get(claims, name);
  double seconds = json_number_value(value);
  if (!value && !is_required)
    return true;
  if (!json_is_number(value) || seconds < 0 || seconds > TIME_MAX)
    return error_of(error, ERROR_UNAUTHENTICATED, "its claim \"%s\" is no time", name);
  *ret = seconds;
  return true;
}

static bool audience_is(const json_t *value, const char *audience) {
  if (json_is_array(value) && json_array_size(value) == 1)
    value = json_array_get(value, 0);
  return string_equal(json_string_value(value), audience);
}

bool jwt_check_claims(const json_t *claims, const char *issuer, const char *audience, int64_t now_s,
                      int64_t *ret_until_s, struct error *error) {
  double expires = 0, issued = 0, begins = 0, now = (double)now_s;
  if (!string_equal(json_string_value(json_object_get(claims, "iss")), issuer))
    return error_of(error, ERROR_UNAUTHENTICATED, "its issuer is not %.200s", issuer);
  if (!audience_is(json_object_get(claims, "aud"), audience))
    return error_of(error, ERROR_UNAUTHENTICATED,
                    "its audience is not \"%.200s\": request the token for that", audience);
  if (!time_read(claims, "exp", true, &expires, error) ||
      !time_read(claims, "iat", true, &issued, error) ||
      !time_read(claims, "nbf", false, &begins, error))
    return false;

  if (expires + JWT_LEEWAY_S <= now)
    return error_of(error, ERROR_UNAUTHENTICATED, "it has expired, %.0f s ago: request a new one",
                    now - expires);
  if (expires - now > JWT_DAYS_MAX * 86400.0)
    return error_of(error, ERROR_UNAUTHENTICATED,
                    "it is valid for %.0f days more; have its issuer make tokens that are valid "
                    "for at most %d days",
                    (expires - now) / 86400, JWT_DAYS_MAX);
  if (begins - JWT_LEEWAY_S > now || issued - JWT_LEEWAY_S > now)
    return error_of(error, ERROR_UNAUTHENTICATED,
                    "it is not valid yet: its issuer's clock is %.0f s ahead of this server's",
                    (begins > issued ? begins : issued) - now);

  *ret_until_s = (int64_t)expires + JWT_LEEWAY_S;
  return true;
}
