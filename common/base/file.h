/* Whole files and folders: bounded reading, writing that is either complete or absent.
 *
 * Memory: what ret_ parameters return is the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_FILE_H
#define WAVETUNE_COMMON_BASE_FILE_H

#include "common/base/error.h"

/* Reads a regular file of at most size_max bytes. A NUL, which *ret_size does not count, ends the
 * text. */
must_check bool file_read(const char *path, size_t size_max, char **ret_text, size_t *ret_size,
                          struct error *error);

/* The same of an open file, which `name` names in errors. */
must_check bool fd_read_all(int fd, const char *name, size_t size_max, char **ret_text,
                            size_t *ret_size, struct error *error);

/* Writes bytes to a temporary file beside `path`, syncs it, renames it over `path` and syncs the
 * folder: after a crash `path` is the old file or the complete new one. `mode` is the file's
 * permission bits, less the process's umask. */
must_check bool file_write_atomically(const char *path, const void *bytes, size_t size,
                                      unsigned mode, struct error *error);
/* The same without a sync: readers find the old file or the new one, but after a crash of the
 * machine the new one may lack bytes. For files whose digest is checked when they are read. */
must_check bool file_write_unsynced(const char *path, const void *bytes, size_t size, unsigned mode,
                                    struct error *error);

/* Whether only its owner may read or change the file of a private key. With `or_roots_group` the
 * group of a file of root may read it, too: services share the machine's keys in this way. */
must_check bool file_is_private(const char *path, bool or_roots_group, struct error *error);

/* Makes the name of a file durable: syncs the folder that contains it. */
must_check bool folder_sync(const char *file_path);

/* Makes the folder and its missing parents with `mode`. A folder that exists is success. */
must_check bool folder_make(const char *path, unsigned mode, struct error *error);

/* Makes a folder for this user alone, whose files are trusted (for example compiled code). Refuses
 * an existing one that belongs to another user than this one and root, or to which all users may
 * write. */
must_check bool folder_make_private(const char *path, struct error *error);

/* Makes a folder with a new name in $TMPDIR, else in /tmp. The caller owns the name, and removes
 * the folder (folder_remove). */
must_check bool folder_make_temporary(char **ret_path, struct error *error);

/* Removes a folder and its content without following links. A folder that does not exist is
 * success. */
must_check bool folder_remove(const char *path, struct error *error);

/* write(2) until all is written; on failure errno is set. */
must_check bool fd_write_all(int fd, const void *bytes, size_t size);

#endif
