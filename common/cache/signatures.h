/* Signatures: over channel entries, which deployments verify, and over kernels and builds, which
 * agents verify before they compile and load them.
 *
 * The signed bytes are a line that names the kind, then canonical JSON. Because of the line, a
 * signature of one kind is not valid for another.
 *
 * Memory: an entry owns its strings; the other values are plain. Threads: any. */
#ifndef WAVETUNE_COMMON_CACHE_SIGNATURES_H
#define WAVETUNE_COMMON_CACHE_SIGNATURES_H

#include "common/base/json.h"
#include "common/cache/signing_key.h"
#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"

/* A channel entry: what a (channel, environment, tag, regime) points to.
 *
 * JSON: {"channel": "stable", "counter": 4, "environment": {…}, "expires": "2026-12-24T00:00:00Z",
 *        "release": "sha256:…", "regime": "warm", "tag": "default"}
 * with "expires" optional and "regime" unless it is the implied one (regime_member). What is
 * signed: the line "wavetune channel entry 1\n" and these members. Answers add "signatures":
 * [{"key": "sha256:…", "signature": base64}], "updated_at", in a history "moved_by", and "match".
 * The counter starts at 1 and only grows; a rollback is a higher counter with an older release. */
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
  char *moved_by;      /* the token's name; only in a history, else NULL */
  int64_t moved_by_id; /* FIELD_NONE: it is not known */
  json_t *match;       /* of GET /v1/cache: which rule found the entry */
};
extern const struct record channel_entry_record, channel_signature_record;

/* Fields of records: "expires", an int64_t; "signatures", a struct channel_signatures. */
extern const struct field_custom expires_field, channel_signatures_field;

/* From an answer of the server; unknown members are ignored (they are not signed), known ones are
 * checked strictly. */
must_check bool channel_entry_parse(const json_t *json, struct channel_entry *ret,
                                    struct error *error);
void channel_entry_release(struct channel_entry *entry);
#define cleanup_channel_entry cleanup_by(channel_entry_release)

/* The signed members (and "signatures" when with_signatures); a new reference. */
must_check json_t *channel_entry_to_json(const struct channel_entry *entry, bool with_signatures);
/* All members of an answer. */
must_check json_t *channel_entry_to_answer(const struct channel_entry *entry);
must_check char *channel_entry_signed_bytes(const struct channel_entry *entry, size_t *ret_size);

/* Adds (or replaces) the key's signature; false when CHANNEL_SIGNATURES_MAX other keys signed. */
must_check bool channel_entry_sign(struct channel_entry *entry, const struct signing_key *key,
                                   struct error *error);

/* Whether the entry has a valid signature by a trusted key. The error distinguishes an
 * unsigned entry, signatures by other keys, and a trusted key's signature of something else. */
must_check bool channel_entry_verify(const struct channel_entry *entry,
                                     const struct trusted_keys *keys, struct error *error);

/* "expires" of an object, 0 where it is absent. */
must_check bool channel_expires_parse(const json_t *json, int64_t *ret_s, struct error *error);
/* A new reference. */
must_check json_t *channel_signatures_to_json(const struct channel_signature *all, size_t n);

/* The choices of a release (common/formats/choices.c), by their digest: programs verify this
 * signature before they use compiled code that the choices name. What is signed: "wavetune choices
 * 1\n"
 * {"choices": "sha256:…", "release": "sha256:…"}. */
must_check char *choices_signed_bytes(const struct digest *release, const struct digest *choices,
                                      size_t *ret_size);
/* The key is private. */
struct channel_signature choices_sign(const struct digest *release, const struct digest *choices,
                                      const struct signing_key *key);

/* A kernel or a build. What is signed:
 *   "wavetune kernel 1\n"  {"expires": "2026-12-24T00:00:00Z", "kernel": "sha256:…"}
 *   "wavetune build 1\n"   {"build": "sha256:…", "expires": "…", "kernel": "sha256:…"}
 * with "expires" only where there is one. A kernel's hash covers its manifest, which has the
 * digests of every source and of the reference; a build's digest covers its document, which has
 * those of every object and file. */
struct signed_code {
  struct digest kernel;
  bool is_build; /* of that kernel; else it is the kernel itself */
  struct digest build;
};

/* As JSON: {"key": "sha256:…", "signature": base64, "expires": "…"}. */
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

/* Finds a signature of this code by a trusted key that has not expired at `now_s`; of several the
 * one that expires last. Elements of the JSON array (NULL: empty) that are not signatures are
 * ignored. The error distinguishes unsigned code, signatures by other keys, expired ones, and a
 * trusted key's signature of something else. */
must_check bool code_signature_find(const struct signed_code *code, const json_t *signatures,
                                    const struct trusted_keys *keys, int64_t now_s,
                                    struct code_signature *ret, struct error *error);

/* "kernel sha256:…" or "build sha256:…". Returns text. */
#define SIGNED_CODE_TEXT_SIZE (8 + DIGEST_TEXT_SIZE)
char *signed_code_format(const struct signed_code *code, char text[SIGNED_CODE_TEXT_SIZE]);

#endif
