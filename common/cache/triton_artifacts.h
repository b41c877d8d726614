/* Compiled artifacts in Triton's cache: the files of an object as a build has them, and the group file that tells Triton
 * where they are, by absolute paths (runtime/cache.py, FileCacheManager).
 *
 * Memory: what is added is the file set's. Threads: the one that renders. */
#ifndef WAVETUNE_COMMON_CACHE_TRITON_ARTIFACTS_H
#define WAVETUNE_COMMON_CACHE_TRITON_ARTIFACTS_H

#include "common/cache/format.h"

/* Adds a file by path; the same path with other bytes is refused, with the same it is there once. `bytes` is taken over.
 * `paths`: an object of those there are, made by json_object(). */
must_check bool cache_files_add_once(struct cache_files *files, json_t *paths, const char *path, char *bytes,
                                     size_t size, struct error *error);

/* Adds FOLDER/… for `cache`, {"folder", "files"} of a build: all files or none. When the image would not find it (compiled by
 * another build of Triton, with other variables set, or by a Triton that lies elsewhere), or other files of that name are
 * there, *ret_reason says so; when the source lacks a file, *ret_missing says which. Else they are NULL; they are the
 * caller's. `triton_key` is of the Triton that compiled, or NULL. */
must_check bool triton_artifacts_add(const struct render_request *request, const json_t *cache, const char *triton_key,
                                     struct cache_files *files, json_t *paths, char **ret_reason, char **ret_missing,
                                     struct error *error);

#endif
