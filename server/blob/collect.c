/* POST /v1/gc, and the thread of --keep-days: removes releases, files and demand that are no longer
 * needed, and old measurements (measurement/retention.h). The housekeeper removes files that
 * nothing named for --unused-file-days.
 *
 * A release is needed while a channel points at it, while it is one of the last COLLECT_ENTRIES
 * that a channel pointed at (to roll back to; renewals count once), and for keep_days after it was
 * made or fetched. A file is needed while a kernel, a build or a measurement names it, and for
 * keep_days after it was stored (a request may be about to name it). Demand is kept for keep_days
 * after its last report. Measurements are removed on request only; jobs, kernels, builds and the
 * history of channels never. */
#include "server/blob/collect.h"

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/blob/blob.sql.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/measurement/retention.h"
#include "server/records.h"

#define COLLECT_ENTRIES 8
#define COLLECT_AT_ONCE 1000 /* releases, and files, of one call */
#define COLLECT_KEEP_DAYS 30 /* unless the request states another number */
#define ATTEMPTS 16
#define LOOK_EVERY_MS 50
#define POLLS 10 /* every so many --poll-ms the thread checks whether it is due */
#define THREAD_RUN_MS (60 * 60 * 1000LL)
#define RETRY_MINUTES 10 /* after a failure */
/* The housekeeper has other duties, so it removes few files at a time. */
#define HOUSEKEEP_AT_ONCE 64
#define HOUSEKEEP_EVERY_MS (60 * 60 * 1000)
#define HOUSEKEEP_AGAIN_MS 5000 /* while there are more */

struct collect_request {
  bool is_dry, measurements;
  int64_t keep_days;
};
#define RECORD_OF struct collect_request
static const struct field request_fields[] = {
    MEMBER_AS("dry_run", BOOL, is_dry, FIELD_NOT_NULL),
    MEMBER(INTEGER, keep_days, FIELD_NOT_NULL, .least = 1, .most = 36500, .about = "default: 30"),
    MEMBER(BOOL, measurements, FIELD_NOT_NULL,
           .about = "also those of jobs that ended more than keep_days ago, a partition a "
                    "call"),
};
#undef RECORD_OF
const struct record gc_request_record = RECORD("GcRequest", struct collect_request, request_fields);

struct collected_release {
  struct digest digest;
  char *tag, *created_at;
  int64_t winners, bytes;
};
#define RECORD_OF struct collected_release
static const struct field release_fields[] = {
    MEMBER_AS("release", DIGEST, digest, .column = "digest"),
    MEMBER(TEXT, tag),
    MEMBER(INTEGER, winners),
    MEMBER(INTEGER, bytes),
    MEMBER(TIME, created_at),
};
static const struct record release_record = ANSWER(NULL, release_fields);
#undef RECORD_OF

/* The answer: what was removed, or would be. */
struct collection {
  struct records releases;
  struct collected_files {
    int64_t n, bytes;
  } files;
  int64_t demand;  /* keys */
  int64_t fetches; /* rows of GET /v1/releases/{digest}/fetches, besides those of `releases` */
  struct retention measurements;
  bool has_more; /* COLLECT_AT_ONCE of something were found, or another partition is due */
  struct collect_request request;
};
#define RECORD_OF struct collected_files
static const struct field files_fields[] = {
    MEMBER(INTEGER, n),
    MEMBER(INTEGER, bytes),
};
static const struct record files_record = ANSWER(NULL, files_fields);
#undef RECORD_OF

#define RECORD_OF struct collection
static const struct field answer_fields[] = {
    MEMBER(RECORDS, releases, .of = &release_record),
    MEMBER(RECORD, files, .of = &files_record),
    MEMBER(INTEGER, demand),
    MEMBER(INTEGER, fetches),
    MEMBER(RECORD, measurements, .of = &retention_record),
    MEMBER_AS("more", BOOL, has_more),
    MEMBER_AS("dry_run", BOOL, request.is_dry),
    MEMBER_AS("keep_days", INTEGER, request.keep_days),
};
const struct record gc_answer_record = ANSWER("GcAnswer", answer_fields);
#undef RECORD_OF

