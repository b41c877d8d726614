/* Shares the summary of the fleet and the list of campaigns between requests, and keeps the gauges
 * of /metrics up to date.
 *
 * Memory and threads: fleet.h. */
#include "server/fleet/fleet.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>

#include "common/base/digest.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/fleet/fleet.sql.h"
#include "server/gauges.h"

#define FRESH_MS 1000
#define SHARE_OF_TIME 19 /* a summary is not made again for so many times the time that it took */
#define STALE_MS 60000   /* older ones are not given to those who come while another is made */

#define PARK_KEY "fleet" /* of requests that wait for a snapshot */

#define GAUGES_EVERY_MS 5000
#define GAUGES_FAILED_MS 30000 /* the housekeeper has other duties */

#define KERNELS_MAX 200 /* pairs of kernel and tag in /metrics */
#define TAGS_MAX 64

struct slot {
  struct snapshot *latest;
  int64_t began_ms, made_ms, took_ms;
  bool is_being_made;
  int64_t outdated_ms; /* what was begun by then is not given out */
  int64_t due_ms;      /* when that is to be set; INT64_MAX: it is not */
};

struct fleet {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct slot summary, campaigns;
  struct fleet_samples samples; /* of the thread that makes the summary */
  int64_t enrolled_ms;          /* when the summary was, or is to be, outdated by an enrolment */
  int64_t gauges_due_ms;        /* the housekeeper's */
};

struct fleet *fleet_new(void) {
  struct fleet *fleet = xcalloc(1, sizeof *fleet);
  pthread_mutex_init(&fleet->lock, NULL);
  pthread_cond_init(&fleet->changed, NULL);
  fleet->summary.due_ms = fleet->campaigns.due_ms = INT64_MAX;
  fleet->enrolled_ms = -FRESH_MS;
  return fleet;
}

/* Under the lock. */
static void put(struct snapshot *snapshot) {
  if (snapshot && --snapshot->users == 0)
    snapshot->free(snapshot);
}

void snapshot_put(struct fleet *fleet, struct snapshot *snapshot) {
  HOLD(&fleet->lock);
  put(snapshot);
}

void fleet_free(struct fleet *fleet) {
  if (!fleet)
    return;
  put(fleet->summary.latest);
  put(fleet->campaigns.latest);
  pthread_cond_destroy(&fleet->changed);
  pthread_mutex_destroy(&fleet->lock);
  free(fleet);
}

enum slot_answer {
  SLOT_TAKEN,
  SLOT_MAKE, /* the caller shall make one and call slot_made */
  SLOT_WAIT, /* for another thread that makes one */
};

/* Takes the snapshot of a slot. Under the lock. */
static enum slot_answer slot_take(struct slot *slot, struct snapshot **ret) {
  int64_t now_ms = clock_monotonic_ms(), pause_ms = SHARE_OF_TIME * slot->took_ms;
  int64_t age_ms = now_ms - slot->made_ms, fresh_ms = pause_ms > FRESH_MS ? pause_ms : FRESH_MS;
  if (now_ms >= slot->due_ms) {
    slot->outdated_ms = slot->due_ms > slot->outdated_ms ? slot->due_ms : slot->outdated_ms;
    slot->due_ms = INT64_MAX;
  }

  if (slot->latest && slot->began_ms > slot->outdated_ms &&
      (age_ms < fresh_ms || (slot->is_being_made && age_ms < fresh_ms + STALE_MS))) {
    slot->latest->users++;
    *ret = slot->latest;
    return SLOT_TAKEN;
  }

  if (slot->is_being_made)
    return SLOT_WAIT;
  slot->is_being_made = true;
  return SLOT_MAKE;
}

void fleet_changed(const struct server *server) {
  struct fleet *fleet = server_fleet(server);
  HOLD(&fleet->lock);
  fleet->summary.outdated_ms = clock_monotonic_ms();
}

void fleet_enrolled(const struct server *server) {
  struct fleet *fleet = server_fleet(server);
  struct slot *slot = &fleet->summary;
  HOLD(&fleet->lock);
  int64_t now_ms = clock_monotonic_ms(), next_ms = fleet->enrolled_ms + FRESH_MS;
  if (slot->due_ms == INT64_MAX) /* else the summary that is made then has this one, too */
    slot->due_ms = fleet->enrolled_ms = now_ms > next_ms ? now_ms : next_ms;
}

/* `made`: the new snapshot with a reference of the caller's, or NULL when there is none. */
static void slot_made(struct server *server, struct slot *slot, struct snapshot *made,
                      int64_t began_ms) {
  struct fleet *fleet = server_fleet(server);
  pthread_mutex_lock(&fleet->lock);
  slot->is_being_made = false;
  if (made) {
    put(slot->latest);
    slot->latest = made;
    made->users = 2;
    slot->began_ms = began_ms;
    slot->made_ms = clock_monotonic_ms();
    slot->took_ms = slot->made_ms - began_ms;
  }
  pthread_cond_broadcast(&fleet->changed);
  pthread_mutex_unlock(&fleet->lock);
  park_wake(server, PARK_KEY, SIZE_MAX);
}

