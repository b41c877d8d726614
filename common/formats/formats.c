/* The table of cache formats. A format is in the files NAME*.c and NAME.h of this folder; code that
 * several formats share is in common/cache. A new format needs a line here. */
#include "common/cache/format.h"

/* Sorted by name. */
#define FORMATS(X)                                                                                 \
  X(choices) X(dejavu) X(inductor) X(json) X(sglang_moe) X(triton) X(tunableop) X(vllm_moe)

#define X(name) extern const struct cache_format format_##name;
FORMATS(X)
#undef X

const struct cache_format *const cache_formats[] = {
#define X(name) &format_##name,
    FORMATS(X)
#undef X
        NULL};
