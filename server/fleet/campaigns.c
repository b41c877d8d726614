/* The list of campaigns: the jobs of one tag and run.
 *
 * Memory and threads: fleet.h. */
#include <math.h>

#include "server/db/db_record.h"
#include "server/fleet/fleet.h"
#include "server/fleet/fleet.sql.h"
#include "server/records.h"

#define RECORD_OF struct campaign
static const struct field campaign_fields[] = {
    MEMBER(TEXT, tag, FIELD_NOT_NULL),
    MEMBER(TEXT, run, FIELD_NOT_NULL),
    MEMBER(TEXTS, owners, FIELD_NOT_NULL, .about = "names of tokens, at most 16"),
    MEMBER(TEXTS, kernels, FIELD_NOT_NULL, .about = "names, at most 16"),
    MEMBER(INTEGER, queued, FIELD_NOT_NULL),
    MEMBER(INTEGER, running, FIELD_NOT_NULL),
    MEMBER(INTEGER, done, FIELD_NOT_NULL),
    MEMBER(INTEGER, failed, FIELD_NOT_NULL),
    MEMBER(INTEGER, cancelled, FIELD_NOT_NULL),
    MEMBER(INTEGER, jobs, FIELD_NOT_NULL | FIELD_NO_COLUMN, .about = "in all states"),
    MEMBER(INTEGER, configs, FIELD_NOT_NULL,
           .about = "of all jobs; of a search, those that it measures"),
    MEMBER(INTEGER, measurements, FIELD_NOT_NULL),
    MEMBER(NUMBER, device_seconds, FIELD_NOT_NULL),
    MEMBER(INTEGER, first_ms, FIELD_NOT_NULL, .about = "when its first job was submitted"),
    MEMBER(INTEGER, last_ms, .about = "when its last job ended"),
    MEMBER(NUMBER, to_go_s, FIELD_NO_COLUMN,
           .about =
               "with what is served before it by priority, and with the shares of other owners of "
               "jobs meanwhile; null: not known, nothing is open, or an owner's quota of the "
               "day is used"),
};
const struct record campaign_record = ANSWER("Campaign", campaign_fields);
#undef RECORD_OF

static void campaigns_free(struct snapshot *snapshot) {
  struct campaigns *campaigns = (struct campaigns *)snapshot;
  for (size_t i = 0; i < campaigns->n; i++)
    free(campaigns->all[i].json);
  db_records_free(&campaign_record, campaigns->all, campaigns->n);
  free(campaigns);
}

int campaign_compare(const void *a_, const void *b_) {
  const struct campaign *a = a_, *b = b_;
  if (a->first_ms != b->first_ms)
    return (a->first_ms < b->first_ms) - (a->first_ms > b->first_ms);
  int order = strcmp(a->tag, b->tag);
  return order ? order : strcmp(a->run, b->run);
}

/* NaN when there are jobs for hardware without devices. */
static double campaign_to_go(const struct campaign *campaign, const struct fleet_summary *fleet) {
  double seconds = 0;
  bool is_open = false;
  for (size_t i = 0; i < fleet->n_open; i++) {
    const struct open_jobs *open = &fleet->open[i];
    if (strcmp(open->tag, campaign->tag) != 0 || strcmp(open->run, campaign->run) != 0)
      continue;
    double s =
        to_go_seconds(open->before_us, fleet_class_devices(fleet, open->class), &fleet->rate);
    seconds = is_open && (isnan(seconds) || isnan(s)) ? (double)NAN
              : is_open                               ? fmax(seconds, s)
                                                      : s;
    is_open = true;
  }
  return is_open ? seconds : (double)NAN;
}

bool campaigns_make(struct worker *worker, const struct fleet_summary *fleet,
                    struct campaigns **ret, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_fleet_campaigns, error);
  if (!rows)
    return false;

  struct campaigns *campaigns = xcalloc(1, sizeof *campaigns);
  campaigns->snapshot.free = campaigns_free;
  campaigns->as_of_ms = fleet->as_of_ms;
  campaigns->all = db_read_all(rows, &campaign_record, &campaigns->n);
  if (campaigns->n)
    qsort(campaigns->all, campaigns->n, sizeof *campaigns->all, campaign_compare);

  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  for (size_t i = 0; i < campaigns->n; i++) {
    struct campaign *campaign = &campaigns->all[i];
    bool is_open = campaign->queued + campaign->running > 0;
    campaign->jobs = campaign->queued + campaign->running + campaign->done + campaign->failed +
                     campaign->cancelled;
    campaign->to_go_s = is_open ? campaign_to_go(campaign, fleet) : (double)NAN;
    cleanup_json json_t *json = record_write(&campaign_record, campaign);
    campaign->json = json_dumps(json, JSON_COMPACT);
    fprintf(out, "%s\n", campaign->json);
  }

  ALWAYS(fclose(out) == 0);
  snapshot_etag(text, size, campaigns->etag);
  free(text);

  *ret = campaigns;
  return true;
}
