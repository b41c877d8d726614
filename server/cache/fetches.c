/* A hash of fetches under a mutex, which the housekeeper writes to the database; and the route that
 * lists those of a release. */
#include "server/cache/fetches.h"

#include <pthread.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/cache/text.h"
#include "server/cache/cache.sql.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/records.h"

#define WRITE_EVERY_POLLS 60 /* a minute with the default --poll-ms */

_Static_assert(FETCHES_MAX < UINT16_MAX, "indexes of fetches");

static const char *const kind_names[] = {
    [FETCH_NONE] = "none",       [FETCH_ENTRY] = "entry", [FETCH_CHOICES] = "choices",
    [FETCH_RELEASE] = "release", [FETCH_FILES] = "files", NULL};

#define RECORD_OF struct noted_fetch
static const struct field noted_fields[] = {
    MEMBER(DIGEST, release),   MEMBER(ENUM, kind, .names = kind_names),
    MEMBER(TEXT, channel),     MEMBER(ENUM, rule, .names = cache_rule_names),
    MEMBER(TEXT, fetched_by),  MEMBER(INTEGER, fetched_by_id),
    MEMBER(INTEGER, requests), MEMBER(INTEGER, first_ms),
    MEMBER(INTEGER, last_ms),
};
#undef RECORD_OF
static const struct record noted_record = RECORD(NULL, struct noted_fetch, noted_fields);

struct fetches {
  pthread_mutex_t lock;
  struct fetch_batch *batch; /* NULL: nothing was noted */
  /* The housekeeper's: */
  int64_t next_write_ms; /* by clock_monotonic_ms */
  bool has_failed;       /* the last write: a full batch waits for its time, too */
};

struct fetches *fetches_new(void) {
  struct fetches *fetches = xcalloc(1, sizeof *fetches);
  pthread_mutex_init(&fetches->lock, NULL);
  return fetches;
}

void fetch_batch_free(struct fetch_batch *batch) {
  for (size_t i = 0; batch && i < batch->n; i++) {
    free(batch->all[i].channel);
    free(batch->all[i].fetched_by);
  }
  free(batch);
}
DEFINE_CLEANUP(struct fetch_batch *, cleanup_fetch_batch_free, fetch_batch_free)
#define cleanup_fetch_batch __attribute__((cleanup(cleanup_fetch_batch_free)))

void fetches_free(struct fetches *fetches) {
  if (!fetches)
    return;

  fetch_batch_free(fetches->batch);
  pthread_mutex_destroy(&fetches->lock);
  free(fetches);
}

static uint64_t hash_of(const struct noted_fetch *fetch) {
  uint64_t hash = (uint64_t)fetch->fetched_by_id * 8 + (uint64_t)fetch->kind;
  const char *const texts[] = {fetch->fetched_by, fetch->channel};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
    if (texts[i])
      hash = hash * 0x9e3779b97f4a7c15u ^ text_hash(texts[i], strlen(texts[i]));
  return hash * 0x9e3779b97f4a7c15u ^ text_hash((const char *)fetch->release.bytes, DIGEST_SIZE);
}

static bool is_same(const struct noted_fetch *a, const struct noted_fetch *b) {
  return a->kind == b->kind && a->rule == b->rule && a->fetched_by_id == b->fetched_by_id &&
         digest_equal(&a->release, &b->release) && string_equal(a->channel, b->channel) &&
         string_equal(a->fetched_by, b->fetched_by);
}

/* `fetch` owns none of its texts. */
static void add(struct fetches *fetches, const struct noted_fetch *fetch) {
  size_t bucket = hash_of(fetch) % FETCHES_MAX;
  HOLD(&fetches->lock);
  if (!fetches->batch)
    fetches->batch = xcalloc(1, sizeof *fetches->batch);

  struct fetch_batch *batch = fetches->batch;
  uint16_t at = batch->buckets[bucket];
  while (at && !is_same(&batch->all[at - 1], fetch))
    at = batch->all[at - 1].next;
  if (at) {
    struct noted_fetch *noted = &batch->all[at - 1];
    noted->requests += fetch->requests;
    noted->first_ms = noted->first_ms < fetch->first_ms ? noted->first_ms : fetch->first_ms;
    noted->last_ms = noted->last_ms > fetch->last_ms ? noted->last_ms : fetch->last_ms;
  } else if (batch->n < FETCHES_MAX) {
    struct noted_fetch *noted = &batch->all[batch->n++];
    *noted = *fetch;
    noted->channel = fetch->channel ? xstrdup(fetch->channel) : NULL;
    noted->fetched_by = fetch->fetched_by ? xstrdup(fetch->fetched_by) : NULL;
    noted->next = batch->buckets[bucket];
    batch->buckets[bucket] = (uint16_t)batch->n;
  } else {
    batch->left_out += (uint64_t)fetch->requests;
  }
}

void fetches_made(struct fetches *fetches, const struct digest *release) {
  int64_t now_ms = clock_monotonic_ms();
  add(fetches, &(struct noted_fetch){
                   .release = *release, .rule = -1, .first_ms = now_ms, .last_ms = now_ms});
}

