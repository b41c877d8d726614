/* Counts the open and held leases of the database, for /metrics. Threads: the housekeeper's. */
#include "server/lease/lease.h"
#include "server/lease/lease_counts.sql.h"

bool leases_count(struct worker *worker, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(worker->db, &sql_leases_count, NULL, &rows, error))
    return false;

  struct lease_counts counts = {.read_ms = clock_monotonic_ms()};
  for (int row = 0; row < db_count(rows); row++) {
    bool is_open = string_equal(db_get(rows, row, "state"), "open");
    *(is_open ? &counts.open : &counts.held) = db_get_integer(rows, row, "n");
    *(is_open ? &counts.oldest_open_s : &counts.oldest_held_s) =
        db_get_double(rows, row, "oldest_s");
  }
  server_set_lease_counts(worker->server, &counts);
  return true;
}
