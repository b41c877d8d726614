/* Makes the summary of the fleet of what the database has.
 *
 * Memory and threads: fleet.h. */
#include <inttypes.h>
#include <math.h>

#include "server/db/db_record.h"
#include "server/fleet/fleet.h"
#include "server/fleet/fleet.sql.h"
#include "server/records.h"

#define GONE_DAYS 7       /* agents that were not seen for longer are left out */
#define QUEUE_TAGS_MAX 64 /* rows of the queue; the others are one */

/* Read from the database, and written to JSON. */
#define RECORD_OF struct fleet_device
static const struct field device_fields[] = {
    MEMBER(TEXT, agent, FIELD_NO_JSON),
    MEMBER(TEXT, host, FIELD_NO_JSON),
    MEMBER(TEXT, version, FIELD_NO_JSON),
    MEMBER(INTEGER, seen_ms, FIELD_NO_JSON),
    MEMBER(BOOL, is_ended, FIELD_NO_JSON),
    MEMBER(BOOL, is_lost, FIELD_NO_JSON),
    MEMBER(TEXT, node_reason, FIELD_NO_JSON),
    MEMBER(TEXT, node_by, FIELD_NO_JSON),
    MEMBER(TEXT, hardware, FIELD_NO_JSON),
    MEMBER(TEXT, environment, FIELD_NO_JSON),
    MEMBER(INTEGER, suspect_ms, FIELD_NO_JSON),
    MEMBER(INTEGER, drained_ms, FIELD_NO_JSON),
    MEMBER(INTEGER, yielded_ms, FIELD_NO_JSON),
    MEMBER(TEXT, yield_reason, FIELD_NO_JSON),
    MEMBER(INTEGER, granted_ms, FIELD_NO_JSON),
    MEMBER(TEXT, device, FIELD_NOT_NULL),
    MEMBER(TEXT, backend, FIELD_NOT_NULL),
    MEMBER(TEXT, gpu),
    MEMBER(TEXT, arch),
    MEMBER(TEXT, partition),
    MEMBER(ENUM, state, FIELD_NOT_NULL | FIELD_NO_COLUMN, .names = device_state_names,
           .about = "the first that fits: lost, its agent sends no heartbeats; yielded, left to "
                    "other programs for now; drifted; drained; measuring, it holds a lease; idle"),
    MEMBER(INTEGER, since_ms, FIELD_NO_COLUMN,
           .about = "null: not known. When a device became idle, the server knows if it was one of "
                    "its own summaries that showed it before"),
    MEMBER(TEXT, reason, 0, "drain_reason", .about = "why it is drained, or yielded"),
    MEMBER(TEXT, by, 0, "drained_by", .about = "the token that drained it"),
    MEMBER(ID, job, .about = "that it measures; a drained device may end its lease"),
    MEMBER(TEXT, kernel, .about = "its name"),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(TEXT, tag),
    MEMBER(TEXT, run),
    MEMBER(TEXT, stage),
    MEMBER(INTEGER, config, .about = "as the last renewal of the lease stated it"),
    MEMBER(INTEGER, of, .about = "configs of the lease"),
    MEMBER(INTEGER, left, .about = "of these, the ones without a result"),
};
const struct record fleet_device_record = ANSWER("FleetDevice", device_fields);
#undef RECORD_OF

#define RECORD_OF struct open_jobs
static const struct field open_fields[] = {
    MEMBER(TEXT, tag),
    MEMBER(TEXT, run),
    MEMBER(TEXT, class),
    MEMBER(INTEGER, queued),
    MEMBER(INTEGER, running),
    MEMBER(INTEGER, unknown),
    MEMBER(INTEGER, oldest_ms),
    MEMBER(INTEGER, leases_open),
    MEMBER(INTEGER, leases_held),
    MEMBER(NUMBER, left_us),
    MEMBER(NUMBER, ahead_us),
    MEMBER(TEXT, owner),
    MEMBER(INTEGER, priority),
    MEMBER(NUMBER, weight),
    MEMBER(BOOL, is_over),
};
#undef RECORD_OF
static const struct record open_record = RECORD(NULL, struct open_jobs, open_fields);

