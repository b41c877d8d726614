/* Making a release: winners in any order, canonical bytes out.
 *
 * Memory: the builder copies what it is given. Threads: one to a
 * builder. */
#ifndef WAVETUNE_COMMON_CACHE_RELEASE_BUILD_H
#define WAVETUNE_COMMON_CACHE_RELEASE_BUILD_H

#include "common/cache/release.h"

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
#define cleanup_release_builder __attribute__((cleanup(cleanup_release_builder_free)))

/* Refuses what a release cannot hold: nested or missing key members, an empty name, a provenance
 * without origin. */
must_check bool release_builder_add(struct release_builder *builder,
                                    const struct release_entry *entry, struct error *error);

/* Two winners for one (name, kernel, key) are an error. At least one winner. The result is what
 * release_parse makes of the bytes. */
must_check bool release_builder_finish(const struct release_builder *builder,
                                       struct release **ret_release, struct error *error);

#endif
