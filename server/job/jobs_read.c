/* SQL that reads jobs' measurements. Memory and threads: as job_store.h says. */
#include "server/db/values.h"
#include "server/job/job_store.h"

#define SQL_DIGEST(column) "'sha256:' || encode(" column ", 'hex')"

/* A page ends early when its samples are many, so that its size in memory is bounded; it has a measurement in any case. */
#define PAGE_TIMES_MAX "100000"

/* clang-format off */
static const struct statement measurements_list_statement = {
    "job_measurements_list",
    "SELECT j.id AS job, m.id, m.n, json_build_object('id', m.id::text, 'lease', m.lease_id::text, 'epoch', m.epoch,"
    " 'seq', m.seq, 'agent', m.agent, 'device', m.device, 'config', m.config, 'stage', m.stage, 'round', m.round,"
    " 'process', m.process, 'outcome', m.outcome, 'detail', m.detail, 'timer', m.timer, 'regime', m.regime,"
    " 'samples_us', m.samples_us, 'baseline_us', m.baseline_us, 'clock_mhz', m.clock_mhz,"
    " 'compile_ms', m.compile_ms, 'device_us', m.device_us, 'vgprs', m.vgprs, 'agprs', m.agprs, 'spills', m.spills,"
    " 'lds_bytes', m.lds_bytes, 'occupancy', m.occupancy, 'end', m.\"end\", 'object', " SQL_DIGEST("o.object") ","
    " 'conditions', m.conditions, 'late', m.late, 'quarantined', m.quarantined, 'at', " SQL_TIME("m.at") ") AS item"
    " FROM jobs j LEFT JOIN LATERAL (SELECT *, count(*) OVER () AS n,"
    "  sum(2 * cardinality(samples_us)) OVER (ORDER BY id) - 2 * cardinality(samples_us) AS times_before"
    "  FROM (SELECT * FROM measurements WHERE job_id = j.id AND id > $2 ORDER BY id LIMIT $3) page) m"
    " ON m.times_before < " PAGE_TIMES_MAX
    " LEFT JOIN measurement_objects o ON o.job_id = m.job_id AND o.measurement = m.id WHERE j.id = $1 ORDER BY m.id"};
/* clang-format on */

bool job_measurements_list(struct db *db, int64_t job, int64_t after, int64_t limit, json_t **ret_items,
                           int64_t *ret_next, bool *ret_known, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &measurements_list_statement, &parameters, &rows, error))
    return false;
  *ret_known = db_count(rows) > 0;
  bool empty = *ret_known && db_is_null(rows, 0, "id");
  int64_t n_page = *ret_known && !empty ? db_get_integer(rows, 0, "n") : 0; /* before it was cut */
  *ret_next = n_page == limit || n_page > db_count(rows) ? db_get_integer(rows, db_count(rows) - 1, "id") : 0;
  *ret_items = empty || !*ret_known ? json_array() : db_get_json_rows(rows, "item");
  return true;
}
