/* What Triton's cache of autotuning (3.4 and newer) wants to find for a @triton.autotune function:
 * the path and the bytes of the file for one key and one config (autotuner.py, check_disk_cache).
 *
 * Path: FOLDER/NAME.autotune.json with NAME the function's name cut to 150 characters, and FOLDER
 * the base32 of the SHA-256 of "-".join([triton_key, backend_hash, cache_key,
 * str(sorted(env.items())), str(tuning_key)] + [str(c) for c in configs]). The tuning key is the
 * values of the decorator's `key` and the dtypes of the arguments that have one. Bytes: one entry,
 * the winner's: Triton takes the best of those that are there, and measures none. Members that the
 * version does not know would stop it: ir_override stands only where the record's configs print it.
 * A record without "autotune" is of a function that was packed with a space: the file is for who
 * decorates it with those configs.
 *
 * A function's winners that were imported are the kernel "triton/NAME" with the key {"folder": the
 * 52 characters, "key": the JSON of the tuning key} and exports {"triton": {"function": NAME,
 * "kwargs": [names], "members": [of a config, in the file's order]}}. A folder is a hash of what
 * cannot be told from the file, so it is kept as it was.
 *
 * triton.c renders, artifacts too; triton_autotune.c has what is below.
 * Memory: a function owns what it made and borrows the record. Threads: read-only after
 * triton_function_init. */
#ifndef WAVETUNE_COMMON_FORMATS_TRITON_H
#define WAVETUNE_COMMON_FORMATS_TRITON_H

#include "common/builds/triton_folder.h"
#include "common/cache/format.h"
#include "common/cache/tuning_key.h"

struct triton_function {
  const struct function_record *record;
  char *file;           /* NAME.autotune.json */
  char *before, *after; /* of the tuning key in what is hashed */
  struct tuning_key key;
  json_t *kwargs; /* names, in the order of the record's configs, with how many of those have them:
                     an object */
  json_t *fixed;  /* num_warps … as all configs of the record have them; null where they differ: an
                     object */
};

/* What the paths of a kernel's winners are made of. The record is the image's, or (is_packed) that
 * of the build: then the image's own Triton counts where the identity states it. `kernel`: the
 * manifest, or NULL. A refusal is the reason why the format cannot say the kernel. */
must_check bool triton_function_init(const struct function_record *record, bool is_packed,
                                     const struct identity *identity, const struct kernel *kernel,
                                     const char *const *key_names, size_t n_key_names,
                                     struct triton_function *ret, struct error *error);
void triton_function_release(struct triton_function *function);

/* The path and the file for the values of a key (in the order of key_names) and a config; ms: what
 * was measured, none, the median, or median and 20th and 80th percentile. A median alone stands for
 * all three; where nothing is known the list of timings is empty, which is all that Triton needs of
 * the only entry. */
must_check bool triton_function_render(const struct triton_function *function,
                                       const struct value *key, const json_t *config,
                                       const double *ms, size_t n_ms, char **ret_path,
                                       char **ret_bytes, size_t *ret_size, struct error *error);

/* Imported tables */

/* Reads the NAME.autotune.json of a cache's tree and passes over what else Triton keeps there. */
must_check bool triton_table_read(const struct import_request *request, struct imported *ret,
                                  struct error *error);

/* The path and the bytes of one winner of such a kernel; `exports` is its {"function", "kwargs",
 * "members"}. */
must_check bool triton_table_render(const json_t *exports, const json_t *key, const json_t *config,
                                    const double *ms, size_t n_ms, char **ret_path,
                                    char **ret_bytes, size_t *ret_size, struct error *error);

#endif