/* The answer of GET /v1/fleet. */
struct device_counts {
  int64_t total, by_state[DEVICE_STATE_COUNT];
};
static const struct field count_fields[] = {
    RECORD_FIELD(INTEGER, struct device_counts, total, FIELD_ANSWER | FIELD_NOT_NULL),
#define X(id, name)                                                                                \
  RECORD_FIELD_AS(name, INTEGER, struct device_counts, by_state[DEVICE_##id],                      \
                  FIELD_ANSWER | FIELD_NOT_NULL),
    DEVICE_STATES(X)
#undef X
};
static const struct record count_record = RECORD(NULL, struct device_counts, count_fields);

#define RECORD_OF struct tag_queue
static const struct field queue_fields[] = {
    MEMBER(TEXT, tag, .about = "null: all tags beyond the 64 with most open jobs"),
    MEMBER(INTEGER, queued, FIELD_NOT_NULL),
    MEMBER(INTEGER, running, FIELD_NOT_NULL),
    MEMBER(INTEGER, leases_open, FIELD_NOT_NULL),
    MEMBER(INTEGER, leases_held, FIELD_NOT_NULL),
    MEMBER(NUMBER, oldest_s, .about = "age of the oldest queued job; null: none is queued"),
};
static const struct record queue_record = ANSWER(NULL, queue_fields);
#undef RECORD_OF

#define RECORD_OF struct fleet_rate
static const struct field rate_fields[] = {
    MEMBER(NUMBER, over_s, FIELD_NOT_NULL, .about = "600, or less after the start of a server"),
    MEMBER(NUMBER, measurements, FIELD_NOT_NULL),
    MEMBER(NUMBER, jobs, FIELD_NOT_NULL, .about = "that ended"),
    MEMBER(NUMBER, device_seconds, FIELD_NOT_NULL),
    MEMBER(NUMBER, utilisation, .about = "device seconds in each second of a live device"),
};
static const struct record rate_record = ANSWER(NULL, rate_fields);
#undef RECORD_OF

struct to_go_answer {
  double seconds;
  const char *basis;
};
#define RECORD_OF struct to_go_answer
static const struct field to_go_fields[] = {
    MEMBER(NUMBER, seconds, .about = "null: not known, or nothing is open"),
    MEMBER(TEXT, basis, FIELD_NOT_NULL, .about = "how it was estimated, for people"),
};
static const struct record to_go_record = ANSWER(NULL, to_go_fields);
#undef RECORD_OF

struct fleet_answer {
  int64_t as_of_ms, nodes;
  struct device_counts devices;
  RECORD_ARRAY(struct tag_queue, n_queue, queue);
  struct fleet_rate rate;
  struct to_go_answer to_go;
};
#define RECORD_OF struct fleet_answer
static const struct field answer_fields[] = {
    MEMBER(INTEGER, as_of_ms, FIELD_NOT_NULL,
           .about = "milliseconds since 1970, by the database's clock"),
    MEMBER(INTEGER, nodes, FIELD_NOT_NULL),
    MEMBER(RECORD, devices, FIELD_NOT_NULL, .of = &count_record),
    MEMBER_AS("queue", RECORDS, n_queue, FIELD_NOT_NULL, .of = &queue_record,
              .about = "tags with open jobs, those with most first"),
    MEMBER(RECORD, rate, FIELD_NOT_NULL, .of = &rate_record),
    MEMBER(RECORD, to_go, FIELD_NOT_NULL, .of = &to_go_record),
};
const struct record fleet_record = ANSWER("Fleet", answer_fields);
#undef RECORD_OF

static void summary_free(struct snapshot *snapshot) {
  struct fleet_summary *summary = (struct fleet_summary *)snapshot;
  for (size_t i = 0; i < summary->n_devices; i++)
    free(summary->devices[i].json);
  db_records_free(&fleet_device_record, summary->devices, summary->n_devices);
  db_records_free(&open_record, summary->open, summary->n_open);
  free(summary->queues);
  free(summary->text);
  free(summary);
}

static int compare_devices(const void *a_, const void *b_) {
  const struct fleet_device *a = a_, *b = b_;
  int order = strverscmp(a->host, b->host);
  if (order == 0)
    order = strcmp(a->agent, b->agent);
  if (order == 0 && a->device && b->device)
    order = strverscmp(a->device, b->device);
  return order;
}

static int compare_open(const void *a_, const void *b_) {
  const struct open_jobs *a = a_, *b = b_;
  int order = strcmp(a->tag, b->tag);
  if (order == 0)
    order = strcmp(a->run, b->run);
  return order ? order : strcmp(a->class, b->class);
}

/* Since when the device has its state. The database does not know it of idle devices. */
static int64_t since_of(const struct fleet_device *device, const struct fleet_summary *before,
                        int64_t now_ms) {
  switch (device->state) {
  case DEVICE_ENDED:
  case DEVICE_LOST:
    return device->seen_ms;
  case DEVICE_YIELDED:
    return device->yielded_ms;
  case DEVICE_DRIFTED:
    return device->suspect_ms;
  case DEVICE_DRAINED:
    return device->drained_ms;
  case DEVICE_MEASURING:
    return device->granted_ms;
  default: {
    const struct fleet_device *old =
        before && before->n_devices
            ? bsearch(device, before->devices, before->n_devices, sizeof *device, compare_devices)
            : NULL;
    return !old ? FIELD_NONE : old->state == device->state ? old->since_ms : now_ms;
  }
  }
}

/* Sets what follows from the columns. */
static void device_complete(struct fleet_device *device, const struct fleet_summary *before,
                            int64_t now_ms) {
  if (device->node_reason) { /* the agent's comes first: resuming the device alone has no effect */
    free(device->reason);
    free(device->by);
    device->reason = xstrdup(device->node_reason);
    device->by = device->node_by ? xstrdup(device->node_by) : NULL;
  }

  device->state = device_state_of(&(struct device_facts){
      .is_ended = device->is_ended,
      .is_lost = device->is_lost,
      .is_yielded = device->yielded_ms != FIELD_NONE,
      .has_drifted = device->suspect_ms != FIELD_NONE,
      .is_drained = device->reason != NULL,
      .has_lease = device->job != FIELD_NONE,
  });
  if (device->state == DEVICE_YIELDED && device->yield_reason) { /* not the drain's */
    free(device->reason);
    free(device->by);
    device->reason = xstrdup(device->yield_reason);
    device->by = NULL;
  }
  device->since_ms = since_of(device, before, now_ms);
  cleanup_json json_t *json = record_write(&fleet_device_record, device);
  device->json = json_dumps(json, JSON_COMPACT);
}

static bool devices_read(struct worker *worker, const struct fleet_summary *before,
                         struct fleet_summary *summary, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(
      worker->db, &sql_fleet_devices, error,
      BIND("live_ms", agent_live_ms(server_options(worker->server))), BIND("gone_days", GONE_DAYS));
  if (!rows)
    return false;

  summary->devices = db_read_all(rows, &fleet_device_record, &summary->n_devices);
  if (summary->n_devices)
    qsort(summary->devices, summary->n_devices, sizeof *summary->devices, compare_devices);

  for (size_t i = 0; i < summary->n_devices; i++) {
    struct fleet_device *device = &summary->devices[i];
    summary->n_nodes += i == 0 || strcmp(device[-1].agent, device->agent) != 0;
    if (!device->device)
      continue;
    device_complete(device, before, summary->as_of_ms);
    summary->by_state[device->state]++;
  }
  return true;
}

static int compare_queues(const void *a_, const void *b_) {
  const struct open_jobs *a = a_, *b = b_;
  int order = strcmp(a->class, b->class);
  if (order == 0)
    order = (a->priority < b->priority) - (a->priority > b->priority);
  return order ? order : strcmp(a->owner, b->owner);
}

/* Sets before_us. The queue of an owner with a priority has several rows, one for each campaign. */
static void shares_apply(struct fleet_summary *summary) {
  struct open_jobs *open = summary->open;
  cleanup_free struct queue_load *queues = xcalloc(summary->n_open, sizeof *queues);
  size_t n_queues = 0;
  double higher_us = 0; /* what the hardware's jobs of higher priorities take */
  qsort(open, summary->n_open, sizeof *open, compare_queues);

  for (size_t first = 0, next; first < summary->n_open; first = next) {
    bool is_other = first == 0 || strcmp(open[first].class, open[first - 1].class) != 0;
    double all_us = 0;
    if (is_other)
      higher_us = 0;

    n_queues = 0;
    for (next = first; next < summary->n_open && strcmp(open[next].class, open[first].class) == 0 &&
                       open[next].priority == open[first].priority;
         next++) {
      if (next == first || strcmp(open[next].owner, open[next - 1].owner) != 0)
        queues[n_queues++] = (struct queue_load){.weight = open[next].weight};
      if (!open[next].is_over) /* else its jobs wait until midnight, and hold no others up */
        queues[n_queues - 1].left_us += open[next].left_us;
    }

    for (size_t i = first; i < next; i++) {
      open[i].before_us = open[i].is_over ? (double)NAN
                                          : higher_us + shared_us(queues, n_queues, open[i].weight,
                                                                  open[i].ahead_us);
      all_us += open[i].is_over ? 0 : open[i].left_us;
    }
    higher_us += all_us;
  }
}

/* Reads the open jobs, and the totals into *ret_now. */
static bool open_read(struct worker *worker, struct fleet_summary *summary,
                      struct fleet_sample *ret_now, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_fleet_open, error);
  if (!rows)
    return false;

  summary->as_of_ms = db_get_integer(rows, 0, "as_of_ms");
  *ret_now = (struct fleet_sample){
      .at_ms = summary->as_of_ms,
      .device_us = db_get_double(rows, 0, "total_us"),
      .measurements = db_get_double(rows, 0, "total_measurements"),
      .jobs = db_get_double(rows, 0, "total_jobs"),
  };
  if (db_is_null(rows, 0, "tag"))
    return true;

  summary->open = db_read_all(rows, &open_record, &summary->n_open);
  shares_apply(summary);
  qsort(summary->open, summary->n_open, sizeof *summary->open, compare_open);
  return true;
}

