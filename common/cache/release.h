/* Releases: an immutable set of winners for one environment, tag and regime, in canonical bytes
 * with one digest; reading, comparing and making them, and the rules by which one is served.
 *
 * Canonical JSON (no white space, members sorted by name, as json_canonical writes it), here with
 * breaks:
 *   {"environment": {…},
 *    "kernels": [{"configs": [{"ordinal": 17, "space": "sha256:…", "values": {"BLOCK_M": 64, …}}],
 *                 "kernel": "sha256:…", "key": ["M", "N", "K"], "name": "matmul/triton",
 *                 "provenance": [{"build": "sha256:…", "origin": "tuned",
 *                                 "spent_device_seconds": 1.25}],
 *                 "winners": [[[4096, 4096, 4096], 0, 0, [0.2031], 12], …]}],
 *    "regime": "warm", "tag": "default", "version": 2}
 * "regime" is there unless it is the implied one (regime_member). A winner is [key values in the
 * order of "key", index in configs, index in provenance, milliseconds, job]: milliseconds: [] (not
 * known), [median], or [median, 20th percentile, 80th percentile], as measured or imported; job:
 * the id of the job that chose it, 0 when none did (a pin without a job, an import). ordinal and
 * space are those of a config in a job's space; imported configs have neither. Provenance is a flat
 * object (members are null, booleans, numbers, strings). "origin" is one of tuned, pinned,
 * imported; "build" is the digest of the build that was measured, where there was one; "kernel_key"
 * and "build_key" are the ids of the keys whose signatures every agent that measured the winner's
 * final demanded (several with a space between); "spent_device_seconds" of what was tuned is the
 * device time of the job that chose the winner, with three digits; imports add "format", "source"
 * and what the format needs to restore the file. Kernels are sorted by (name, kernel); configs and
 * provenance by their canonical text, and each occurs once and is used; winners by the canonical
 * text of their key, one for each key. A release states neither a time nor a channel. The same
 * winners with the same provenance give the same bytes and so the same digest, on every server.
 *
 * A container waits at its start until up to 50,000 winners are read, so keys are not parsed: they
 * stay text in the release's bytes.
 *
 * Memory: a release owns everything; a builder copies what it is given. Threads: a release is
 * read-only after parsing; a builder is used by one. */
#ifndef WAVETUNE_COMMON_CACHE_RELEASE_H
#define WAVETUNE_COMMON_CACHE_RELEASE_H

#include "common/node/environment.h"
#include "common/regime/regime.h"
#include "common/space/key.h"

#define RELEASE_SIZE_MAX ((size_t)256 << 20)
#define RELEASE_MS_MAX 3

struct release_config {
  json_t *values;   /* object, owned; configs of several kernels with the same text share one */
  const char *text; /* its canonical text, in the release's bytes; not NUL-terminated */
  size_t text_size;
  bool has_ordinal; /* false: imported */
  uint64_t ordinal;
  struct digest space;
};

struct release_winner {
  const char *key; /* canonical JSON array of the key's values, in the release's bytes; not
                      NUL-terminated */
  size_t key_size;
  size_t config, provenance; /* indices in the kernel */
  size_t n_ms;               /* 0, 1 or 3 */
  double ms[RELEASE_MS_MAX];
  int64_t job; /* 0: none */
};

struct release_kernel {
  char *name;
  struct digest hash;
  size_t n_key_names;
  char **key_names; /* in the manifest's order */
  size_t n_configs;
  struct release_config *configs;
  size_t n_provenance;
  json_t **provenance; /* flat objects, owned */
  size_t n_winners;
  struct release_winner *winners;
};

struct release {
  char *bytes; /* canonical, NUL-terminated */
  size_t size;
  struct digest digest; /* of the bytes */
  struct environment environment;
  char *tag;
  enum regime regime;
  size_t n_kernels;
  struct release_kernel *kernels;
  size_t n_winners; /* of all kernels */
};

/* Parses untrusted bytes, which are copied. Refuses what is not canonical (another
 * order, white space, other members, numbers or strings written in another way), so that the same
 * winners have one digest. For releases that are to be signed or come from a file. Errors have
 * the position. */
must_check bool release_parse(const char *bytes, size_t size, struct release **ret_release,
                              struct error *error);

/* Parses bytes that have the requested digest. Checks the members and the order of kernels, configs
 * and winners. How numbers and strings are written was checked before signing, and is not checked
 * again: a container's start waits for this. The bytes are NUL-terminated beyond their size; on
 * success the release owns them, and *bytes is NULL. */
