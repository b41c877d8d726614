/* GET /v1/fleet, /v1/fleet/nodes, /v1/campaigns, /v1/cost.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include <inttypes.h>
#include <math.h>
#include <strings.h>

#include "server/db/db_record.h"
#include "server/fleet/fleet.h"
#include "server/fleet/fleet.sql.h"
#include "server/http/request.h"
#include "server/records.h"

#define COST_ROWS_MAX 1000

/* Answers with what `write` writes of a snapshot, and gives the snapshot back. */
static void answer_written(struct worker *worker, struct request *request,
                           struct snapshot *snapshot, const char *etag,
                           void (*write)(FILE *out, const struct snapshot *, const void *query),
                           const void *query) {
  struct fleet *fleet = server_fleet(worker->server);
  char *text = NULL;
  size_t size;
  if (request_answer_not_modified(request, etag, false)) {
    snapshot_put(fleet, snapshot);
    return;
  }

  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  write(out, snapshot, query);
  ALWAYS(fclose(out) == 0);
  char tag[SNAPSHOT_ETAG_SIZE];
  memcpy(tag, etag, sizeof tag);
  snapshot_put(fleet, snapshot);
  request_answer_entity(request, "application/json", text, size, tag, false);
}

static void summary_write(FILE *out, const struct snapshot *snapshot, const void *query) {
  (void)query;
  fputs(((const struct fleet_summary *)snapshot)->text, out);
}

bool route_fleet_get(struct worker *worker, struct request *request, struct error *error) {
  struct fleet_summary *summary;
  if (!fleet_summary_get(worker, request, &summary, error))
    return false;
  if (summary)
    answer_written(worker, request, &summary->snapshot, summary->etag, summary_write, NULL);
  return true;
}

/* Ends a page after its items. `cursor` NULL: it is the last one. */
static void page_end_write(FILE *out, const char *cursor) {
  cleanup_json json_t *next = cursor ? json_string(cursor) : json_null();
  cleanup_free char *next_text = json_dumps(next, JSON_ENCODE_ANY);
  fprintf(out, "],\"next\":%s}", next_text);
}

/* A node, which is an agent: its members but the devices, whose texts are written by themselves. */
struct node {
  const char *agent, *host, *version, *reason, *by;
  int64_t seen_ms;
  json_t *devices;
};
#define RECORD_OF struct node
static const struct field node_fields[] = {
    MEMBER(TEXT, agent, FIELD_NOT_NULL),
    MEMBER(TEXT, host, FIELD_NOT_NULL),
    MEMBER(TEXT, version, FIELD_NOT_NULL),
    MEMBER(INTEGER, seen_ms, FIELD_NOT_NULL, .about = "its last heartbeat"),
    MEMBER(TEXT, reason, .about = "why the whole agent is drained"),
    MEMBER(TEXT, by),
    MEMBER(JSON, devices, FIELD_OMITTED,
           .schema = "{\"type\": \"array\", \"items\": {\"$ref\": "
                     "\"#/components/schemas/FleetDevice\"}}"),
};
const struct record fleet_node_record = ANSWER("FleetNode", node_fields);
#undef RECORD_OF

/* Which nodes and devices a request asks for. */
struct nodes_query {
  int64_t limit;
  const char *after; /* HOST/AGENT; NULL: from the first */
  const char *text;  /* NULL: any */
  int state;         /* of enum device_state; -1: any */
};

static bool has_text(const char *where, const char *text) {
  return where && strcasestr(where, text) != NULL;
}

static bool device_is_wanted(const struct fleet_device *device, const struct nodes_query *query) {
  if (!device->device)
    return false;
  if (query->state >= 0 && (int)device->state != query->state)
    return false;
  return !query->text || has_text(device->host, query->text) ||
         has_text(device->agent, query->text) || has_text(device->gpu, query->text) ||
         has_text(device->reason, query->text) || has_text(device->kernel, query->text);
}

/* Whether the node is behind the one that the page before ended with, in the order of
 * fleet_summary.devices. */
static bool is_behind(const struct fleet_device *node, const char *after) {
  const char *slash = after ? strrchr(after, '/') : NULL;
  if (!slash)
    return true;
  cleanup_free char *host = xstrndup(after, (size_t)(slash - after));
  int order = strverscmp(node->host, host);
  return order > 0 || (order == 0 && strcmp(node->agent, slash + 1) > 0);
}

