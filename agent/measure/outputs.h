/* Two contents of an output on the host, compared: the default config's, and a later run's.
 *
 * Memory: none of its own. Threads: any; large outputs are read by a team (element.h). */
#ifndef WAVETUNE_AGENT_MEASURE_OUTPUTS_H
#define WAVETUNE_AGENT_MEASURE_OUTPUTS_H

#include "common/kernel/kernel.h"

struct tolerance {
  double atol, rtol; /* absolute; of each element */
};

struct comparison {
  enum dtype dtype;
  int64_t elements;
  const void *expected, *bytes;
  struct tolerance tolerance;
};

struct compared {
  int64_t far; /* the first element that differs too much; -1: none */
  double largest;
  int64_t count;
};

/* The root mean square of the finite elements; *ret_finite: how many these are. */
double output_rms(enum dtype dtype, const void *bytes, int64_t elements, int64_t *ret_finite);

/* `largest`: the largest difference between finite elements; `far`: where one is not finite and the
 * other not the same. The tolerance is not used. */
struct compared outputs_differ(const struct comparison *comparison);

/* `far`: |bytes - expected| > atol + rtol * |expected|, or not finite in one only; for integers
 * without a tolerance, not equal. Of 8-bit floats, `count` are the next value, which is not far. */
struct compared outputs_compare(const struct comparison *comparison);

/* Whether both could be drawn from one distribution: their means, mean squares and shares of
 * elements that are not finite differ by at most OUTPUTS_ERRORS standard errors. Of large outputs
 * about OUTPUTS_DRAWN_MAX elements, equally spaced, are counted. */
#define OUTPUTS_ERRORS 8
#define OUTPUTS_DRAWN_MAX ((int64_t)1 << 20)
bool outputs_are_alike(const struct comparison *comparison);

#endif
