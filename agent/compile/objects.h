/* The folder of compiled objects: the least recently used ones are removed when it grows too large.
 *
 * Memory: none kept. Threads: any; several processes may share a folder. */
#ifndef WAVETUNE_AGENT_COMPILE_OBJECTS_H
#define WAVETUNE_AGENT_COMPILE_OBJECTS_H

#include "common/base/base.h"

#define OBJECTS_BYTES_MAX ((uint64_t)4 << 30)
#define OBJECTS_RECENT_S 3600

/* Of the file beside an object with the digest of the object's bytes, removed together with it. */
#define OBJECT_DIGEST_SUFFIX ".sha256"

/* Notes that an object is used now. */
void object_touch(const char *object);

/* Removes objects until the rest has at most bytes_max bytes, and the scratch folders of compiles
 * that were killed. What was used within recent_s seconds is kept in any case: another process may
 * be using it. */
void objects_prune(const char *folder, uint64_t bytes_max, int64_t recent_s);

#endif
