/* The table of cache formats. A format is in the files NAME*.c and NAME.h of this folder; code that
 * several formats share is in common/cache. A new format needs a line here. */
#include "common/cache/format.h"

/* Sorted by name. */
#define FORMATS(X)                                                                                 \
  X(aiter_triton)                                                                                  \
  X(choices)                                                                                       \
  X(dejavu)                                                                                        \
  X(inductor)                                                                                      \
  X(json)                                                                                          \
  X(sglang_moe)                                                                                    \
  X(sglang_w8a8)                                                                                   \
  X(triton)                                                                                        \
  X(tunableop)                                                                                     \
  X(vllm_moe)                                                                                      \
  X(vllm_w8a8)

#define X(name) extern const struct cache_format format_##name;
FORMATS(X)
#undef X

const struct cache_format *const cache_formats[] = {
#define X(name) &format_##name,
    FORMATS(X)
#undef X
        NULL};
