/* Tokens that are routed to experts: what vLLM's and SGLang's moe_align_block_size give to a fused
 * mixture of experts (common/kernel/fill.h: routed fills).
 *
 * The same routing and seed give the same three arguments on every machine with the same libm.
 * Threads: pure functions. */
#ifndef WAVETUNE_AGENT_MEASURE_ROUTING_H
#define WAVETUNE_AGENT_MEASURE_ROUTING_H

#include "common/kernel/kernel.h"

/* Fills `elements` elements, at least as many as segments_find demands, with the sorted ids, the
 * experts of blocks, or the number of ids. */
void routing_fill(const struct routing *routing, enum dtype dtype, int64_t elements, uint64_t seed,
                  void *bytes);

#endif
