/* Files that Triton's autotuner wrote, as kernels that are known by name only, and back.
 *
 * A function's winners are the kernel "triton/NAME" with the key {"folder": the 52 characters, "key": the JSON of the tuning
 * key} and exports {"triton": {"function": NAME, "kwargs": [names], "members": [of a config, in the file's order]}}. A
 * folder is a hash of what cannot be told from the file, so it is kept as it was.
 *
 * Memory and threads: what format.h says. */
#ifndef WAVETUNE_COMMON_CACHE_TRITON_TABLE_H
#define WAVETUNE_COMMON_CACHE_TRITON_TABLE_H

#include "common/cache/format.h"

/* Reads the NAME.autotune.json of a cache's tree and passes over what else Triton keeps there. */
must_check bool triton_table_read(const struct import_request *request, struct imported *ret, struct error *error);

/* The path and the bytes of one winner of such a kernel; `exports` is its {"function", "kwargs", "members"}. */
must_check bool triton_table_render(const json_t *exports, const json_t *key, const json_t *config, const double *ms,
                                    size_t n_ms, char **ret_path, char **ret_bytes, size_t *ret_size,
                                    struct error *error);

#endif
