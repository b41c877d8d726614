/* SQL that inserts the first leases of jobs, and raises the priority of leases. Memory and
 * threads: as the header says. */
#include "server/lease/lease_insert.h"

#include "server/db/db_record.h"
#include "server/lease/lease_insert.sql.h"

static const struct field first_fields[] = {
    {"job", FIELD_INTEGER, offsetof(struct lease_first, job)},
    {"configs", FIELD_RANGES, offsetof(struct lease_first, configs)},
    {"is_large", FIELD_BOOL, offsetof(struct lease_first, is_large)},
};
static const struct record first_record = RECORD(NULL, struct lease_first, first_fields);

bool leases_insert_first(struct db *db, const struct lease_first *leases, size_t n,
                         struct error *error) {
  if (n == 0)
    return true;

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &first_record, leases, n);
  return db_run(db, &sql_leases_insert_screen, &parameters, NULL, error);
}

bool jobs_raise_leases(struct db *db, const int64_t *jobs, size_t n, struct error *error) {
  if (n == 0)
    return true;

  cleanup_parameters struct db_parameters parameters = {0};
  bind_integers(&parameters, "jobs", jobs, n);
  return db_run(db, &sql_jobs_raise_leases, &parameters, NULL, error);
}
