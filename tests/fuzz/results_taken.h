/* Whether a server accepts the body of POST /v1/leases/ID/results. */
#ifndef WAVETUNE_TESTS_FUZZ_RESULTS_TAKEN_H
#define WAVETUNE_TESTS_FUZZ_RESULTS_TAKEN_H

#include "common/base/json.h"

must_check bool results_taken(const json_t *body, struct error *error);

#endif
