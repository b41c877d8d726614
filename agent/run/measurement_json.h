/* A measurement as it is posted: an element of the "measurements" of POST /v1/leases/ID/results, but for its "seq".
 *
 * Memory: a new reference. Threads: a pure function. */
#ifndef WAVETUNE_AGENT_RUN_MEASUREMENT_JSON_H
#define WAVETUNE_AGENT_RUN_MEASUREMENT_JSON_H

#include "agent/lease/lease.h"

/* Of what a server would not take the rest is kept: a text is cut, what is known of the code and cannot be is left out. */
must_check json_t *measurement_to_json(const struct lease *lease, const struct measurement *measurement);

/* A compiler's words may be in any encoding, and of any length. */
must_check json_t *words_to_json(const char *text);

#endif
