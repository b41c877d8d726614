/* gzip in memory, without a time or a name: the same bytes compress to the same bytes.
 * Memory: the result is the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_GZIP_H
#define WAVETUNE_COMMON_BASE_GZIP_H

#include "common/base/base.h"

must_check char *gzip_compress(const char *bytes, size_t size, size_t *ret_size);

#endif
