/* Files that a second thread writes while others are still downloaded, read and rendered: half of
 * the cost of writing is the kernel's work for each page, and the disk begins early.
 *
 * Bytes go through a few pieces of memory that are used again, so a cache of any size takes a
 * megabyte. Nothing is synced here, but the disk begins with large files at once, so that a final
 * sync takes less time.
 *
 * Memory: texts and pieces are copied, the bytes of file_stream_lend are borrowed. Threads: one
 * calls, one writes; the process's umask is 0 while a stream lives. */
#ifndef WAVETUNE_CLI_FILE_STREAM_H
#define WAVETUNE_CLI_FILE_STREAM_H

#include "common/cache/format.h"

struct file_stream;

/* Below `folder`, which is there. Gives up when deadline_ms of the monotonic clock has passed; 0:
 * never. *ret_stream may be set, and is the caller's, whatever is returned. */
must_check bool file_stream_new(const char *folder, int64_t deadline_ms,
                                struct file_stream **ret_stream, struct error *error);
/* Gives up what is not written yet. */
void file_stream_free(struct file_stream *stream);
DEFINE_CLEANUP(struct file_stream *, cleanup_file_stream_free, file_stream_free)
#define cleanup_file_stream __attribute__((cleanup(cleanup_file_stream_free)))

/* One file with the modes of a cache that states none; the bytes stay where they are until the
 * stream has ended. */
void file_stream_lend(struct file_stream *stream, const char *path, const char *bytes, size_t size);

/* Where a renderer may put the files that it begins: below `below` in the folder. Valid until it is
 * asked for again. */
const struct cache_sink *file_stream_sink(struct file_stream *stream, const char *below);

/* What a cache holds, below `below`. */
void file_stream_add(struct file_stream *stream, const char *below,
                     const struct cache_files *files);

/* Waits until all is written; false with the first thing that went wrong. Nothing may be added
 * after it. */
must_check bool file_stream_finish(struct file_stream *stream, struct error *error);

#endif
