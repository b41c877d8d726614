/* Tasks of the kind measure: leases of configs (measurement/leases.h). */
#include "server/measure/grants.h"
#include "server/measure/lease_losses.sql.h"
#include "server/measure/measure.sql.h"

const struct lease_kind measure_kind = {
    .name = "measure",
    .grants = &measure_grants,
    .renew = &sql_leases_renew,
    .answer = measure_answer,
    .settle = measure_settle,
    .expired = &sql_leases_expire,
    .due = &sql_leases_expire_due,
    .defer = &sql_leases_defer,
    .shorten = &sql_leases_shorten,
    .restarted = &sql_leases_reclaim,
    .lost = measure_lost,
    .settle_lost = measure_settle_lost,
};