/* The devices that take leases of jobs of this class. */
int64_t fleet_class_devices(const struct fleet_summary *summary, const char *class) {
  int64_t n = 0;
  for (size_t i = 0; i < summary->n_devices; i++) {
    const struct fleet_device *device = &summary->devices[i];
    n += device->device && device_state_takes_work(device->state) &&
         (strcmp(device->hardware, class) == 0 || strcmp(device->environment, class) == 0);
  }
  return n;
}

static void to_go_make(const struct fleet_summary *summary, struct to_go *ret) {
  cleanup_free struct hardware_load *loads = xcalloc(summary->n_open + 1, sizeof *loads);
  cleanup_free const char **classes = xcalloc(summary->n_open + 1, sizeof *classes);
  size_t n = 0;

  for (size_t i = 0; i < summary->n_open; i++) {
    const struct open_jobs *open = &summary->open[i];
    size_t at = 0;
    while (at < n && strcmp(classes[at], open->class) != 0)
      at++;
    if (at == n) {
      classes[n++] = open->class;
      loads[at].devices = fleet_class_devices(summary, open->class);
    }
    loads[at].jobs += open->queued + open->running;
    loads[at].unknown += open->unknown;
    loads[at].left_us += open->left_us;
  }

  to_go_estimate(loads, n, &summary->rate, ret);
}

