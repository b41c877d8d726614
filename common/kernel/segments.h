/* What launches are passed of a buffer whose extents and contents depend on the config: tokens that
 * are routed to experts are padded to a multiple of the config's block.
 *
 * An argument with "segments": MEMBER has one buffer with a segment for each value that the member
 * has in the space, whether or not conditions exclude it, one behind another. Shape and fill are
 * evaluated over the key, gpu_name, arch and that member alone. A launch is passed the address of
 * its config's segment. Every other buffer is a single segment.
 *
 * Memory: segments are the caller's, and borrow values from the space. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_KERNEL_SEGMENTS_H
#define WAVETUNE_COMMON_KERNEL_SEGMENTS_H

#include "common/kernel/kernel.h"

#define SEGMENTS_MAX 64 /* values of the member */
#define SEGMENT_ALIGNMENT 256

struct segment {
  struct value value; /* of the member; None where there is only one segment */
  size_t offset;      /* in the buffer, in bytes */
  int64_t elements;
  struct routing routing; /* of a routed fill */
};
struct segments {
  size_t n;
  struct segment *all;
  int64_t elements; /* of the buffer */
};

/* On failure *ret_text is the argument's expression that is at fault, or "". */
must_check bool segments_find(const struct argument *argument, const struct space *space,
                              const struct space_facts *facts, struct segments *ret_segments,
                              const char **ret_text, struct error *error);
void segments_release(struct segments *segments);
#define cleanup_segments cleanup_by(segments_release)

/* The index of the config's segment. */
size_t segment_of(const struct argument *argument, const struct segments *segments,
                  const struct space *space, uint64_t config);

#endif
