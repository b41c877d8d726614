/* POST /v1/counters: what programs that start tuned counted.
 *
 * Memory: what the handler makes lives as long as it runs. Threads: database workers. */
#include "server/counters.h"

#include "server/choice/choices.h"
#include "server/choice/counters.sql.h"
#include "server/db/db_record.h"
#include "server/http/rates.h"
#include "server/records.h"

#define TAG_MAX 200
#define COUNT_MAX 100000 /* of each counter of a report */
#define MS_MAX 1e9

struct counters_report {
  char *tag;
  int64_t hits, misses, unfit, failures;
  double saved_ms;
};
#define COUNTER(counter, what)                                                                     \
  RECORD_FIELD(INTEGER, struct counters_report, counter, FIELD_NOT_NULL, .most = COUNT_MAX,        \
               .about = what)
static const struct field report_fields[] = {
    RECORD_FIELD(TEXT, struct counters_report, tag, FIELD_NOT_NULL | FIELD_LINE, .least = 1,
                 .most = TAG_MAX),
    COUNTER(hits, "keys that found a choice"),
    COUNTER(misses, "keys without a choice"),
    COUNTER(unfit, "choices that were not one config of the program"),
    COUNTER(failures, "requests without an answer, and errors in the wheel"),
    RECORD_FIELD(NUMBER, struct counters_report, saved_ms, FIELD_NOT_NULL, .most_number = MS_MAX,
                 .about = "the sum of the hits' tuning_ms"),
};
const struct record counters_report_record =
    RECORD("CountersReport", struct counters_report, report_fields);

/* Adds a report to /metrics: by its tag if a channel has that tag, so that a client cannot make
 * labels. */
static bool counters_keep(struct db *db, const struct counters_report *report,
                          struct error *error) {
  const double counts[PROGRAM_COUNTER_COUNT] = {
      [PROGRAM_hits] = (double)report->hits,
      [PROGRAM_misses] = (double)report->misses,
      [PROGRAM_unfit] = (double)report->unfit,
      [PROGRAM_failures] = (double)report->failures,
      [PROGRAM_saved_seconds] = report->saved_ms / 1e3,
  };
  cleanup_rows struct db_rows *rows = NULL;
  bool is_there = program_tag_is_counted(report->tag);
  if (!is_there && !(rows = db_query(db, &sql_counters_tag, error, BIND("tag", report->tag))))
    return false;

  program_counters_add(is_there || db_count(rows) ? report->tag : "", counts);
  return true;
}

bool route_counters_post(struct worker *worker, struct request *request, struct error *error) {
  struct counters_report report = {.tag = xstrdup("default")};
  bool ok = request_may_report(request, server_counters_rates(worker->server), error) &&
            record_read(&counters_report_record, request->json, "", &report, error) &&
            counters_keep(worker->db, &report, error);
  if (ok)
    request_answer_empty(request, 204);
  record_release(&counters_report_record, &report);
  return ok;
}
