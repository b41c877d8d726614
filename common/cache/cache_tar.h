/* A cache's files as one tar, which depends on nothing but them: sorted by path, each folder before what is in
 * it, without owners and times.
 *
 * Memory: the bytes are the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_CACHE_CACHE_TAR_H
#define WAVETUNE_COMMON_CACHE_CACHE_TAR_H

#include "common/cache/format.h"

must_check char *cache_files_tar(const struct cache_files *files, size_t *ret_size);

#endif
