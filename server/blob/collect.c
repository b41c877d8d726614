/* Retention in the database. Memory and threads: as the header says. */
#include "server/blob/collect.h"

#include "server/blob/blob.sql.h"
#include "server/db/db_record.h"
#include "server/records.h"

static const struct field request_fields[] = {
    {"dry_run", FIELD_BOOL, offsetof(struct collect_request, is_dry), FIELD_NOT_NULL},
    {"keep_days", FIELD_INTEGER, offsetof(struct collect_request, keep_days), FIELD_NOT_NULL,
     .least = 1, .most = 36500, .about = "30 where it is left out"},
};
const struct record gc_request_record = RECORD("GcRequest", struct collect_request, request_fields);

struct collected_release {
  struct digest digest;
  char *tag, *created_at;
  int64_t winners, bytes;
};
static const struct field release_fields[] = {
    {"release", FIELD_DIGEST, offsetof(struct collected_release, digest), FIELD_ANSWER,
     .column = "digest"},
    {"tag", FIELD_TEXT, offsetof(struct collected_release, tag), FIELD_ANSWER},
    {"winners", FIELD_INTEGER, offsetof(struct collected_release, winners), FIELD_ANSWER},
    {"bytes", FIELD_INTEGER, offsetof(struct collected_release, bytes), FIELD_ANSWER},
    {"created_at", FIELD_TIME, offsetof(struct collected_release, created_at), FIELD_ANSWER},
};
static const struct record release_record = RECORD(NULL, struct collected_release, release_fields);

static const struct field files_fields[] = {
    {"n", FIELD_INTEGER, offsetof(struct collected_files, n), FIELD_ANSWER},
    {"bytes", FIELD_INTEGER, offsetof(struct collected_files, bytes), FIELD_ANSWER},
};
static const struct record files_record = RECORD(NULL, struct collected_files, files_fields);

static const struct field answer_fields[] = {
    {"releases", FIELD_RECORDS, offsetof(struct collection, releases), FIELD_ANSWER,
     .of = &release_record},
    {"files", FIELD_RECORD, offsetof(struct collection, files), FIELD_ANSWER, .of = &files_record},
    {"demand", FIELD_INTEGER, offsetof(struct collection, demand), FIELD_ANSWER},
    {"more", FIELD_BOOL, offsetof(struct collection, has_more), FIELD_ANSWER},
    {"dry_run", FIELD_BOOL, offsetof(struct collection, asked.is_dry), FIELD_ANSWER},
    {"keep_days", FIELD_INTEGER, offsetof(struct collection, asked.keep_days), FIELD_ANSWER},
};
const struct record gc_answer_record = RECORD("GcAnswer", struct collection, answer_fields);

void collection_release(struct collection *collection) {
  record_release(&gc_answer_record, collection);
}

/* What the statements take. */
struct collect_parameters {
  bool remove;
  int64_t keep_days, at_once, entries;
};
static const struct field parameters_fields[] = {
    {"remove", FIELD_BOOL, offsetof(struct collect_parameters, remove)},
    {"keep_days", FIELD_INTEGER, offsetof(struct collect_parameters, keep_days)},
    {"at_once", FIELD_INTEGER, offsetof(struct collect_parameters, at_once)},
    {"entries", FIELD_INTEGER, offsetof(struct collect_parameters, entries)},
};
static const struct record parameters_record =
    RECORD(NULL, struct collect_parameters, parameters_fields);

static bool collect_all(struct db *db, const struct collect_request *asked, struct collection *ret,
                        struct error *error) {
  const struct collect_parameters all = {!asked->is_dry, asked->keep_days, COLLECT_AT_ONCE,
                                         COLLECT_ENTRIES};
  cleanup_rows struct db_rows *releases = NULL, *files = NULL, *demand = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_record(&parameters, &parameters_record, &all);
  if (!db_run(db, &sql_collect_releases, &parameters, &releases, error) ||
      !db_run(db, &sql_collect_files, &parameters, &files, error) ||
      !db_run(db, &sql_collect_demand, &parameters, &demand, error))
    return false;

  ret->asked = *asked;
  ret->releases.all = db_read_all(releases, &release_record, &ret->releases.n);
  ret->files.n = db_get_integer(files, 0, "n");
  ret->files.bytes = db_get_integer(files, 0, "bytes");
  ret->demand = db_get_integer(demand, 0, "n");
  ret->has_more = ret->releases.n == COLLECT_AT_ONCE || ret->files.n == COLLECT_AT_ONCE;
  return true;
}

/* What was removed, by number; nothing where nothing was. */
static bool collection_note(struct db *db, const struct collection *collection,
                            const struct author *remover, struct error *error) {
  if (collection->asked.is_dry ||
      (!collection->releases.n && !collection->files.n && !collection->demand))
    return true;
  cleanup_free char *object =
      xasprintf("older than %lld days", (long long)collection->asked.keep_days);
  return audit_note(db, remover, AUDIT_COLLECT, object,
                    json_pack("{s:I, s:I, s:I}", "releases", (json_int_t)collection->releases.n,
                              "files", (json_int_t)collection->files.n, "demand",
                              (json_int_t)collection->demand),
                    error);
}

/* What was named after the statement had looked is refused by the database: the next look sees
 * it. */
#define ATTEMPTS 16

bool collect(struct db *db, const struct collect_request *asked, const struct author *remover,
             struct collection *ret, struct error *error) {
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    cleanup_collection struct collection collection = {0};
    if (!db_begin(db, error))
      return false;
    bool ok = collect_all(db, asked, &collection, error) &&
              collection_note(db, &collection, remover, error);
    if (db_end(db, ok, error)) {
      *ret = collection;
      collection = (struct collection){0};
      return true;
    }
    if (error->kind != ERROR_REFERENCE)
      return false;
  }
  return false;
}
