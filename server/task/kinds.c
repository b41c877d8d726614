/* The kinds of tasks that this server leases. */
#include "server/capture/captures.h"
#include "server/measure/grants.h"

const struct lease_kind *const lease_kinds[] = {&measure_kind, &build_kind, NULL};
