/* Counts the open and held leases of the database, for /metrics. Threads: the housekeeper's. */
#include "server/gauges.h"
#include "server/measurement/lease_counts.sql.h"
#include "server/measurement/leases.h"

bool leases_count(struct worker *worker, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(worker->db, &sql_leases_count, NULL, &rows, error))
    return false;

  struct gauges *gauges = gauges_take(worker->server);
  gauges->leases = (struct lease_counts){.read_ms = clock_monotonic_ms(),
                                         .open = db_get_integer(rows, 0, "open"),
                                         .held = db_get_integer(rows, 0, "held"),
                                         .oldest_open_s = db_get_double(rows, 0, "oldest_open_s"),
                                         .oldest_held_s = db_get_double(rows, 0, "oldest_held_s")};
  gauges_give(gauges);
  return true;
}