static void node_write(FILE *out, const struct fleet_device *devices, size_t n,
                       const struct nodes_query *query) {
  const struct node node = {
      devices->agent,   devices->host, devices->version, devices->node_reason, devices->node_by,
      devices->seen_ms, NULL};
  cleanup_json json_t *json = record_write(&fleet_node_record, &node);
  cleanup_free char *head = json_dumps(json, JSON_COMPACT);
  const char *joint = "";

  fprintf(out, "%.*s,\"devices\":[", (int)strlen(head) - 1, head);
  for (size_t i = 0; i < n; i++)
    if (device_is_wanted(&devices[i], query)) {
      fprintf(out, "%s%s", joint, devices[i].json);
      joint = ",";
    }
  fputs("]}", out);
}

static void nodes_write(FILE *out, const struct snapshot *snapshot, const void *query_) {
  const struct fleet_summary *summary = (const struct fleet_summary *)snapshot;
  const struct nodes_query *query = query_;
  const struct fleet_device *last = NULL; /* of the nodes that were written */
  int64_t n_written = 0;
  bool has_more = false;

  fprintf(out, "{\"as_of_ms\":%" PRId64 ",\"items\":[", summary->as_of_ms);
  for (size_t first = 0, next; first < summary->n_devices && !has_more; first = next) {
    const struct fleet_device *devices = &summary->devices[first];
    bool is_wanted = query->state < 0 && !query->text; /* a node without devices, too */
    for (next = first;
         next < summary->n_devices && strcmp(summary->devices[next].agent, devices->agent) == 0;
         next++)
      is_wanted = is_wanted || device_is_wanted(&summary->devices[next], query);

    if (!is_wanted || !is_behind(devices, query->after))
      continue;
    if (n_written == query->limit) {
      has_more = true;
      continue;
    }
    fputs(n_written++ ? "," : "", out);
    node_write(out, devices, next - first, query);
    last = devices;
  }

  cleanup_free char *cursor = has_more ? xasprintf("%s/%s", last->host, last->agent) : NULL;
  page_end_write(out, cursor);
}

bool route_fleet_nodes(struct worker *worker, struct request *request, struct error *error) {
  struct nodes_query query = {.state = -1};
  struct fleet_summary *summary;
  if (!page_read(request, &query.limit, &query.after, error))
    return false;

  query.text = request_query(request, "q");
  const char *state = request_query(request, "device_state");
  for (int i = 0; state && i < DEVICE_STATE_COUNT; i++)
    if (string_equal(device_state_names[i], state))
      query.state = i;
  if (state && query.state < 0)
    return error_set(error,
                     "the query argument \"device_state\" must be lost, yielded, drifted, drained, "
                     "measuring or idle");

  if (!fleet_summary_get(worker, request, &summary, error))
    return false;
  if (summary)
    answer_written(worker, request, &summary->snapshot, summary->nodes_etag, nodes_write, &query);
  return true;
}

struct campaigns_query {
  int64_t limit;
  const struct campaign *after; /* the place where the page before ended; NULL: from the first */
  const char *tag, *run, *owner, *open;
};

static bool campaign_is_wanted(const struct campaign *campaign,
                               const struct campaigns_query *query) {
  bool is_open = campaign->queued + campaign->running > 0, is_owned = !query->owner;
  for (size_t i = 0; i < campaign->owners.n && !is_owned; i++)
    is_owned = string_equal(campaign->owners.all[i], query->owner);
  return is_owned && (!query->tag || string_equal(campaign->tag, query->tag)) &&
         (!query->run || string_equal(campaign->run, query->run)) &&
         (!query->open || is_open == string_equal(query->open, "true"));
}

/* FIRST_MS/BYTES_OF_TAG/TAGRUN: names may have any characters. */
static char *campaign_cursor(const struct campaign *campaign) {
  return xasprintf("%" PRId64 "/%zu/%s%s", campaign->first_ms, strlen(campaign->tag), campaign->tag,
                   campaign->run);
}

/* Sets first_ms, tag and run, which are the caller's. */
static bool cursor_parse(const char *text, struct campaign *ret) {
  char *end;
  long long first_ms = strtoll(text, &end, 10);
  if (end == text || *end != '/')
    return false;
  const char *digits = end + 1;
  unsigned long long size = strtoull(digits, &end, 10);
  if (end == digits || *end != '/' || size > strlen(end + 1))
    return false;
  *ret = (struct campaign){
      .first_ms = first_ms, .tag = xstrndup(end + 1, (size_t)size), .run = xstrdup(end + 1 + size)};
  return true;
}