static void collection_release(struct collection *collection) {
  record_release(&gc_answer_record, collection);
  *collection = (struct collection){0};
}
#define cleanup_collection __attribute__((cleanup(collection_release)))

#define BIND_COLLECT(request)                                                                      \
  parameter_bool("remove", !(request)->is_dry), BIND("keep_days", (request)->keep_days)

static bool files_collect(struct db *db, const struct collect_request *request, int64_t at_once,
                          struct collected_files *ret, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_collect_files, error, BIND_COLLECT(request), BIND("at_once", at_once));
  if (!rows)
    return false;
  *ret = (struct collected_files){db_get_integer(rows, 0, "n"), db_get_integer(rows, 0, "bytes")};
  return true;
}

struct collecting {
  const struct collect_request *request;
  const struct author *author;
  struct collection *ret;
};

/* Collects releases, files and demand; adds a row to the audit table when something was removed. */
static bool unneeded_collect(struct db *db, void *context, struct error *error) {
  const struct collecting *collecting = context;
  const struct collect_request *request = collecting->request;
  struct collection *ret = collecting->ret;
  collection_release(ret);
  cleanup_rows struct db_rows *releases = NULL, *demand = NULL, *fetches = NULL;
  if (!(releases = db_query(db, &sql_collect_releases, error, BIND_COLLECT(request),
                            BIND("at_once", COLLECT_AT_ONCE), BIND("entries", COLLECT_ENTRIES))) ||
      !files_collect(db, request, COLLECT_AT_ONCE, &ret->files, error) ||
      !(demand = db_query(db, &sql_collect_demand, error, BIND_COLLECT(request))) ||
      !(fetches = db_query(db, &sql_collect_fetches, error, BIND_COLLECT(request),
                           BIND("at_once", COLLECT_AT_ONCE))))
    return false;

  ret->request = *request;
  ret->releases.all = db_read_all(releases, &release_record, &ret->releases.n);
  ret->demand = db_get_integer(demand, 0, "n");
  ret->fetches = db_get_integer(fetches, 0, "n");
  ret->has_more = ret->releases.n == COLLECT_AT_ONCE || ret->files.n == COLLECT_AT_ONCE ||
                  (!request->is_dry && ret->fetches == COLLECT_AT_ONCE);
  if (request->is_dry || (!ret->releases.n && !ret->files.n && !ret->demand && !ret->fetches))
    return true;

  cleanup_free char *object = xasprintf("older than %lld days", (long long)request->keep_days);
  return audit_note(db, collecting->author, AUDIT_COLLECT, object,
                    json_pack("{s:I, s:I, s:I, s:I}", "releases", (json_int_t)ret->releases.n,
                              "files", (json_int_t)ret->files.n, "demand", (json_int_t)ret->demand,
                              "fetches", (json_int_t)ret->fetches),
                    error);
}

/* When another transaction names a file or a release that is being removed, the database refuses
 * the removal (ERROR_REFERENCE); the next attempt sees the new reference. A release that is fetched
 * meanwhile, for the first time in long, may be locked by both (ERROR_CONTENTION). Measurements
 * have a transaction of their own, because the removal of their partition locks more. */
static bool collect(struct db *db, const struct collect_request *request,
                    const struct author *author, struct collection *ret, struct error *error) {
  struct collecting collecting = {request, author, ret};
  if (!db_transaction(db, ATTEMPTS, unneeded_collect, &collecting, error))
    return false;

  ret->measurements = (struct retention){0};
  if (!request->measurements)
    return true;
  if (request->is_dry)
    return retention_list(db, request->keep_days, &ret->measurements, error);

  bool has_more;
  if (!retention_remove(db, request->keep_days, author, &ret->measurements, &has_more, error))
    return false;
  ret->has_more |= has_more;
  return true;
}

static void collection_log(const struct collection *collection, const char *by) {
  log_info("gc: %s removed %zu releases, %lld files and the measurements of %lld jobs", by,
           collection->releases.n, (long long)collection->files.n,
           (long long)collection->measurements.jobs);
}

