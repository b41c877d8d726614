/* Signatures over what agents compile and load: kernels and builds.
 *
 * What is signed: a line and the canonical JSON of
 *   "wavetune kernel 1\n"  {"expires": "2026-12-24T00:00:00Z", "kernel": "sha256:…"}
 *   "wavetune build 1\n"   {"build": "sha256:…", "expires": "…", "kernel": "sha256:…"}
 * with "expires" only where there is one. A kernel's hash covers its manifest, which has the
 * digests of every source and of the reference; a build's digest covers its document, which has
 * those of every object and file. The line keeps a signature of one kind, or of a channel's entry,
 * from being one of another.
 *
 * As JSON: {"key": "sha256:…", "signature": base64, "expires": "…"}.
 *
 * Memory: plain values; texts are the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_CACHE_CODE_SIGNATURE_H
#define WAVETUNE_COMMON_CACHE_CODE_SIGNATURE_H

#include "common/base/json.h"
#include "common/cache/signing_key.h"

struct signed_code {
  struct digest kernel;
  bool is_build; /* of that kernel; else it is the kernel itself */
  struct digest build;
};

struct code_signature {
  struct digest key; /* the id */
  int64_t expires_s; /* since 1970, UTC; 0: never */
  char text[SIGNATURE_TEXT_SIZE];
};

/* The bytes that are signed, NUL-terminated beyond *ret_size. */
must_check char *code_signed_bytes(const struct signed_code *code, int64_t expires_s,
                                   size_t *ret_size);

/* The key is private. */
struct code_signature code_sign(const struct signed_code *code, const struct signing_key *key,
                                int64_t expires_s);

/* A new reference. */
must_check json_t *code_signature_to_json(const struct code_signature *signature);

/* Looks for a signature by a trusted key, over exactly this, that lasts at `now_s`, among those of
 * a JSON array that may hold anything: what is no signature is passed over, NULL is an empty array.
 * *ret is the one that lasts longest. The error distinguishes unsigned, signed by others,
 * expired, and signed by a trusted key but not over this. */
must_check bool code_signature_find(const struct signed_code *code, const json_t *signatures,
                                    const struct trusted_keys *keys, int64_t now_s,
                                    struct code_signature *ret, struct error *error);

/* "kernel sha256:…" or "build sha256:…". Returns text. */
#define SIGNED_CODE_TEXT_SIZE (8 + DIGEST_TEXT_SIZE)
char *signed_code_format(const struct signed_code *code, char text[SIGNED_CODE_TEXT_SIZE]);

#endif
