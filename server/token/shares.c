/* /v1/shares: the weight and the quota of each owner of jobs, which is the name of the token that
 * submitted them, and what its leases used.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include <math.h>

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"
#include "server/token/shares.sql.h"

struct share {
  int64_t id, open_jobs;
  char *owner, *waiting_since;
  double weight, device_seconds_per_day, device_seconds, device_seconds_today;
};
#define RECORD_OF struct share
static const struct field share_fields[] = {
    MEMBER(ID, id, FIELD_ANSWER),
    MEMBER(TEXT, owner, FIELD_ANSWER, .about = "the name of the token that submitted the jobs"),
    MEMBER(NUMBER, weight, FIELD_NOT_NULL, .least_number = 1e-3, .most_number = 1e3,
           .about = "an owner of weight 3 gets three times the device time of one of weight 1; "
                    "default: 1"),
    MEMBER(NUMBER, device_seconds_per_day, .least_number = 1e-3, .most_number = 1e12,
           .about = "after which it gets no leases until midnight (UTC); null: no limit"),
    MEMBER(NUMBER, device_seconds, FIELD_ANSWER,
           .about =
               "of its leases in the last minutes: they halve every 10 minutes, and each lease "
               "counts 0.1 more"),
    MEMBER(NUMBER, device_seconds_today, FIELD_ANSWER, .about = "since midnight (UTC)"),
    MEMBER(INTEGER, open_jobs, FIELD_ANSWER),
    MEMBER(TIME, waiting_since, FIELD_ANSWER,
           .about = "when the oldest of its jobs was submitted that has had no lease"),
};
#undef RECORD_OF
const struct record share_record = RECORD("Share", struct share, share_fields);

bool route_share_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_shares_list, .record = &share_record};
  return answer_page_by(worker, request, &list, error);
}

/* *ret_id: 0 when there is no such owner. */
static bool share_set(struct db *db, const char *owner, const struct share *share,
                      const struct author *author, int64_t *ret_id, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_share_set, error, BIND("owner", owner), BIND("weight", share->weight),
               BIND("device_seconds_per_day", share->device_seconds_per_day));
  if (!rows)
    return false;

  *ret_id = db_count(rows) ? db_get_integer(rows, 0, "id") : 0;
  json_t *limit =
      isnan(share->device_seconds_per_day) ? json_null() : json_real(share->device_seconds_per_day);
  json_t *detail =
      json_pack("{s:f, s:o}", "weight", share->weight, "device_seconds_per_day", limit);
  if (*ret_id)
    return audit_note(db, author, AUDIT_SET_SHARE, owner, detail, error);
  json_decref(detail);
  return true;
}

static bool share_answer(struct worker *worker, struct request *request, int64_t id,
                         struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_shares_list, error, BIND("after", id - 1), BIND("limit", 0));
  if (!rows)
    return false;

  return request_answer_json(request, 200, db_row_to_json(rows, &share_record, NULL));
}

bool route_share_put(struct worker *worker, struct request *request, struct error *error) {
  const char *owner = request->segments[0];
  struct share share;
  int64_t id = 0;
  record_init(&share_record, &share);
  share.weight = 1;
  bool ok =
      record_read(&share_record, request->json, "", &share, error) && db_begin(worker->db, error) &&
      db_end(worker->db, share_set(worker->db, owner, &share, request_author(request), &id, error),
             error);
  if (ok && !id)
    ok = error_of(error, ERROR_MISSING,
                  "there is no token \"%.64s\", and no job of such an owner; `wavetune token list` "
                  "prints all tokens",
                  owner);
  if (ok) {
    log_info("share: %s set owner=%.64s weight=%g", request->token_name, owner, share.weight);
    ok = share_answer(worker, request, id, error);
  }
  record_release(&share_record, &share);
  return ok;
}