must_check bool release_take(char **bytes, size_t size, const struct digest *digest,
                             struct release **ret_release, struct error *error);
void release_free(struct release *release);
DEFINE_CLEANUP(struct release *, cleanup_release_free, release_free)
#define cleanup_release cleanup_by(cleanup_release_free)

/* The order in the bytes: of two kernels, and of two winners by their keys. */
int release_kernel_compare(const struct release_kernel *a, const struct release_kernel *b);
int release_winner_compare(const struct release_winner *a, const struct release_winner *b);

/* A winner's key, as values in the order of the kernel's key names, and as an object, a new
 * reference. `ret_values` has room for n_key_names values, whose strings
 * release_key_values_release frees. */
void release_key_values(const struct release_kernel *kernel, const struct release_winner *winner,
                        struct value *ret_values);
void release_key_values_release(const struct release_kernel *kernel, struct value *values);
must_check json_t *release_key_object(const struct release_kernel *kernel,
                                      const struct release_winner *winner);

/* {"added": [winner], "removed": [winner],
 *  "changed": [{"name", "kernel", "key", "from": config, "to": config}], "same": n}
 * with winner {"name", "kernel", "key", "config"}. Winners correspond by (name, kernel, key), so a
 * kernel whose hash changed is in removed and in added. A new reference. */
must_check json_t *release_diff(const struct release *from, const struct release *to);

/* Making a release: winners are added in any order. */

/* One winner as it is added; everything is borrowed for the call. */
struct release_entry {
  const char *name; /* the kernel's */
  struct digest kernel;
  const char *const *key_names; /* in the manifest's order; the same for every winner of a kernel */
  size_t n_key_names;
  const json_t *key;    /* an object with exactly these members */
  const json_t *config; /* a flat object */
  bool has_ordinal;
  uint64_t ordinal;
  struct digest space;
  const json_t *provenance; /* a flat object with "origin" */
  const double *ms;         /* n_ms of them: 0, 1 or 3; finite, > 0 */
  size_t n_ms;
  int64_t job;
};

struct release_builder;
must_check struct release_builder *release_builder_new(const struct environment *environment,
                                                       const char *tag, enum regime regime);
void release_builder_free(struct release_builder *builder);
DEFINE_CLEANUP(struct release_builder *, cleanup_release_builder_free, release_builder_free)
#define cleanup_release_builder cleanup_by(cleanup_release_builder_free)

/* Refuses what a release cannot hold: nested or missing key members, an empty name, a provenance
 * without origin. */
must_check bool release_builder_add(struct release_builder *builder,
                                    const struct release_entry *entry, struct error *error);

/* Fails without a winner, and with two for one (name, kernel, key). The result is what
 * release_parse makes of the bytes. */
must_check bool release_builder_finish(const struct release_builder *builder,
                                       struct release **ret_release, struct error *error);

/* The rules by which a cache that was made for one environment is served to another. The server
 * finds a cache by them, and a client checks the cache that it receives by them.
 *
 *   exact       every requested member is equal
 *   unstated    the cache's environment states less than was requested and contradicts none of it
 *               (environment_can_use), as imported tables do
 *   minor       equal in all but the patch level of ROCm (6.4.1 and 6.4.0)
 *   compatible  an operator declared the two compatible, which only the server knows; arch,
 *               compute_units and partition must be equal even then, so that a config of another
 *               GPU is never served
 *
 * A request allows one of: exact alone; unstated, the default: exact and unstated; minor: these two
 * and minor; compatible: all.
 *
 * The enum is from the narrowest to the widest, which is not the order in which a server tries
 * them. */
enum cache_rule { CACHE_RULE_EXACT, CACHE_RULE_UNSTATED, CACHE_RULE_MINOR, CACHE_RULE_COMPATIBLE };
#define CACHE_RULES "exact, unstated, minor or compatible"
extern const char *const cache_rule_names[]; /* by value, ended by NULL */
const char *cache_rule_name(enum cache_rule rule);
must_check bool cache_rule_parse(const char *name, enum cache_rule *ret_rule);

/* Whether this rule alone allows a cache of `served` for the environment `requested`; for
 * CACHE_RULE_COMPATIBLE, whether an operator's declaration could. */
bool cache_rule_serves(enum cache_rule rule, const struct environment *requested,
                       const struct environment *served);

/* Whether one of the rules up to `widest` does. */
bool cache_rules_serve(enum cache_rule widest, const struct environment *requested,
                       const struct environment *served);

#endif
