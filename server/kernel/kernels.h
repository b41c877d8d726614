/* The tables of kernels and builds.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_KERNEL_KERNELS_H
#define WAVETUNE_SERVER_KERNEL_KERNELS_H

#include "common/builds/build.h"
#include "server/audit/audit.h"

/* The digests of a kernel's files, each once; the caller's. */
must_check struct digest *kernel_files(const struct kernel *kernel, size_t *ret_n);

/* All that a manifest or a build refers to must be stored; blobs_missing says what is not. One
 * transaction. */
must_check bool kernel_store(struct db *db, const struct kernel *kernel,
                             const struct author *author, bool *ret_is_new, struct error *error);
must_check bool build_store(struct db *db, const struct build *build, const struct author *author,
                            bool *ret_is_new, struct error *error);

/* The manifest's JSON, a new reference; NULL when there is no such kernel. */
must_check bool kernel_load(struct db *db, const struct digest *hash, json_t **ret_manifest,
                            struct error *error);

/* The same for each of several: ret_manifests has room for n. */
must_check bool kernels_load(struct db *db, const struct digest *hashes, size_t n,
                             json_t **ret_manifests, struct error *error);

/* The answer of GET /v1/kernels/{hash}, a new reference; NULL when there is no such kernel. */
must_check bool kernel_read(struct db *db, const struct digest *hash, json_t **ret_answer,
                            struct error *error);

/* The canonical text of a kernel's build, the caller's; NULL when the kernel has no such build. */
must_check bool build_load(struct db *db, const struct digest *kernel, const struct digest *digest,
                           char **ret_text, struct error *error);

/* Items of the lists, oldest first, with ids above `after`; *ret_next is 0 at the end. `name` NULL:
 * all. */
must_check bool kernels_list(struct db *db, const char *name, int64_t after, int64_t limit,
                             json_t **ret_items, int64_t *ret_next, struct error *error);
must_check bool builds_list(struct db *db, const struct digest *kernel, int64_t after,
                            int64_t limit, json_t **ret_items, int64_t *ret_next,
                            struct error *error);

#endif
