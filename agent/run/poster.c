/* Posting the spool: measurements, ends and releases of leases, in the order in which they were
 * recorded.
 *
 * A record is {"lease", "epoch"} with "measurement": {…}, "done": true or "release": "why" and
 * "cause" (an older agent's spool has none), and "opening_us" where a kernel was opened for it: the
 * time of that so far. Its number is the measurement's seq. Code that a measurement names
 * ("object", stored in the record's "object_path") is uploaded before it. No record is removed
 * before the server has answered; a record that the server refuses for good is appended to
 * STATE/refused.jsonl. Threads: one at a time posts. */
#include "agent/run/poster.h"

#include <errno.h>
#include <fcntl.h>

#include "common/base/file.h"
#include "common/base/log.h"

#define BATCH_RECORDS 200
#define BATCH_WAIT_MS 500
#define LAST_POSTS_MS 5000 /* for posting when the agent ends */
#define BACKOFF_LEAST_MS 250
#define BACKOFF_MOST_MS 5000
#define OBJECT_MS 10000
#define OBJECT_ATTEMPTS 3 /* then results are posted without their code */

struct batch {
  size_t n;
  struct spool_record records[BATCH_RECORDS]; /* json NULL: it is posted */
  int64_t retry_after_s;                      /* of the request that the server may accept later */
};

/* The records of one lease and epoch that are posted together, in order. */
struct group {
  const char *lease;
  int64_t epoch;
  size_t n;  /* measurements */
  bool done; /* with the lease's end, whose record is after theirs */
  struct spool_record *records[BATCH_RECORDS];
};

/* Whether the server may accept the same request later: it is away or busy, or does not accept the
 * token (yet). */
static bool is_for_later(enum error_kind kind) {
  return error_is_retryable(kind) || kind == ERROR_UNAUTHENTICATED || kind == ERROR_FORBIDDEN;
}

static const char *record_lease(const json_t *record) { return json_text(record, "lease"); }

static int64_t record_epoch(const json_t *record) {
  return json_integer_value(json_object_get(record, "epoch"));
}

/* What opening the kernel took; 0: not stated. */
static json_int_t record_opening_us(const json_t *record) {
  return json_integer_value(json_object_get(record, "opening_us"));
}

static void refused_keep(struct agent *agent, const json_t *record, const struct error *reason) {
  cleanup_free char *path = xasprintf("%s/refused.jsonl", agent->state);
  cleanup_json json_t *line = json_pack("{s:s, s:O}", "reason", reason->message, "record", record);
  cleanup_free char *text = json_canonical(line), *bytes = xasprintf("%s\n", text);
  cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || !fd_write_all(fd, bytes, strlen(bytes)) || fsync(fd) < 0)
    log_error("poster: cannot keep a refused record in %s: %s", path, strerror(errno));
  log_error("poster: the server refuses a result of lease=%s epoch=%lld; it is kept in %s: %s",
            record_lease(record), (long long)record_epoch(record), path, reason->message);
}

/* Posts `n` measurements of a group from `from` on. */
static struct server_answer results_send(struct agent *agent, const struct group *group,
                                         size_t from, size_t n, bool done) {
  json_t *measurements = json_array();
  json_int_t opening_us = 0;

  for (size_t i = from; i < from + n + done; i++) {
    const struct spool_record *record = group->records[i];
    json_t *measurement = json_object_get(record->json, "measurement");
    if (record_opening_us(record->json) > opening_us)
      opening_us = record_opening_us(record->json);
    if (i == from + n)
      break; /* the lease's end */
    json_object_set_new(measurement, "seq", json_integer((json_int_t)record->number));
    json_array_append(measurements, measurement);
  }

  cleanup_free char *path = xasprintf("/v1/leases/%s/results", group->lease);
  cleanup_json json_t *body =
      json_pack("{s:I, s:o}", "epoch", (json_int_t)group->epoch, "measurements", measurements);
  if (done)
    json_object_set_new(body, "done", json_true());
  if (opening_us)
    json_object_set_new(body, "opening_us", json_integer(opening_us));
  return server_ask(agent->poster_client, "POST", path, body, REQUEST_MS);
}

/* Measurements of a group that are posted together. */
struct part {
  size_t from, n;
  bool done; /* with the lease's end */
};
#define PARTS_MAX 16
_Static_assert(BATCH_RECORDS < 1 << (PARTS_MAX - 1), "halves of halves fit in the list");

/* Posts a group; a part that is refused is posted again in halves, until a refused measurement is
 * alone. False: the server may accept it later. */
