/* Lists and empties the partitions of measurements that are due. */
#include "server/measurement/retention.h"

#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/measurement/retention.sql.h"

#define REMOVE_ATTEMPTS 3

static const struct field retention_fields[] = {
    RECORD_FIELD(INTEGER, struct retention, partitions, FIELD_ANSWER),
    RECORD_FIELD(INTEGER, struct retention, jobs, FIELD_ANSWER),
    RECORD_FIELD(INTEGER, struct retention, bytes, FIELD_ANSWER),
    RECORD_FIELD(INTEGER, struct retention, kept, FIELD_ANSWER,
                 .about = "measurements of finals; null in a dry run"),
};
const struct record retention_record = RECORD(NULL, struct retention, retention_fields);

bool retention_list(struct db *db, int64_t keep_days, struct retention *ret, struct error *error) {
  cleanup_rows struct db_rows *due =
      db_query(db, &sql_retention_due, error, BIND("keep_days", keep_days));
  if (!due)
    return false;

  *ret = (struct retention){.partitions = db_count(due), .kept = FIELD_NONE};
  for (int row = 0; row < db_count(due); row++) {
    ret->jobs += db_get_integer(due, row, "jobs");
    ret->bytes += db_get_integer(due, row, "bytes");
  }
  return true;
}

struct emptying {
  int64_t keep_days;
  const struct author *author;
  struct retention *ret;
  bool *ret_more;
};

static bool oldest_remove(struct db *db, void *context, struct error *error) {
  const struct emptying *removal = context;
  int64_t keep_days = removal->keep_days;
  *removal->ret = (struct retention){0};
  *removal->ret_more = false;
  cleanup_rows struct db_rows *due =
      db_query(db, &sql_retention_due, error, BIND("keep_days", keep_days));
  if (!due)
    return false;
  if (!db_count(due))
    return true;

  *removal->ret_more = db_count(due) > 1;
  int64_t first_job = db_get_integer(due, 0, "first_job");
  cleanup_rows struct db_rows *removed = db_query(
      db, &sql_retention_remove, error, BIND("first_job", first_job), BIND("keep_days", keep_days));
  if (!removed)
    return false;
  if (!db_count(removed)) /* another server was faster */
    return true;

  const struct retention made = {1, db_get_integer(removed, 0, "jobs"),
                                 db_get_integer(removed, 0, "bytes"),
                                 db_get_integer(removed, 0, "kept")};
  *removal->ret = made;
  cleanup_free char *object = xasprintf("older than %lld days", (long long)keep_days);
  return audit_note(db, removal->author, AUDIT_COLLECT, object,
                    json_pack("{s:{s:I, s:I, s:I, s:I, s:I}}", "measurements", "from_job",
                              (json_int_t)first_job, "before_job",
                              (json_int_t)db_get_integer(due, 0, "end_job"), "jobs",
                              (json_int_t)made.jobs, "bytes", (json_int_t)made.bytes, "kept",
                              (json_int_t)made.kept),
                    error);
}

bool retention_remove(struct db *db, int64_t keep_days, const struct author *author,
                      struct retention *ret, bool *ret_more, struct error *error) {
  struct emptying removal = {keep_days, author, ret, ret_more};
  return db_transaction(db, REMOVE_ATTEMPTS, oldest_remove, &removal, error) ||
         (error->kind == ERROR_CONTENTION &&
          error_of(error, ERROR_CONTENTION,
                   "the measurements are in use, perhaps by a backup: none were removed; try "
                   "again later"));
}
