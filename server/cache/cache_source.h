/* The source of a renderer: kernels, builds and files by their digests, from the database.
 *
 * Memory: the store owns what it loaded until cache_store_release. Threads: the db's own. */
#ifndef WAVETUNE_SERVER_CACHE_CACHE_SOURCE_H
#define WAVETUNE_SERVER_CACHE_CACHE_SOURCE_H

#include "common/cache/format.h"
#include "server/blob/blobs.h"

struct cache_store {
  struct worker *worker;
  bool has_failed; /* something could not be loaded: the rendered files are incomplete */
  struct error failure;
  size_t n_kernels, kernels_capacity;
  struct kernel **kernels;
  size_t n_builds, builds_capacity;
  struct build **builds;
  size_t n_files, files_capacity;
  struct blob **files;
};
void cache_store_release(struct cache_store *store);
#define cleanup_cache_store __attribute__((cleanup(cache_store_release)))

/* The source over a store that outlives it. */
must_check struct cache_source cache_store_source(struct cache_store *store);

#endif
