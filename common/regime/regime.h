/* Regimes: the conditions under which a kernel is measured, and for which a release is made. Jobs,
 * releases and channel entries have one. A new regime is a row here; everything else asks the
 * facts.
 *
 * Memory: static. Threads: any. */
#ifndef WAVETUNE_COMMON_REGIME_REGIME_H
#define WAVETUNE_COMMON_REGIME_REGIME_H

#include "common/base/json.h"

/* How the calls of a sample are launched. */
enum regime_launch {
  REGIME_LAUNCH_DIRECT, /* each by a call of the runtime */
};

/* Whether calls rotate over copies of the operands, so that none finds its operands in a cache;
 * whether instruction caches are flushed before each sample, where the device can do that; how
 * calls are launched. The first is the implied one. Rows are added at the end: agents that do not
 * state what they run measure the first REGIMES_UNSTATED. */
#define REGIME_IMPLIED_NAME "cold"
#define REGIMES(X)                                                                                 \
  X(COLD, REGIME_IMPLIED_NAME, true, true, DIRECT)                                                 \
  X(WARM, "warm", false, false, DIRECT)
#define REGIMES_UNSTATED 2

#define X(id, name, rotates, flushes, launch) REGIME_##id,
enum regime { REGIMES(X) };
#undef X

/* The regime of documents and requests that state none. */
#define REGIME_IMPLIED ((enum regime)0)

struct regime_facts {
  const char *name;
  bool rotates, flushes;
  enum regime_launch launch;
};
/* Aborts on a value that is no regime; so do the next two. */
const struct regime_facts *regime_facts(enum regime regime);
const char *regime_name(enum regime regime);
/* The member "regime" of releases and entries: NULL for the implied one, which they do not state,
 * so that they keep the digests that they had before there were regimes. */
const char *regime_member(enum regime regime);

extern const char *const regime_names[]; /* by value, ended by NULL */

/* "cold|warm": the argument of the option --regime. */
extern const char regime_alternatives[];
#define REGIME_ALTERNATIVES (regime_alternatives + 1)

must_check bool regime_parse(const char *name, enum regime *ret, struct error *error);
/* The member "regime" of an object; the implied one where it is absent. */
must_check bool regime_get(const json_t *json, const char *pointer, enum regime *ret,
                           struct error *error);

#endif
