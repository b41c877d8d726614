/* The known name that a mistyped one most likely meant, for "did you mean …?".
 *
 * Memory: what is returned is borrowed from `names`. Threads: any. */
#ifndef WAVETUNE_COMMON_NEAREST_H
#define WAVETUNE_COMMON_NEAREST_H

#include "common/base.h"

/* The name with the fewest insertions, deletions, replacements and swaps of neighbours; NULL when none is near: more
 * than a third of the name's length would change, or `text` is longer than NEAREST_MAX. */
#define NEAREST_MAX 64
const char *nearest_name(const char *text, const char *const *names, size_t n_names);

#endif
