/* Which configs of a space are likely to win: those that won elsewhere. They are tried first.
 *
 * Winners of the same environment come first, nearest keys first; then those of the same key in other environments, newest
 * first. A winner is mapped by its values: where they are no point of the space it says nothing.
 * Memory: everything is borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_JOB_LIKELY_H
#define WAVETUNE_SERVER_JOB_LIKELY_H

#include "common/base/digest.h"
#include "common/space/space.h"

#define LIKELY_MAX 16

/* What won a job of the kernel. */
struct past_winner {
  struct digest key_digest, environment_digest;
  json_t *key, *config_values;
};

/* For a key in an environment; `winners` newest first. Writes distinct ordinals, likeliest first, and returns how many. */
size_t likely_choose(const struct space *space, const json_t *key, const struct digest *key_digest,
                     const struct digest *environment_digest, const struct past_winner *winners, size_t n,
                     uint64_t ret[LIKELY_MAX]);

/* How far apart two keys of a kernel are: the sum over numeric members of |log2| of their quotient, and KEY_DIFFERS for
 * each other member that differs. */
#define KEY_DIFFERS 8.0
double key_distance(const json_t *a, const json_t *b);

#endif