bool route_gc_post(struct worker *worker, struct request *request, struct error *error) {
  struct collect_request given = {.keep_days = COLLECT_KEEP_DAYS};
  cleanup_collection struct collection collection = {0};
  if (!record_read(&gc_request_record, request->json, "", &given, error) ||
      !collect(worker->db, &given, request_author(request), &collection, error))
    return false;

  if (!given.is_dry)
    collection_log(&collection, request->token_name);
  return request_answer_json(request, 200, record_write(&gc_answer_record, &collection));
}

/* The thread of --keep-days */

/* Whether a day has passed since one of the servers collected: true for one server only, which then
 * has to collect. */
static bool due_claim(struct db *db, bool *ret_is_due, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_collection_claim, error);
  if (!rows)
    return false;

  *ret_is_due = db_affected(rows) > 0;
  return true;
}

static void due_postpone(struct db *db) {
  struct error error;
  if (!db_execute(db, &sql_collection_postpone, &error, BIND("minutes", RETRY_MINUTES)))
    log_warning("gc: the next try is in a day: %s", error.message);
}

/* Collects until nothing is left or the server stops. */
static bool all_collect(struct worker *worker, struct error *error) {
  const struct collect_request request = {.measurements = true,
                                          .keep_days = server_options(worker->server)->keep_days};
  bool has_more = true;
  while (has_more && server_pause(worker->server, 0)) {
    cleanup_collection struct collection collection = {0};
    if (!collect(worker->db, &request, &author_server, &collection, error))
      return false;
    collection_log(&collection, author_server.name);
    has_more = collection.has_more;
  }

  return true;
}

void *collect_main(void *context) {
  struct worker *worker = context;
  struct server *server = worker->server;
  int64_t next_ms = 0;
  MAGIC_CHECK(worker, WORKER_MAGIC);
  db_set_run_ms(worker->db, THREAD_RUN_MS);
  while (server_pause(server, LOOK_EVERY_MS)) {
    struct error error;
    bool is_due = false;
    if (!server_is_ready(server) || clock_monotonic_ms() < next_ms)
      continue;

    next_ms = clock_monotonic_ms() + POLLS * server_options(server)->poll_ms;
    if (!due_claim(worker->db, &is_due, &error)) {
      log_warning("gc: %s", error.message);
    } else if (is_due && !all_collect(worker, &error)) {
      log_warning("gc: %s; it tries again in %d minutes", error.message, RETRY_MINUTES);
      due_postpone(worker->db);
    }
  }

  return NULL;
}

static bool unused_files_remove(struct db *db, const struct collect_request *request,
                                struct collected_files *ret, struct error *error) {
  if (!files_collect(db, request, HOUSEKEEP_AT_ONCE, ret, error))
    return false;
  if (!ret->n)
    return true;

  cleanup_free char *object = xasprintf("older than %lld days", (long long)request->keep_days);
  return audit_note(db, &author_server, AUDIT_COLLECT, object,
                    json_pack("{s:I}", "files", (json_int_t)ret->n), error);
}

void files_housekeep(struct worker *worker) {
  struct collect_request request = {.keep_days = server_options(worker->server)->unused_file_days};
  struct collected_files files = {0};
  struct error error;
  int64_t now_ms = clock_monotonic_ms();
  if (!request.keep_days || now_ms < worker->files_due_ms)
    return;

  worker->files_due_ms = now_ms + HOUSEKEEP_EVERY_MS;
  if (!db_begin(worker->db, &error) ||
      !db_end(worker->db, unused_files_remove(worker->db, &request, &files, &error), &error)) {
    /* A request may have named one of the files: the next attempt sees that. */
    worker->files_due_ms = now_ms + HOUSEKEEP_AGAIN_MS;
    if (error.kind != ERROR_REFERENCE)
      log_warning("gc: %s", error.message);
    return;
  }

  if (files.n)
    log_info("gc: removed files that nothing names files=%lld bytes=%lld", (long long)files.n,
             (long long)files.bytes);
  if (files.n == HOUSEKEEP_AT_ONCE)
    worker->files_due_ms = now_ms + HOUSEKEEP_AGAIN_MS;
}
