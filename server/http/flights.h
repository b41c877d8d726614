/* Single flight: of the requests for an answer that is not cached, one makes it (it leads the
 * flight), and those that come meanwhile wait until it has ended.
 *
 * A request waits for one flight only: when that one ended and cached no answer, the request makes
 * its own. Memory: of constant size. Threads: any; the lock is held for constant time. */
#ifndef WAVETUNE_SERVER_HTTP_FLIGHTS_H
#define WAVETUNE_SERVER_HTTP_FLIGHTS_H

#include "common/base/base.h"

#define FLIGHTS_MAX 64 /* at a time; with more workers, some make the same answer twice */

struct flights;
must_check struct flights *flights_new(void);
void flights_free(struct flights *flights);

enum flight { FLIGHT_LEADS, FLIGHT_WAITS, FLIGHT_ALONE };
/* `key`: the answer's. `*number`: the flight that the request waits for, 0 at first. A request that
 * leads calls flights_end. */
must_check enum flight flights_begin(struct flights *flights, uint64_t key, uint64_t *number);
void flights_end(struct flights *flights, uint64_t key);

#endif
