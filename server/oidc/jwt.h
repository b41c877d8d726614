/* Verifies JSON Web Tokens (RFC 7519) of identity providers, with OpenSSL.
 *
 * Only RS256 and ES256: the algorithm must be that of the key, never only that of the token's head,
 * so that "none" and HS256 with a public key as its secret fail. What a token says is not to be
 * believed before jwt_verify answers JWT_VALID. Stricter than RFC 7515: base64url without padding
 * or other characters, no duplicate members, no "crit", and a "kid" in every head.
 *
 * Memory: a jwt and the keys own what they point to. Threads: pure functions; keys do not change,
 * and any number of threads may verify with them at the same time. */
#ifndef WAVETUNE_SERVER_OIDC_JWT_H
#define WAVETUNE_SERVER_OIDC_JWT_H

#include "common/base/json.h"

#define JWT_SIZE_MAX 8192
#define JWT_LEEWAY_S 60 /* how much the issuer's clock may differ from this one */
#define JWT_DAYS_MAX 31 /* how long a token may still be valid */
#define JWT_KEYS_BYTES_MAX ((size_t)256 << 10)
#define JWT_KEYS_MAX 64

struct jwt_keys;
/* Reads a JSON Web Key Set (RFC 7517). Leaves out keys that are not for signatures by RS256 (2048
 * to 8192 bits) or ES256, or have no "kid"; a set without any other is refused. */
must_check bool jwt_keys_parse(const char *text, size_t size, struct jwt_keys **ret_keys,
                               struct error *error);
void jwt_keys_free(struct jwt_keys *keys);
size_t jwt_keys_count(const struct jwt_keys *keys);
/* Whether each of `old` is in `keys`, under the same "kid". */
bool jwt_keys_have(const struct jwt_keys *keys, const struct jwt_keys *old);

struct jwt {
  json_t *head, *claims; /* objects */
  const char *kid;       /* of the head */
  const char *text;      /* borrowed from the caller of jwt_parse */
  size_t signed_size;    /* of the text: what the signature is over */
  uint8_t *signature;
  size_t signature_size;
};
/* Reads a token without verifying it. `text` must outlive the jwt. */
must_check bool jwt_parse(const char *text, struct jwt *ret, struct error *error);
void jwt_release(struct jwt *jwt);
#define cleanup_jwt __attribute__((cleanup(jwt_release)))

/* Verifies the signature. */
enum jwt_answer { JWT_VALID, JWT_REFUSED, JWT_UNKNOWN_KEY };
enum jwt_answer jwt_verify(const struct jwt *jwt, const struct jwt_keys *keys, struct error *error);

/* Checks iss and aud, which must be equal to the arguments (aud may be a list of that one), and
 * exp (at most JWT_DAYS_MAX ahead), iat and, if there, nbf, with JWT_LEEWAY_S. `*ret_until_s`: when
 * it ends, the leeway included, in seconds since 1970. */
must_check bool jwt_check_claims(const json_t *claims, const char *issuer, const char *audience,
                                 int64_t now_s, int64_t *ret_until_s, struct error *error);

#endif
