/* Files that a second thread writes while the caller downloads, reads and renders others: half of
 * the cost of writing is the operating system's work for each page, and the disk starts early.
 *
 * Bytes go through a ring of pieces of memory, so that a cache of any size takes a megabyte.
 * Nothing is synced here, but large files begin to go to the disk at once, so that a final sync
 * takes less time.
 *
 * Memory: texts and pieces are copied, the bytes of file_stream_add_borrowed are borrowed. Threads:
 * one calls, one writes; the process's umask is 0 while a stream exists. */
#ifndef WAVETUNE_CLI_FILE_STREAM_H
#define WAVETUNE_CLI_FILE_STREAM_H

#include "common/cache/format.h"

struct file_stream;

/* Writes below `folder`, which exists. Fails once deadline_ms of the monotonic clock has passed (0:
 * no deadline). *ret_stream may be set, and is the caller's, even when false is returned. */
must_check bool file_stream_new(const char *folder, int64_t deadline_ms,
                                struct file_stream **ret_stream, struct error *error);
/* Discards what is not written yet. */
void file_stream_free(struct file_stream *stream);
DEFINE_CLEANUP(struct file_stream *, cleanup_file_stream_free, file_stream_free)
#define cleanup_file_stream cleanup_by(cleanup_file_stream_free)

/* Adds one file, with the default modes. The bytes are borrowed until the stream has ended. */
void file_stream_add_borrowed(struct file_stream *stream, const char *path, const char *bytes,
                              size_t size);

/* A sink for a renderer's large files, which are written below `below` in the folder. Valid until
 * the next call. */
const struct cache_sink *file_stream_sink(struct file_stream *stream, const char *below);

/* Adds the files of a cache, below `below`. */
void file_stream_add(struct file_stream *stream, const char *below,
                     const struct cache_files *files);

/* Waits until everything is written; the error is the first one. Nothing may be added afterwards.
 */
must_check bool file_stream_finish(struct file_stream *stream, struct error *error);

#endif