static void campaigns_write(FILE *out, const struct snapshot *snapshot, const void *query_) {
  const struct campaigns *campaigns = (const struct campaigns *)snapshot;
  const struct campaigns_query *query = query_;
  const struct campaign *last = NULL;
  int64_t n_written = 0;
  bool has_more = false;

  fprintf(out, "{\"as_of_ms\":%" PRId64 ",\"items\":[", campaigns->as_of_ms);
  for (size_t i = 0; i < campaigns->n && !has_more; i++) {
    const struct campaign *campaign = &campaigns->all[i];
    if (!campaign_is_wanted(campaign, query) ||
        (query->after && campaign_compare(campaign, query->after) <= 0))
      continue;
    has_more = n_written == query->limit;
    if (has_more)
      continue;
    fprintf(out, "%s%s", n_written++ ? "," : "", campaign->json);
    last = campaign;
  }

  cleanup_free char *cursor = has_more ? campaign_cursor(last) : NULL;
  page_end_write(out, cursor);
}

bool route_campaign_list(struct worker *worker, struct request *request, struct error *error) {
  struct campaigns_query query = {0};
  struct campaigns *campaigns;
  struct campaign after = {0};
  const char *cursor;
  if (!page_read(request, &query.limit, &cursor, error))
    return false;

  if (cursor && !cursor_parse(cursor, &after))
    return error_set(error,
                     "the query argument \"after\" must be what the page before has as \"next\"");

  cleanup_free char *tag = after.tag, *run = after.run;
  query.after = cursor ? &after : NULL;
  query.tag = request_query(request, "tag");
  query.run = request_query(request, "run");
  query.owner = request_query(request, "owner");
  query.open = request_query(request, "open");
  if (query.open && !string_equal(query.open, "true") && !string_equal(query.open, "false"))
    return error_set(error, "the query argument \"open\" must be true or false");

  if (!campaigns_get(worker, request, &campaigns, error))
    return false;
  if (campaigns)
    answer_written(worker, request, &campaigns->snapshot, campaigns->etag, campaigns_write, &query);
  return true;
}

struct cost_item {
  char *name;
  double device_seconds;
  int64_t jobs, measurements;
};
#define RECORD_OF struct cost_item
static const struct field cost_item_fields[] = {
    MEMBER(TEXT, name, FIELD_NOT_NULL),
    MEMBER(NUMBER, device_seconds, FIELD_NOT_NULL),
    MEMBER(INTEGER, jobs, FIELD_NOT_NULL, .about = "that ended"),
    MEMBER(INTEGER, measurements, FIELD_NOT_NULL),
};
const struct record cost_item_record = ANSWER("CostItem", cost_item_fields);
#undef RECORD_OF

/* Reads a time of the query; FIELD_NONE when it is not there. */
static bool query_time(struct request *request, const char *name, int64_t *ret_ms,
                       struct error *error) {
  const char *text = request_query(request, name);
  char *end = NULL;
  *ret_ms = text ? strtoll(text, &end, 10) : FIELD_NONE;
  /* PostgreSQL's times end in the year 294276. */
  if (!text || (*text && !*end && *ret_ms >= 0 && *ret_ms < INT64_C(9000000000000000)))
    return true;
  return error_set(error, "the query argument \"%s\" must be in milliseconds since 1970", name);
}

bool route_cost_get(struct worker *worker, struct request *request, struct error *error) {
  static const char *const ways[] = {"week", "day", "kernel", "tag", "run", "owner"};
  const char *by = "week", *asked;
  int64_t from_ms, to_ms;
  bool is_known = false;
  if (!query_time(request, "from_ms", &from_ms, error) ||
      !query_time(request, "to_ms", &to_ms, error))
    return false;

  if ((asked = request_query(request, "by")))
    by = asked;
  for (size_t i = 0; i < ARRAY_LENGTH(ways); i++)
    is_known |= string_equal(ways[i], by);
  if (!is_known)
    return error_set(error,
                     "the query argument \"by\" must be week, day, kernel, tag, run or owner");

  cleanup_free char *from = from_ms == FIELD_NONE ? NULL : xasprintf("%" PRId64, from_ms),
                    *to = to_ms == FIELD_NONE ? NULL : xasprintf("%" PRId64, to_ms);
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_fleet_cost, error, BIND("by", by), BIND("from_ms", from),
               BIND("to_ms", to), BIND("limit", COST_ROWS_MAX));
  if (!rows)
    return false;

  bool is_empty = db_count(rows) == 0;
  return request_answer_json(
      request, 200,
      json_pack("{s:s, s:o, s:o, s:o, s:f, s:I, s:I}", "by", by, "from_ms",
                from ? json_integer(from_ms) : json_null(), "to_ms",
                to ? json_integer(to_ms) : json_null(), "items",
                db_rows_to_json(rows, &cost_item_record), "device_seconds",
                is_empty ? 0.0 : db_get_double(rows, 0, "all_seconds"), "jobs",
                (json_int_t)(is_empty ? 0 : db_get_integer(rows, 0, "all_jobs")), "measurements",
                (json_int_t)(is_empty ? 0 : db_get_integer(rows, 0, "all_measurements"))));
}