/* Makes the summary after SLOT_MAKE. */
static bool summary_make(struct worker *worker, struct fleet_summary **ret, struct error *error) {
  struct fleet *fleet = server_fleet(worker->server);
  int64_t began_ms = clock_monotonic_ms();
  struct fleet_summary *made = NULL;
  bool ok = fleet_summary_make(worker, &fleet->samples,
                               (const struct fleet_summary *)fleet->summary.latest, &made, error);
  slot_made(worker->server, &fleet->summary, ok ? &made->snapshot : NULL, began_ms);
  if (ok)
    *ret = made;
  return ok;
}

/* For threads that have no request to park: waits for another thread that makes the summary. */
static bool summary_await(struct worker *worker, struct fleet_summary **ret, struct error *error) {
  struct fleet *fleet = server_fleet(worker->server);
  struct snapshot *snapshot;
  enum slot_answer answer;
  pthread_mutex_lock(&fleet->lock);
  while ((answer = slot_take(&fleet->summary, &snapshot)) == SLOT_WAIT)
    pthread_cond_wait(&fleet->changed, &fleet->lock); /* a maker's statements have deadlines */
  pthread_mutex_unlock(&fleet->lock);
  if (answer == SLOT_MAKE)
    return summary_make(worker, ret, error);
  *ret = (struct fleet_summary *)snapshot;
  return true;
}

/* slot_take for a request, which is parked, or refused, for SLOT_WAIT: *ret is NULL. */
static enum slot_answer slot_take_for(struct worker *worker, struct request *request,
                                      struct slot *slot, struct snapshot **ret) {
  struct fleet *fleet = server_fleet(worker->server);
  *ret = NULL;
  pthread_mutex_lock(&fleet->lock);
  enum slot_answer answer = slot_take(slot, ret);
  pthread_mutex_unlock(&fleet->lock);
  if (answer == SLOT_WAIT && request->deadline_passed)
    answer_refusal(request, ERROR_UNAVAILABLE, "",
                   "the database takes too long for the summary of the fleet; try again");
  else if (answer == SLOT_WAIT) /* idle: there is nothing to poll for until it is made */
    request_park(worker, request, PARK_KEY, true,
                 request->arrived_ms + server_options(worker->server)->database_timeout_ms);
  return answer;
}

bool fleet_summary_get(struct worker *worker, struct request *request, struct fleet_summary **ret,
                       struct error *error) {
  struct snapshot *snapshot;
  struct slot *slot = &server_fleet(worker->server)->summary;
  if (slot_take_for(worker, request, slot, &snapshot) == SLOT_MAKE)
    return summary_make(worker, ret, error);
  *ret = (struct fleet_summary *)snapshot;
  return true;
}

bool campaigns_get(struct worker *worker, struct request *request, struct campaigns **ret,
                   struct error *error) {
  struct fleet *fleet = server_fleet(worker->server);
  struct snapshot *snapshot;
  if (slot_take_for(worker, request, &fleet->campaigns, &snapshot) != SLOT_MAKE) {
    *ret = (struct campaigns *)snapshot;
    return true;
  }

  int64_t began_ms = clock_monotonic_ms();
  struct campaigns *made = NULL;
  struct fleet_summary *summary = NULL;
  bool ok = summary_await(worker, &summary, error);
  if (ok) {
    ok = campaigns_make(worker, summary, &made, error);
    snapshot_put(fleet, &summary->snapshot);
  }
  slot_made(worker->server, &fleet->campaigns, ok ? &made->snapshot : NULL, began_ms);
  if (ok)
    *ret = made;
  return ok;
}

void snapshot_etag(const char *text, size_t size, char ret[SNAPSHOT_ETAG_SIZE]) {
  char digits[DIGEST_TEXT_SIZE];
  struct digest digest = digest_of(text, size);
  snprintf(ret, SNAPSHOT_ETAG_SIZE, "%s", strchr(digest_format(&digest, digits), ':') + 1);
}

