/* Kernels, their builds, and the signatures of both.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_KERNEL_KERNELS_H
#define WAVETUNE_SERVER_KERNEL_KERNELS_H

#include "common/builds/build.h"
#include "common/regime/regime.h"
#include "server/db/db.h"

/* The manifest of each of n kernels, a new reference; NULL where there is no such kernel. */
must_check bool kernels_load(struct db *db, const struct digest *hashes, size_t n,
                             json_t **ret_manifests, struct error *error);
must_check bool kernel_load(struct db *db, const struct digest *hash, json_t **ret_manifest,
                            struct error *error);

/* The canonical text of a kernel's build, the caller's; NULL when the kernel has no such build. */
must_check bool build_load(struct db *db, const struct digest *kernel, const struct digest *digest,
                           char **ret_text, struct error *error);

/* The code that a job runs, and the hardware that it runs on. */
struct code_of_job {
  const struct digest *hardware, *kernel;
  const struct digest *build; /* NULL: none */
  bool is_plain;              /* kernel_space_is_plain */
  enum regime regime;
};
/* How many live agents with this hardware would not be granted the job: they accept only code that
 * is signed by a key that they trust and has a plain space, or do not measure in the regime.
 * *ret_able: all of them do that. */
must_check bool agents_refusing(struct db *db, const struct code_of_job *code, int64_t live_ms,
                                int64_t *ret_n, bool *ret_able, struct error *error);

#endif