static void queue_add(struct tag_queue *queue, const struct tag_queue *more) {
  queue->queued += more->queued;
  queue->running += more->running;
  queue->leases_open += more->leases_open;
  queue->leases_held += more->leases_held;
  queue->oldest_s = fmax(queue->oldest_s, more->oldest_s);
}

size_t tag_queues_fold(struct tag_queue *queues, size_t n, size_t rest) {
  for (; n > rest + 1; n--)
    queue_add(&queues[rest], &queues[n - 1]);
  return n;
}

static void queues_make(struct fleet_summary *summary) {
  summary->queues = xcalloc(summary->n_open + 1, sizeof *summary->queues);
  for (size_t i = 0; i < summary->n_open; i++) {
    const struct open_jobs *open = &summary->open[i];
    double oldest_s = open->oldest_ms == FIELD_NONE
                          ? (double)NAN
                          : fmax(0, (double)(summary->as_of_ms - open->oldest_ms) / 1e3);
    const struct tag_queue queue = {open->tag,         open->queued,      open->running,
                                    open->leases_open, open->leases_held, oldest_s};
    struct tag_queue *last = summary->queues + summary->n_queues - 1;
    if (summary->n_queues && strcmp(last->tag, open->tag) == 0)
      queue_add(last, &queue);
    else
      summary->queues[summary->n_queues++] = queue;
  }
}

