/* What the holders of tasks of all kinds do: renew them and answer. */
#include "server/lease/lease_kind.h"

#include "server/db/db_record.h"

#define ANSWER_ATTEMPTS 8 /* after conflicts with other transactions */

void bind_lease_holds(struct db_parameters *parameters, const struct lease_hold *holds, size_t n) {
  static const struct field fields[] = {
      RECORD_FIELD(INTEGER, struct lease_hold, task),
      RECORD_FIELD(INTEGER, struct lease_hold, epoch),
  };
  static const struct record record = RECORD(NULL, struct lease_hold, fields);
  bind_records(parameters, &record, holds, n);
}

bool lease_renew(struct db *db, const struct lease_kind *kind, const struct lease_hold *holds,
                 size_t n, int64_t lease_ms, struct db_parameters *more, struct db_rows **ret_rows,
                 struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_parameters *bound = more ? more : &parameters;
  bind_lease_holds(bound, holds, n);
  bind_integer(bound, "lease_ms", lease_ms);
  const struct lease_table *table = lease_table_of(kind);
  return db_run(db, table ? &table->renew : kind->renew, bound, ret_rows, error);
}

bool lease_answer(struct worker *worker, const struct lease_kind *kind, void *answer,
                  struct error *error) {
  if (!db_transaction(worker->db, ANSWER_ATTEMPTS, kind->answer, answer, error))
    return false;

  if (kind->settle)
    kind->settle(worker, answer);
  return true;
}
