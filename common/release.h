/* Releases: an immutable set of winners for one environment and tag, in canonical bytes with one digest.
 *
 * Canonical JSON: {"environment": {…}, "tag": "default", "version": 1,
 *   "winners": [{"config": {…}, "kernel": "sha256:…", "key": {…}, "name": "softmax/fused", "ordinal": 17,
 *                "space": "sha256:…"}]}
 * winners sorted by (name, kernel, canonical key). Nothing else is in it: no time, no measurement, no job. The same
 * winners give the same bytes and so the same digest, on every server.
 *
 * Memory: a release owns everything. Threads: read-only after parsing. */
#ifndef WAVETUNE_COMMON_RELEASE_H
#define WAVETUNE_COMMON_RELEASE_H

#include "common/environment.h"
#include "common/key.h"

struct release_winner {
  char *name;
  struct digest kernel;
  json_t *key;    /* object, owned */
  json_t *config; /* object, owned */
  uint64_t ordinal;
  struct digest space;
};

struct release {
  struct digest digest; /* of the canonical bytes */
  struct environment environment;
  char *tag;
  size_t n_winners;
  struct release_winner *winners;
};

/* Sorts the winners, writes the canonical bytes (NUL-terminated, owned by the caller) and sets release->digest.
 * Two winners for one (kernel, key) are an error. */
must_check bool release_seal(struct release *release, char **ret_bytes, size_t *ret_size, struct error *error);

/* From bytes: refuses what is not canonical (another order, other members), so that bytes and meaning are one: what is
 * parsed here and sealed again has the same bytes. Names and the tag are not empty; keys and configs are flat. */
must_check bool release_parse(const char *bytes, size_t size, struct release **ret_release, struct error *error);
void release_free(struct release *release);
DEFINE_CLEANUP(struct release *, cleanup_release_free, release_free)
#define cleanup_release __attribute__((cleanup(cleanup_release_free)))

/* {"added": [winner], "removed": [winner], "changed": [{"name", "kernel", "key", "from": config, "to": config}],
 *  "same": n} with winner {"name", "kernel", "key", "config"}. Both releases are sealed or parsed. Winners correspond by
 * (kernel, key), so a kernel whose hash changed is in removed and in added. A new reference. */
must_check json_t *release_diff(const struct release *from, const struct release *to);

#endif
