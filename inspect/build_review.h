/* The review of a build: whether every object exists, has its digest, is code for the build's arch,
 * takes the arguments that the variant's signature passes, and can run; and which objects spill.
 *
 * The kernel's manifest is not needed: with `kernel` (may be NULL) signature and manifest must
 * name the same arguments with the same types.
 *
 * Memory: a review owns everything. Threads: any; the reader is called by the same thread. */
#ifndef WAVETUNE_INSPECT_BUILD_REVIEW_H
#define WAVETUNE_INSPECT_BUILD_REVIEW_H

#include "common/builds/build.h"
#include "common/code/code_object.h"
#include "inspect/findings.h"

/* Gets the blob with this digest; the review checks the digest itself. */
struct blob_reader {
  bool (*read)(void *context, const struct digest *digest, char **ret_bytes, size_t *ret_size,
               struct error *error);
  void *context;
};

struct build_review {
  char *arch, *triton; /* triton: NULL when it is not stated */
  size_t n_variants, n_objects, n_distinct, n_failed, n_refused, n_spilling, n_files;
  struct code_resources *resources; /* n_objects of them; unknown where an object could not be
                                       read */
  /* [{"variant", "config", "digest", "resources", "shared": LDS bytes that the launch adds to the
   * resources' or null, "waves_per_eu" with both or null, "refused": sentence or null}] */
  json_t *objects;
  struct review_findings findings;
};

/* `json` is a build.json. False only when it is not one at all; any other error is a finding. */
must_check bool build_review_make(const json_t *json, const struct kernel *kernel,
                                  const struct blob_reader *reader,
                                  struct build_review **ret_review, struct error *error);
void build_review_free(struct build_review *review);
DEFINE_CLEANUP(struct build_review *, cleanup_build_review_free, build_review_free)
#define cleanup_build_review cleanup_by(cleanup_build_review_free)

#endif