static int compare_queues_by_jobs(const void *a_, const void *b_) {
  const struct tag_queue *a = a_, *b = b_;
  int64_t n = a->queued + a->running, m = b->queued + b->running;
  return n != m ? (n < m) - (n > m) : strcmp(a->tag, b->tag);
}

static char *answer_make(const struct fleet_summary *summary) {
  struct to_go to_go;
  struct fleet_answer answer = {.as_of_ms = summary->as_of_ms,
                                .nodes = (int64_t)summary->n_nodes,
                                .n_queue = summary->n_queues,
                                .rate = summary->rate};
  for (size_t state = 0; state < DEVICE_STATE_COUNT; state++)
    answer.devices.total += answer.devices.by_state[state] = summary->by_state[state];

  cleanup_free struct tag_queue *queue =
      xmemdup(summary->queues, (answer.n_queue + 1) * sizeof *queue);
  qsort(queue, answer.n_queue, sizeof *queue, compare_queues_by_jobs);
  if (answer.n_queue > QUEUE_TAGS_MAX) {
    queue[QUEUE_TAGS_MAX - 1].tag = NULL;
    answer.n_queue = tag_queues_fold(queue, answer.n_queue, QUEUE_TAGS_MAX - 1);
  }
  answer.queue = queue;

  to_go_make(summary, &to_go);
  answer.to_go = (struct to_go_answer){to_go.seconds, to_go.basis};
  cleanup_json json_t *json = record_write(&fleet_record, &answer);
  char *text = json_dumps(json, JSON_COMPACT);
  ALWAYS(text != NULL);
  return text;
}

static void etags_make(struct fleet_summary *summary) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  for (size_t i = 0; i < summary->n_devices; i++) {
    const struct fleet_device *device = &summary->devices[i];
    fprintf(out, "%s\n%s\n%s\n%s\n%s\n%" PRId64 "\n%s\n", device->agent, device->host,
            device->version, device->node_reason ? device->node_reason : "",
            device->node_by ? device->node_by : "", device->seen_ms,
            device->json ? device->json : "");
  }
  ALWAYS(fclose(out) == 0);
  snapshot_etag(text, size, summary->nodes_etag);
  free(text);

  const char *after_as_of = strchr(summary->text, ','); /* its first member */
  snapshot_etag(after_as_of, strlen(after_as_of), summary->etag);
}

bool fleet_summary_make(struct worker *worker, struct fleet_samples *samples,
                        const struct fleet_summary *before, struct fleet_summary **ret,
                        struct error *error) {
  struct fleet_summary *summary = xcalloc(1, sizeof *summary);
  struct fleet_sample now;
  summary->snapshot.free = summary_free;
  if (!open_read(worker, summary, &now, error) || !devices_read(worker, before, summary, error)) {
    summary_free(&summary->snapshot);
    return false;
  }

  /* Between two summaries as many devices measured as at the first of them. */
  if (before)
    now.measuring_ms = before->now.measuring_ms + fmax(0, (double)(now.at_ms - before->now.at_ms)) *
                                                      (double)before->by_state[DEVICE_MEASURING];

  summary->now = now;
  summary->rate = fleet_rate_of(samples, &now);
  int64_t n_live = 0;
  for (size_t state = 0; state < DEVICE_STATE_COUNT; state++)
    n_live += state == DEVICE_LOST || state == DEVICE_ENDED ? 0 : summary->by_state[state];
  double most_s = summary->rate.over_s * (double)n_live;
  summary->rate.utilisation = most_s > 0 ? summary->rate.device_seconds / most_s : (double)NAN;
  queues_make(summary);
  fleet_samples_add(samples, &now);
  summary->text = answer_make(summary);
  etags_make(summary);
  *ret = summary;
  return true;
}