static void head_write(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

#define FROM_DATABASE " Read from the database, so every server has the same: max over servers"

static void states_write(FILE *out, const struct fleet_summary *summary) {
  static const char name[] = "wavetune_devices", use[] = "wavetune_devices_utilisation";
  head_write(out, name, "gauge", "Devices of agents seen within 7 days, by state." FROM_DATABASE);
  for (size_t state = 0; state < DEVICE_STATE_COUNT; state++)
    fprintf(out, "%s{state=\"%s\"} %" PRId64 "\n", name, device_state_names[state],
            summary->by_state[state]);

  head_write(out, use, "gauge",
             "Device time that was reported in the last 10 minutes, or since the server's start, "
             "for each second of a live device." FROM_DATABASE);
  fprintf(out, "%s %.6g\n", use, fmax(0, summary->rate.utilisation)); /* NaN: 0 */
}

/* A family of gauges for each tag. Tags beyond TAGS_MAX share those of "". */
static void queue_write(FILE *out, const struct fleet_summary *summary) {
  static const struct {
    const char *name, *help, *states[2];
  } families[] = {
      {"wavetune_jobs",
       "Open jobs by state and tag (of more than 64 tags the rest is empty)." FROM_DATABASE,
       {"queued", "running"}},
      {"wavetune_leases_by_tag",
       "Leases of open jobs by state and tag." FROM_DATABASE,
       {"open", "held"}},
  };
  static const char oldest[] = "wavetune_jobs_oldest_seconds";
  size_t n = summary->n_queues;
  cleanup_free struct tag_queue *queues = xmemdup(summary->queues, (n + 1) * sizeof *queues);
  if (n > TAGS_MAX) {
    queues[TAGS_MAX].tag = "";
    n = tag_queues_fold(queues, n, TAGS_MAX);
  }

  for (size_t family = 0; family < ARRAY_LENGTH(families); family++) {
    head_write(out, families[family].name, "gauge", families[family].help);
    for (size_t i = 0; i < n; i++) {
      const int64_t counts[][2] = {{queues[i].queued, queues[i].running},
                                   {queues[i].leases_open, queues[i].leases_held}};
      for (size_t state = 0; state < 2; state++) {
        fprintf(out, "%s{state=\"%s\",tag=", families[family].name, families[family].states[state]);
        metrics_label_write(out, queues[i].tag);
        fprintf(out, "} %" PRId64 "\n", counts[family][state]);
      }
    }
  }

  head_write(out, oldest, "gauge",
             "Age of the oldest queued job by tag; 0: none is queued." FROM_DATABASE);
  for (size_t i = 0; i < n; i++) {
    fprintf(out, "%s{tag=", oldest);
    metrics_label_write(out, queues[i].tag);
    fprintf(out, "} %.3f\n", fmax(0, queues[i].oldest_s));
  }
}

static bool usage_write(struct worker *worker, FILE *out, struct error *error) {
  static const char each[] = "wavetune_device_seconds_total",
                    all[] = "wavetune_device_seconds_all_total";
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_fleet_device_seconds, error, BIND("limit", KERNELS_MAX));
  if (!rows)
    return false;

  head_write(out, each, "counter",
             "Device time that agents reported, by kernel and tag: the 200 pairs that were used "
             "last." FROM_DATABASE);
  for (int row = 0; row < db_count(rows); row++) {
    fprintf(out, "%s{kernel=", each);
    metrics_label_write(out, db_get(rows, row, "kernel"));
    fputs(",tag=", out);
    metrics_label_write(out, db_get(rows, row, "tag"));
    fprintf(out, "} %.17g\n", db_get_double(rows, row, "device_seconds"));
  }

  head_write(out, all, "counter",
             "Device time that agents reported, of all kernels and tags." FROM_DATABASE);
  fprintf(out, "%s %.17g\n", all, db_count(rows) ? db_get_double(rows, 0, "all_seconds") : 0);
  return true;
}

static bool gauges_make(struct worker *worker, char **ret_text, struct error *error) {
  struct fleet_summary *summary;
  if (!summary_await(worker, &summary, error))
    return false;

  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  states_write(out, summary);
  queue_write(out, summary);
  snapshot_put(server_fleet(worker->server), &summary->snapshot);
  bool ok = usage_write(worker, out, error);
  ALWAYS(fclose(out) == 0);
  if (ok)
    *ret_text = text;
  else
    free(text);
  return ok;
}

void fleet_housekeep(struct worker *worker) {
  struct fleet *fleet = server_fleet(worker->server);
  int64_t began_ms = clock_monotonic_ms();
  char *text;
  struct error error;
  if (began_ms < fleet->gauges_due_ms)
    return;

  bool ok = gauges_make(worker, &text, &error);
  int64_t now_ms = clock_monotonic_ms(), pause_ms = SHARE_OF_TIME * (now_ms - began_ms);
  if (ok) {
    struct gauges *gauges = gauges_take(worker->server);
    free(gauges->fleet);
    gauges->fleet = text;
    gauges->fleet_ms = now_ms;
    gauges_give(gauges);
  } else {
    log_warning("fleet: %s", error.message);
  }
  fleet->gauges_due_ms = now_ms + (!ok                          ? GAUGES_FAILED_MS
                                   : pause_ms > GAUGES_EVERY_MS ? pause_ms
                                                                : GAUGES_EVERY_MS);
}