void fetches_of_cached(void *fetches, const struct fetch *fetch, int64_t token_id,
                       const char *token_name) {
  int64_t now_ms = clock_monotonic_ms();
  bool is_of_channel = fetch->channel[0] != '\0';
  add(fetches, &(struct noted_fetch){.release = fetch->release,
                                     .kind = fetch->kind,
                                     .channel = is_of_channel ? (char *)fetch->channel : NULL,
                                     .rule = is_of_channel ? fetch->rule : (enum cache_rule) - 1,
                                     .fetched_by = (char *)token_name,
                                     .fetched_by_id = token_id,
                                     .requests = 1,
                                     .first_ms = now_ms,
                                     .last_ms = now_ms});
}

void fetches_note(struct request *request, const struct fetch *fetch) {
  request->fetch = *fetch; /* the answer may be cached for others */
  if (!request_is_of_page(request))
    fetches_of_cached(server_fetches(request->server), fetch, request->token_id,
                      request->token_name);
}

struct fetch_batch *fetches_take(struct fetches *fetches) {
  HOLD(&fetches->lock);
  return TAKE(fetches->batch);
}

void fetches_return(struct fetches *fetches, const struct fetch_batch *batch) {
  for (size_t i = 0; i < batch->n; i++)
    add(fetches, &batch->all[i]);
}

static bool batch_store(struct db *db, const struct fetch_batch *batch, struct error *error) {
  /* Times are stored by the database's clock, so they are sent as ages. */
  cleanup_free struct noted_fetch *rows = xmemdup(batch->all, batch->n * sizeof *rows);
  int64_t now_ms = clock_monotonic_ms();
  for (size_t i = 0; i < batch->n; i++) {
    rows[i].first_ms = now_ms - rows[i].first_ms;
    rows[i].last_ms = now_ms - rows[i].last_ms;
  }

  if (!db_execute(db, &sql_fetches_store, error, BIND_RECORDS(&noted_record, rows, batch->n)))
    return false;

  struct error ignored; /* the next batch of these releases removes the rows */
  if (!db_execute(db, &sql_fetches_trim, &ignored, BIND_RECORDS(&noted_record, rows, batch->n),
                  BIND("most", FETCHERS_MAX)))
    log_warning("fetches: %s", ignored.message);
  return true;
}

void fetches_write(struct worker *worker) {
  struct fetches *fetches = server_fetches(worker->server);
  struct error error;
  cleanup_fetch_batch struct fetch_batch *batch = fetches_take(fetches);
  if (!batch)
    return;

  counter_add(COUNTER_fetches_left_out, batch->left_out);
  fetches->has_failed = !batch_store(worker->db, batch, &error);
  if (fetches->has_failed) {
    fetches_return(fetches, batch);
    log_warning("fetches: %s", error.message);
  }
}

void fetches_housekeep(struct worker *worker) {
  struct fetches *fetches = server_fetches(worker->server);
  int64_t now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&fetches->lock);
  bool is_filling = fetches->batch && fetches->batch->n >= FETCHES_MAX / 2;
  pthread_mutex_unlock(&fetches->lock);
  if (now_ms < fetches->next_write_ms && (!is_filling || fetches->has_failed))
    return;

  fetches->next_write_ms = now_ms + WRITE_EVERY_POLLS * server_options(worker->server)->poll_ms;
  fetches_write(worker);
}

/* GET /v1/releases/{digest}/fetches */

struct listed_fetch {
  char *kind, *channel, *rule, *fetched_by, *first_at, *last_at;
  int64_t fetched_by_id, requests;
};
#define RECORD_OF struct listed_fetch
static const struct field listed_fields[] = {
    MEMBER(TEXT, fetched_by, FIELD_NOT_NULL, .schema = SCHEMA_BY),
    MEMBER(ID, fetched_by_id, FIELD_NOT_NULL, .schema = SCHEMA_BY_ID),
    MEMBER(TEXT, kind, FIELD_NOT_NULL,
           .schema = "{\"type\": \"string\", \"enum\": [\"entry\", \"choices\", "
                     "\"release\", \"files\"]}",
           .about = "what was requested: a channel's entry, choices, the release itself, or "
                    "an export of it"),
    MEMBER(TEXT, channel, .about = "null: the release was requested by its digest"),
    MEMBER(TEXT, rule, .about = "by which the entry was found; null without a channel"),
    MEMBER(INTEGER, requests, FIELD_NOT_NULL, .about = "those answered 304 among them"),
    MEMBER(TIME, first_at, FIELD_NOT_NULL),
    MEMBER(TIME, last_at, FIELD_NOT_NULL),
};
const struct record listed_fetch_record = ANSWER("ReleaseFetch", listed_fields);
#undef RECORD_OF

bool route_release_fetches(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_fetches_list, .record = &listed_fetch_record};
  struct digest digest;
  cleanup_rows struct db_rows *found = NULL;
  bool is_digest = digest_parse(request->segments[0], &digest);
  if (is_digest &&
      !(found = db_query(worker->db, &sql_fetches_release, error, BIND("release", &digest))))
    return false;
  if (!is_digest || !db_count(found))
    return error_of(error, ERROR_MISSING, "there is no release %.100s; GET /v1/releases lists all",
                    request->segments[0]);

  return answer_page_by(worker, request, &list, error, BIND("release", &digest));
}
