/* The `triton` format: what Triton itself keeps in TRITON_CACHE_DIR, so that @triton.autotune
 * (Triton 3.4 and newer, with TRITON_CACHE_AUTOTUNING=1) neither measures nor compiles.
 *
 * A winner is the file FOLDER/NAME.autotune.json (autotuner.py, check_disk_cache), with NAME the
 * function's name cut to 150 characters, and FOLDER the base32 of the SHA-256 of "-".join(
 * [triton_key, backend_hash, cache_key, str(sorted(env.items())), str(tuning_key)] + [str(c) for c
 * in configs]). The tuning key is the values of the decorator's `key` and the dtypes of the
 * arguments that have one. The file has one entry, the winner's: Triton takes the best that is
 * there, and measures none. Triton fails on a member that its version does not know, so
 * ir_override is written only where the record's configs print it. A record without "autotune" is
 * of a function that was packed with a space: the file serves a decorator with those configs. A
 * winner without timings has an empty list of them, which is enough for the only entry; zeros would
 * state what was not measured.
 *
 * The compiled artifacts of winners whose build has them are added where the files' place is known:
 * Triton finds artifacts by absolute paths. Where a manifest, a build or a file of it is not
 * available, results are written as far as they can be known without it, and the skip's reason
 * names what is missing: the container compiles such a winner itself. Folders are writable for all
 * users: Triton makes a lock and temporary folders there.
 *
 * A function's winners that were imported are the kernel "triton/NAME" with the key {"folder": the
 * 52 characters, "key": the JSON of the tuning key} and exports {"triton": {"function": NAME,
 * "kwargs": [names], "members": [of a config, in the file's order]}}. A folder's name hashes
 * values that the file does not have, so it is kept as it was.
 *
 * triton.c renders releases, triton_autotune.c makes and reads NAME.autotune.json.
 * Memory: a function owns what it made and borrows the record. Threads: format.h. */
#ifndef WAVETUNE_COMMON_FORMATS_TRITON_H
#define WAVETUNE_COMMON_FORMATS_TRITON_H

#include "common/cache/autotuner.h"
#include "common/cache/format.h"

/* What the paths of a kernel's winners are made of. */
struct triton_function {
  const struct function_record *record;
  char *before, *after; /* of the tuning key in what is hashed */
  struct tuning_key key;
  json_t *kwargs; /* an object: names, in the order of the record's configs, with the number of
                     configs that have each */
  json_t *fixed;  /* an object: num_warps … with the value that all configs of the record have; {}
                     where they differ */
};

/* The record is the image's, or (is_packed) that of the build: then the image's own Triton is
 * used where the identity states it. `manifest` may be NULL. A refusal is the reason why the format
 * cannot express the kernel; *ret is released in any case. */
must_check bool triton_function_init(struct triton_function *ret,
                                     const struct function_record *record, bool is_packed,
                                     const struct render_request *request,
                                     const struct release_kernel *kernel,
                                     const struct kernel *manifest, struct error *error);
void triton_function_release(struct triton_function *function);

/* Adds the file of a winner; `values`: of the kernel's key. */
must_check bool triton_tuned_add(struct cache_files *files, const struct triton_function *function,
                                 const struct value *values, const json_t *config,
                                 const struct release_winner *winner, struct error *error);

/* The same of a winner that was imported; `exports` are its {"function", "kwargs", "members"}. */
must_check bool triton_imported_add(struct cache_files *files, const json_t *exports,
                                    const struct release_kernel *kernel,
                                    const struct release_winner *winner, struct error *error);

bool triton_is_table(const char *path);
must_check bool triton_read(const struct import_request *request, const struct cache_file *file,
                            struct imported *imported, struct error *error);

#endif
