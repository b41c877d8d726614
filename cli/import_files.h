/* The files that `wavetune import` is given, read into memory.
 *
 * A file is taken as it is; of a folder those are that tables are written to (by the ends of their
 * names), wherever in it they lie, sorted; what begins with '.' is left out. Links in a folder are
 * not followed: one that stays inside names what is read anyway, and one that leads out is refused.
 * In the result a file has its whole path without the first '/', because what a table holds for may
 * stand in the folders above it. Bounded by the limits below.
 *
 * Memory: the files are the caller's. Threads: one. */
#ifndef WAVETUNE_CLI_IMPORT_FILES_H
#define WAVETUNE_CLI_IMPORT_FILES_H

#include "common/cache/format.h"

#define IMPORT_FILES_MAX 10000
#define IMPORT_FILE_MAX ((size_t)64 << 20)
#define IMPORT_BYTES_MAX ((size_t)256 << 20) /* of all files together */

struct import_files {
  struct cache_files files;
  size_t n_roots, capacity;
  char **roots; /* the real folders that were named, or that hold a named file */
};

/* `paths` are what somebody typed. All or nothing; an error names the path. */
must_check bool import_files_read(char *const *paths, size_t n_paths, struct import_files *ret,
                                  struct error *error);
void import_files_release(struct import_files *files);
#define cleanup_import_files __attribute__((cleanup(import_files_release)))

/* The part of a read file's path that does not depend on where on this machine it lies: what is
 * below its root. Borrowed from `path`. */
const char *import_files_name(const struct import_files *files, const char *path);

#endif
