/* Ed25519 keys and signatures, over OpenSSL: publishers sign with them, deployments trust them.
 *
 * Files are PEM as `openssl genpkey -algorithm ed25519` writes them: PKCS#8 for the private key
 * (mode 0600), SubjectPublicKeyInfo for the public one. A key's id is the SHA-256 of the 32 raw
 * bytes of the public key.
 *
 * Memory: keys own their OpenSSL objects. Threads: read-only after reading, any thread. */
#ifndef WAVETUNE_COMMON_CACHE_SIGNING_KEY_H
#define WAVETUNE_COMMON_CACHE_SIGNING_KEY_H

#include "common/base/digest.h"
#include "common/base/error.h"

#define SIGNATURE_SIZE 64
#define SIGNATURE_TEXT_SIZE 89 /* base64 with padding, and a NUL */

struct signing_key {
  void *pkey; /* EVP_PKEY */
  bool is_private;
  struct digest id;
};

/* Makes `path` (private, 0600) and `path`.pub; neither may exist. */
must_check bool signing_key_create(const char *path, struct signing_key *ret, struct error *error);

/* Reads either kind; for anything but an Ed25519 key in PEM the error states what it is. A
 * private key file that group or others can read is refused. */
must_check bool signing_key_read(const char *path, struct signing_key *ret, struct error *error);
void signing_key_release(struct signing_key *key);
#define cleanup_signing_key cleanup_by(signing_key_release)

/* A set of public keys: a file, or a folder whose *.pub files are read (at least one; at most
 * 64). */
struct trusted_keys {
  size_t n;
  struct signing_key *all;
};
must_check bool trusted_keys_add(struct trusted_keys *keys, const char *path, struct error *error);
/* Adds the keys at `paths` (of --trusted-key) and those of $WAVETUNE_TRUSTED_KEYS, whose paths are
 * separated by ':'. */
must_check bool trusted_keys_add_all(struct trusted_keys *keys, const char *const *paths, size_t n,
                                     struct error *error);
/* The key with this id, or NULL. */
const struct signing_key *trusted_keys_find(const struct trusted_keys *keys,
                                            const struct digest *id);
void trusted_keys_release(struct trusted_keys *keys);
#define cleanup_trusted_keys cleanup_by(trusted_keys_release)

/* A public key as base64 of its 32 raw bytes, for commands and answers. */
#define PUBLIC_KEY_TEXT_SIZE 45
void signing_key_public_text(const struct signing_key *key, char text[PUBLIC_KEY_TEXT_SIZE]);
must_check bool signing_key_of_public_text(const char *text, struct signing_key *ret,
                                           struct error *error);

/* The signature of the bytes, as base64. The key is private. */
void signing_key_sign(const struct signing_key *key, const void *bytes, size_t size,
                      char text[SIGNATURE_TEXT_SIZE]);

/* Whether `signature` (base64) is the key's signature of the bytes. False also for a text that is
 * not well formed. */
must_check bool signing_key_verify(const struct signing_key *key, const void *bytes, size_t size,
                                   const char *signature);

/* Whether a text is base64 of 64 bytes: what the server checks of a signature that it stores. */
must_check bool signature_is_well_formed(const char *signature);

#endif