static bool results_post(struct agent *agent, struct batch *batch, const struct group *group) {
  struct part parts[PARTS_MAX] = {{0, group->n, group->done}}; /* the last is posted first */
  for (size_t n_parts = 1; n_parts > 0;) {
    struct part part = parts[--n_parts];
    cleanup_server_answer struct server_answer answer =
        results_send(agent, group, part.from, part.n, part.done);
    if (answer.is_ok)
      continue;
    if (is_for_later(answer.error.kind)) {
      log_warning("poster: results wait in the spool: %s", answer.error.message);
      batch->retry_after_s = answer.retry_after_s;
      return false;
    }

    /* The server granted the lease again, or ended it, and stored these results as evidence only.
     */
    if (answer.error.kind == ERROR_CONFLICT && json_object_get(answer.json, "epoch")) {
      log_warning("lease: lost lease=%s epoch=%lld; %zu late results were kept as evidence",
                  group->lease, (long long)group->epoch, part.n);
      held_lose(agent->held, group->lease, group->epoch);
      continue;
    }

    bool is_missing = answer.error.kind == ERROR_MISSING;
    if (part.n > 1 && !is_missing) {
      size_t half = part.n / 2;
      parts[n_parts++] = (struct part){part.from + half, part.n - half, part.done};
      parts[n_parts++] = (struct part){part.from, half, false};
      continue;
    }

    for (size_t i = part.from; i < part.from + part.n; i++)
      refused_keep(agent, group->records[i]->json, &answer.error);
    if (part.n == 1 && part.done && !is_missing)
      parts[n_parts++] = (struct part){part.from + 1, 0, true};
    if (part.n == 0 && !is_missing)
      log_error("lease: lease=%s epoch=%lld cannot be ended: %s", group->lease,
                (long long)group->epoch, answer.error.message);
  }

  return true;
}

/* Posts the records from `first` on that belong together: one lease's measurements up to its end.
 */
static bool group_post(struct agent *agent, struct batch *batch, size_t first) {
  const json_t *record = batch->records[first].json;
  struct group group = {.lease = record_lease(record), .epoch = record_epoch(record)};
  for (size_t i = first; i < batch->n && !group.done; i++) {
    record = batch->records[i].json;
    if (!record || record_epoch(record) != group.epoch ||
        !string_equal(record_lease(record), group.lease))
      continue;
    if (json_object_get(record, "release"))
      break;
    group.done = json_is_true(json_object_get(record, "done"));
    if (group.done || json_object_get(record, "measurement"))
      group.records[group.n] = &batch->records[i];
    group.n += !group.done && json_object_get(record, "measurement");
  }

  if (!results_post(agent, batch, &group))
    return false;

  if (group.done)
    held_drop(agent->held, group.lease, group.epoch);
  array_foreach (posted, group.records, group.n + group.done)
    json_decref(TAKE((*posted)->json));
  return true;
}

static bool release_post(struct agent *agent, struct batch *batch, const json_t *record) {
  const char *lease = record_lease(record);
  cleanup_free char *path = xasprintf("/v1/leases/%s/release", lease);
  cleanup_json json_t *body =
      json_pack("{s:I, s:O*, s:O}", "epoch", (json_int_t)record_epoch(record), "cause",
                json_object_get(record, "cause"), "reason", json_object_get(record, "release"));
  if (record_opening_us(record))
    json_object_set_new(body, "opening_us", json_integer(record_opening_us(record)));
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->poster_client, "POST", path, body, REQUEST_MS);
  if (!answer.is_ok && is_for_later(answer.error.kind)) {
    batch->retry_after_s = answer.retry_after_s;
    return false;
  }

  if (!answer.is_ok) /* it expired before: nothing is left to release */
    log_info("lease: lease=%s had ended before it was released: %s", lease, answer.error.message);
  held_drop(agent->held, lease, record_epoch(record));
  return true;
}

/* Uploads code to the server, once. */
static bool object_put(struct agent *agent, const char *path, const char *digest_text,
                       struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size;
  char text[DIGEST_TEXT_SIZE];
  if (json_object_get(agent->stored, digest_text))
    return true;
  if (!file_read(path, OBJECT_SIZE_MAX, &bytes, &size, error))
    return false;

  struct digest digest = digest_of(bytes, size);
  if (!string_equal(digest_format(&digest, text), digest_text))
    return error_set(error, "%s has changed since it was measured", path);

  cleanup_free char *target = xasprintf("/v1/blobs/%s", digest_text);
  struct http_request request = {.method = "PUT",
                                 .path = target,
                                 .body = bytes,
                                 .body_size = size,
                                 .content_type = "application/octet-stream",
                                 .timeout_ms = OBJECT_MS};
  cleanup_http_response struct http_response response = {0};
  if (!http_send(agent->poster_client, &request, &response, error))
    return false;
  if (response.status != 200 && response.status != 201) {
    error_of(error, server_error_kind(&response), "the server answered %d to PUT %s",
             response.status, target);
    http_error_name_request(&response, error);
    return false;
  }

  json_object_set_new(agent->stored, digest_text, json_true());
  return true;
}

