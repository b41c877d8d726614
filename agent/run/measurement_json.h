/* A measurement as it is posted: an element of the "measurements" of POST /v1/leases/ID/results,
 * but for its "seq".
 *
 * Memory: a new reference. Threads: a pure function. */
#ifndef WAVETUNE_AGENT_RUN_MEASUREMENT_JSON_H
#define WAVETUNE_AGENT_RUN_MEASUREMENT_JSON_H

#include "agent/lease/lease.h"

/* `object`: of the code that it names; NULL: none. A text of which a server would not take all is
 * cut. */
must_check json_t *measurement_to_json(const struct lease *lease,
                                       const struct measurement *measurement,
                                       const struct digest *object);

/* A compiler's words may be in any encoding, and of any length. */
must_check json_t *words_to_json(const char *text);

#endif
