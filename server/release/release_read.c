/* Reading, rendering and listing releases. Memory and threads: releases.h. */
#include "server/release/releases.h"

#include "server/cache/cache_source.h"
#include "server/cache/fetches.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/import/imports.h"
#include "server/records.h"
#include "server/release/release.sql.h"

/* The canonical bytes of a release, NUL-terminated; NULL in *ret: there is none. */
static bool bytes_load(struct db *db, const struct digest *digest, char **ret, size_t *ret_size,
                       struct error *error) {
  *ret = NULL;
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_release_load, error, BIND("digest", digest));
  if (!rows)
    return false;

  if (db_count(rows)) {
    cleanup_free uint8_t *bytes = db_get_bytes(rows, 0, "bytes", ret_size);
    *ret = xstrndup((const char *)bytes, *ret_size);
  }
  return true;
}

static bool missing(const char *name, struct error *error) {
  return error_of(error, ERROR_MISSING, "there is no release %.100s; GET /v1/releases lists all",
                  name);
}

bool release_load(struct worker *worker, const struct digest *digest, struct release **ret,
                  struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!bytes_load(worker->db, digest, &bytes, &size, error))
    return false;
  if (!bytes)
    return missing(digest_format(digest, text), error);
  if (release_take(&bytes, size, digest, ret, error))
    return true;

  error_prefix(error, "the stored release %s: ", digest_format(digest, text));
  return error_become(error, ERROR_DAMAGED);
}

bool release_render(struct worker *worker, const struct release *release,
                    const struct cache_format *format, const struct identity *identity,
                    struct cache_files *ret, struct error *error) {
  cleanup_cache_store struct cache_store store = {.worker = worker};
  const struct cache_source source = cache_store_source(&store);
  const struct render_request wanted = {
      .release = release, .source = &source, .identity = identity};
  bool ok = format->render(&wanted, ret, error);
  if (store.has_failed) {
    *error = store.failure;
    return false;
  }
  error->pointer[0] = 0; /* the request has no body to point into */
  return ok;
}

bool route_release_get(struct worker *worker, struct request *request, struct error *error) {
  struct digest digest;
  char etag[DIGEST_TEXT_SIZE], *bytes = NULL;
  size_t size;
  if ((digest_parse(request->segments[0], &digest) &&
       !bytes_load(worker->db, &digest, &bytes, &size, error)) ||
      (!bytes && !missing(request->segments[0], error)))
    return false;

  fetches_note(request, &(struct fetch){.kind = FETCH_RELEASE, .release = digest});
  return request_answer_cached(request, RESPONSE_IMMUTABLE, "application/json", bytes, size,
                               digest_format(&digest, etag), NULL);
}

/* Reads the identity that ?identity= names; without it *ret_identity stays NULL. If there is no
 * such identity, answers the request and returns false. */
static bool identity_of_query(struct worker *worker, struct request *request,
                              struct identity **ret_identity, struct error *error) {
  const char *name = request_query(request, "identity");
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  struct digest digest;
  if (!name)
    return true;

  if (!digest_parse(name, &digest)) {
    error_set(error, "identity=%.80s is no digest, sha256:…", name);
  } else if (image_load(worker->db, &digest, &text, error)) {
    if (!text)
      error_of(error, ERROR_MISSING,
               "there is no image %s; PUT /v1/images/{digest} keeps its identity", name);
    else if (json_parse(text, strlen(text), &json, error) &&
             identity_parse(json, ret_identity, error))
      return true;
    else { /* An earlier version of the server could read it when it was stored. */
      error_prefix(error, "the stored image %s: ", name);
      error_become(error, ERROR_DAMAGED);
    }
  }

  return false;
}

/* Answers with one file as it is, or with several as a tar. An answer that lacks winners is not
 * cached, because it may be complete later. */
static void files_answer(struct request *request, struct cache_files *files) {
  char etag[DIGEST_TEXT_SIZE], skipped[24];
  struct cache_file *only = files->n == 1 ? &files->files[0] : NULL;
  const char *type = !only ? "application/x-tar"
                     : string_equal(strrchr(only->path, '.'), ".json")
                         ? "application/json"
                         : "text/plain; charset=utf-8";
  size_t size = only ? only->size : 0;
  char *bytes = only ? TAKE(only->bytes) : cache_files_tar(files, &size);
  struct digest digest = digest_of(bytes, size);
  digest_format(&digest, etag);
  if (!files->n_skipped) { /* not immutable: a build may be removed */
    request_answer_cached(request, RESPONSE_OF_CHANNELS, type, bytes, size, etag, NULL);
    return;
  }

  snprintf(skipped, sizeof skipped, "%zu", files->n_skipped);
  request_add_header(request, "Wavetune-Skipped", skipped);
  request_answer_entity(request, type, bytes, size, etag, false);
}

bool route_release_export(struct worker *worker, struct request *request, struct error *error) {
  struct digest digest;
  const struct cache_format *format;
  cleanup_release struct release *release = NULL;
  cleanup_identity struct identity *identity = NULL;
  cleanup_cache_files struct cache_files files = {0};
  if ((!digest_parse(request->segments[0], &digest) && !missing(request->segments[0], error)) ||
      !release_load(worker, &digest, &release, error))
    return false;

  if (!cache_format_find(request->segments[1], &format, error)) {
    error_become(error, ERROR_MISSING);
    return false;
  }
  if (!identity_of_query(worker, request, &identity, error) ||
      !release_render(worker, release, format, identity, &files, error))
    return false;

  fetches_note(request, &(struct fetch){.kind = FETCH_FILES, .release = digest});
  files_answer(request, &files);
  return true;
}

struct listed_release {
  struct digest release;
  json_t *environment;
  char *tag;
  enum regime regime;
  int64_t winners;
  char *created_at, *made_by;
  int64_t made_by_id;
};
#define RECORD_OF struct listed_release
static const struct field listed_fields[] = {
    MEMBER(DIGEST, release, FIELD_NOT_NULL, "digest"),
    MEMBER(JSON, environment, FIELD_NOT_NULL, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, tag, FIELD_NOT_NULL),
    MEMBER(ENUM, regime, FIELD_NOT_NULL, .names = regime_names),
    MEMBER(INTEGER, winners, FIELD_NOT_NULL),
    MEMBER(TIME, created_at, FIELD_NOT_NULL),
    MEMBER(TEXT, made_by, FIELD_NOT_NULL, .schema = SCHEMA_BY),
    MEMBER(ID, made_by_id, FIELD_NOT_NULL, .schema = SCHEMA_BY_ID),
};
const struct record listed_release_record = ANSWER("ListedRelease", listed_fields);
#undef RECORD_OF

bool route_release_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {
      .statement = &sql_releases_list, .record = &listed_release_record, .is_newest_first = true};
  return answer_page_by(worker, request, &list, error);
}
