/* Signatures of kernels and builds, and which agents want them.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_KERNEL_CODE_SIGNATURES_H
#define WAVETUNE_SERVER_KERNEL_CODE_SIGNATURES_H

#include "common/cache/code_signature.h"
#include "server/audit/audit.h"

#define CODE_SIGNATURES_MAX 64 /* of one kernel or build, each by another key */

/* Whether there is such a kernel, or that kernel has such a build. */
must_check bool code_is_registered(struct db *db, const struct signed_code *code,
                                   bool *ret_is_registered, struct error *error);

/* Stores a signature that was verified, of code that is registered. Of two by one key the one that
 * lasts longer stays: whoever reads the other can send it again. *ret_has_room is false when
 * CODE_SIGNATURES_MAX other keys signed it; nothing is stored then. Otherwise *ret_answer is
 * {"kernel", "build", "signatures"}, a new reference: all that it has now, in the order in which
 * they were made. */
must_check bool code_signature_store(struct db *db, const struct signed_code *code,
                                     const struct code_signature *signature,
                                     const struct author *author, bool *ret_has_room,
                                     json_t **ret_answer, struct error *error);

/* How many live agents with this hardware would not be given a job of the kernel, of the build
 * where that is not NULL: they take only what is signed by keys that they trust, and where its
 * space is plain (kernel_space_is_plain). */
must_check bool agents_refusing(struct db *db, const struct digest *hardware,
                                const struct digest *kernel, const struct digest *build,
                                bool is_plain, int64_t live_ms, int64_t *ret_n,
                                struct error *error);

#endif
