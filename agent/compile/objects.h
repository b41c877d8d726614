/* The folder of compiled objects, which would grow for ever: what was not used for longest goes
 * first.
 *
 * Memory: none kept. Threads: any; several processes may share a folder. */
#ifndef WAVETUNE_AGENT_COMPILE_OBJECTS_H
#define WAVETUNE_AGENT_COMPILE_OBJECTS_H

#include "common/base/base.h"

#define OBJECTS_BYTES_MAX ((uint64_t)4 << 30)
#define OBJECTS_RECENT_S 3600

/* Of the file beside an object that holds the digest of its bytes, and lives as long as it. */
#define OBJECT_DIGEST_SUFFIX ".sha256"

/* Notes that an object is used now. */
void object_touch(const char *object);

/* Removes objects until the rest has at most bytes_max bytes, and the scratch folders of compiles
 * that were killed. What was used within recent_s seconds stays in any case: it may be another
 * process's. */
void objects_prune(const char *folder, uint64_t bytes_max, int64_t recent_s);

#endif
