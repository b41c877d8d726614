/* How digests, sets of configs and times travel between C and SQL's texts.
 *
 * Memory: as each says. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_DB_VALUES_H
#define WAVETUNE_SERVER_DB_VALUES_H

#include "common/space/space.h"
#include "common/verdict/budget.h"
#include "server/db/db.h"

/* A bigint as the API has ids: a decimal in a string, or null; a new reference. */
must_check json_t *db_get_id(const struct db_rows *rows, int row, const char *column);

/* A bytea literal, \x and 64 digits. */
#define BYTEA_TEXT_SIZE (2 + 2 * DIGEST_SIZE + 1)
char *digest_bytea(const struct digest *digest, char text[BYTEA_TEXT_SIZE]);
void db_digest(struct db_parameters *parameters, const struct digest *digest); /* borrowed until the run */
void db_array_digest(struct db_array *array, const struct digest *digest);
/* A bytea column of 32 bytes; aborts on anything else. */
struct digest db_get_digest(const struct db_rows *rows, int row, const char *column);

/* A json column, parsed; null for SQL null; a new reference. Aborts on what is no JSON: the column's type forbids it. */
must_check json_t *db_get_json(const struct db_rows *rows, int row, const char *column);
/* `column` of every row as a JSON array; a new reference. */
must_check json_t *db_get_json_rows(const struct db_rows *rows, const char *column);

/* An int8multirange literal, {[0,48),[50,72)}; the caller's. */
must_check char *multirange_format(const struct config_ranges *ranges);
/* The inverse, for what the database wrote; aborts on anything else. */
struct config_ranges multirange_parse(const char *text);

/* A bigint[] of ordinals, {17,3}: writes at most `most` of them and returns how many. */
size_t ordinals_parse(const char *text, uint64_t *ret, size_t most);

/* SQL: a timestamptz as RFC 3339 in UTC. */
#define SQL_TIME(column) "to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"

/* SQL: whether the lease l, of a known job, is open, so that leases_job serves it. With "state = 'open'" the planner may choose
 * leases_open, which it believes to be empty when the tables were analysed while no lease was open, and read every open
 * lease there is, once for each job. */
#define SQL_IS_OPEN "l.state IN ('open', 'held') AND l.state <> 'held'"

/* SQL: (job_id, n), how many rows of `rows` each job has. Locks the jobs in the order of their ids: who waits for one holds
 * none that comes after it. */
#define SQL_COUNT_BY_JOB(rows)                                                                                         \
  "(SELECT jobs.id AS job_id, r.n FROM (SELECT job_id, count(*)::int AS n FROM " rows                                  \
  " GROUP BY job_id) r JOIN jobs ON jobs.id = r.job_id ORDER BY jobs.id FOR NO KEY UPDATE OF jobs)"

/* SQL: by how much the opening_us of a request `r` is more than what was stated before of the lease `l`
 * in its epoch. A repeated request adds nothing. */
#define SQL_OPENING_MORE "GREATEST(r.opening_us - l.epoch_opening_us, 0)"

/* SQL: what db_get_budget reads of each job `j`, and the join that has it; nothing is looked up for jobs without a budget. */
#define SQL_BUDGET                                                                                                     \
  "j.budget_device_ms * 1000 AS budget_us, b.spent_us, b.opening_us, b.openings, b.measured, b.final_us,"              \
  " b.final_processes"
#define SQL_BUDGET_JOIN                                                                                                \
  " CROSS JOIN LATERAL (SELECT sum(device_us + opening_us)::bigint AS spent_us,"                                       \
  "  sum(opening_us)::bigint AS opening_us, count(*) FILTER (WHERE opening_us > 0) AS openings,"                       \
  "  sum((SELECT sum(o) FROM unnest(outcomes) o))::bigint AS measured,"                                                \
  "  (sum(device_us + opening_us) FILTER (WHERE stage = 'final'))::bigint AS final_us,"                                \
  "  count(DISTINCT process) FILTER (WHERE stage = 'final' AND state = 'done') AS final_processes"                     \
  "  FROM leases WHERE job_id = j.id AND j.budget_device_ms IS NOT NULL) b"
struct budget db_get_budget(const struct db_rows *rows, int row);

#endif
