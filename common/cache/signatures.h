/* The channel entry: what a (channel, environment, tag, regime) points at, and the signatures over
 * it.
 *
 * JSON: {"channel": "stable", "counter": 4, "environment": {…}, "expires": "2026-12-24T00:00:00Z",
 *        "release": "sha256:…", "regime": "warm", "tag": "default"}
 * with "expires" optional and "regime" only when it is warm. Answers add what is not signed:
 * "signatures": [{"key": "sha256:…", "signature": base64}], "updated_at", in a history "moved_by",
 * and "match".
 * What is signed: the bytes "wavetune channel entry 1\n" followed by the canonical JSON of the
 * signed members.
 * The counter starts at 1 and only grows; a rollback is a higher counter with an older release.
 *
 * Memory: an entry owns its strings. Threads: plain values. */
#ifndef WAVETUNE_COMMON_CACHE_SIGNATURES_H
#define WAVETUNE_COMMON_CACHE_SIGNATURES_H

#include "common/base/json.h"
#include "common/cache/signing_key.h"
#include "common/node/environment.h"
#include "common/record/record.h"

#define CHANNEL_NAME_MAX 64
#define CHANNEL_SIGNATURES_MAX 8

must_check bool channel_name_check(const char *name, struct error *error);

struct channel_signature {
  struct digest key; /* the id */
  char text[SIGNATURE_TEXT_SIZE];
};
struct channel_signatures {
  size_t n;
  struct channel_signature all[CHANNEL_SIGNATURES_MAX]; /* each key once */
};

struct channel_entry {
  char *channel;
  struct environment environment;
  char *tag;
  enum regime regime;
  int64_t counter;
  struct digest release;
  int64_t expires_s; /* since 1970, UTC; 0: never */
  struct channel_signatures signatures;
  /* Members of answers that no signature covers. */
  char *updated_at;    /* RFC 3339 */
  char *moved_by;      /* the token's name; of history alone, else NULL */
  int64_t moved_by_id; /* FIELD_NONE: it is not known */
  json_t *match;       /* of GET /v1/cache: which rule found the entry */
};
extern const struct record channel_entry_record, channel_signature_record;

/* Fields of records: "expires", an int64_t; "signatures", a struct channel_signatures. */
extern const struct field_custom expires_field, channel_signatures_field;

/* From an answer of the server; members that are not known are ignored (they are not signed), the
 * others are strict. */
must_check bool channel_entry_parse(const json_t *json, struct channel_entry *ret,
                                    struct error *error);
void channel_entry_release(struct channel_entry *entry);
#define cleanup_channel_entry __attribute__((cleanup(channel_entry_release)))

/* The signed members (and "signatures" when with_signatures); a new reference. */
must_check json_t *channel_entry_to_json(const struct channel_entry *entry, bool with_signatures);
/* All members of an answer. */
must_check json_t *channel_entry_to_answer(const struct channel_entry *entry);
must_check char *channel_entry_signed_bytes(const struct channel_entry *entry, size_t *ret_size);

/* Adds (or replaces) the key's signature; false when CHANNEL_SIGNATURES_MAX others are there. */
must_check bool channel_entry_sign(struct channel_entry *entry, const struct signing_key *key,
                                   struct error *error);

/* Whether the entry has a valid signature by a trusted key. The error distinguishes unsigned,
 * signed by other keys, and signed by a trusted key but not over this. */
must_check bool channel_entry_verify(const struct channel_entry *entry,
                                     const struct trusted_keys *keys, struct error *error);

/* "expires" of an object, 0 where it is absent. */
must_check bool channel_expires_parse(const json_t *json, int64_t *ret_s, struct error *error);
must_check json_t *channel_signatures_to_json(const struct channel_signature *all,
                                              size_t n); /* a new reference */

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