/* Uploads the code of a batch's measurements. False: the results wait with it. After
 * OBJECT_ATTEMPTS failures in a row results are posted without their code. */
static bool objects_post(struct agent *agent, struct batch *batch) {
  bool is_refused = false;
  array_foreach (spooled, batch->records, batch->n) {
    const json_t *record = spooled->json;
    json_t *measurement = json_object_get(record, "measurement");
    const char *path = json_text(record, "object_path");
    const char *digest = json_text(measurement, "object");
    struct error error;
    if (!path || !digest)
      continue;
    if (!is_refused) {
      if (object_put(agent, path, digest, &error)) {
        agent->object_failures = 0;
        continue;
      }
      is_refused = is_for_later(error.kind);
      if (is_refused && ++agent->object_failures < OBJECT_ATTEMPTS) {
        log_warning("poster: results wait in the spool for their compiled code: %s", error.message);
        return false;
      }
      log_warning("poster: results of lease=%s are posted without their compiled code: %s",
                  record_lease(record), error.message);
    }
    json_object_del(measurement, "object");
  }

  return true;
}

/* Posts at most one batch of the spool. *ret_more: the spool may have more records. False: try
 * again later; *ret_retry_after_s is what the server requests. */
static bool spool_post(struct agent *agent, bool *ret_more, int64_t *ret_retry_after_s) {
  struct error error;
  cleanup_free struct batch *batch = xcalloc(1, sizeof *batch);
  bool ok = spool_peek(agent->spool, batch->records, BATCH_RECORDS, &batch->n, &error);
  bool is_posted = ok && objects_post(agent, batch), has_code = is_posted;
  for (size_t i = 0; i < batch->n && is_posted; i++)
    if (batch->records[i].json)
      is_posted = json_object_get(batch->records[i].json, "release")
                      ? release_post(agent, batch, batch->records[i].json)
                      : group_post(agent, batch, i);
  if (has_code && !is_posted) /* the server is away: then the code is uploaded when it is back */
    agent->object_failures = 0;
  if (is_posted && batch->n)
    ok = spool_acknowledge(agent->spool, batch->records[batch->n - 1].number, &error);

  *ret_more = ok && batch->n == BATCH_RECORDS;
  *ret_retry_after_s = batch->retry_after_s;
  array_foreach (record, batch->records, batch->n)
    json_decref(record->json);
  if (!ok)
    log_error("poster: %s", error.message);
  return ok && is_posted;
}

void agent_post_left(struct agent *agent) {
  struct backoff backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS);
  int64_t retry_after_s;
  bool more;
  if (!spool_is_empty(agent->spool))
    log_info("poster: results of an earlier run wait in the spool; they are posted before anything "
             "else");

  while (!spool_is_empty(agent->spool) && !agent_is_stopping(agent)) {
    if (spool_post(agent, &more, &retry_after_s))
      backoff_reset(&backoff);
    else
      agent_back_off(agent, &backoff, retry_after_s);
  }
}

void *poster_run(void *context) {
  struct agent *agent = context;
  MAGIC_CHECK(agent, AGENT_MAGIC);
  struct backoff backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS);
  int64_t retry_after_s;
  bool more = false;

  while (!agent_flag(agent, &agent->is_measured)) {
    spool_wait(agent->spool, BATCH_WAIT_MS);
    if (spool_is_empty(agent->spool))
      continue;
    if (!more) /* else the end of a lease may be in the next batch */
      agent_wait(agent, BATCH_WAIT_MS, &agent->must_post);
    if (spool_post(agent, &more, &retry_after_s))
      backoff_reset(&backoff);
    else
      agent_wait(agent, backoff_next_ms(&backoff, retry_after_s), &agent->must_post);
  }

  /* The devices have ended: what is left in the spool is posted within LAST_POSTS_MS, or by the
   * next run. */
  int64_t until_ms = clock_monotonic_ms() + LAST_POSTS_MS;
  backoff_reset(&backoff);

  while (!spool_is_empty(agent->spool) && clock_monotonic_ms() < until_ms)
    if (!spool_post(agent, &more, &retry_after_s))
      usleep((useconds_t)(backoff_next_ms(&backoff, 0) * 1000));
  if (!spool_is_empty(agent->spool))
    log_warning("poster: results stay in %s/spool; the next run posts them", agent->state);
  agent_signal(agent, &agent->is_posted);
  agent_signal(agent, &agent->must_renew); /* wakes the keeper */
  return NULL;
}
