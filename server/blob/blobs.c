/* Files in the database, the cache of those read last, and the routes of /v1/blobs. */
#include "server/blob/blobs.h"

#include <pthread.h>
#include <zstd.h>

#include "common/base/lock.h"
#include "server/audit/audit.h"
#include "server/blob/blob.sql.h"
#include "server/db/db_record.h"
#include "server/http/limits.h"
#include "server/http/request.h"
#include "server/records.h"

#define CHUNK_SIZE (256 * 1024)
#define COMPRESSION_LEVEL 3
#define CACHE_ENTRIES_MAX 512

struct blob_cache {
  pthread_mutex_t lock;
  size_t bytes, bytes_max, n;
  struct blob *blobs[CACHE_ENTRIES_MAX]; /* most recently used first */
};

static struct blob *blob_reference(struct blob *blob) {
  __atomic_add_fetch(&blob->references, 1, __ATOMIC_RELAXED);
  return blob;
}

void blob_unreference(struct blob *blob) {
  if (__atomic_sub_fetch(&blob->references, 1, __ATOMIC_ACQ_REL))
    return;
  free(blob->bytes);
  free(blob);
}

struct blob_cache *blob_cache_new(size_t bytes_max) {
  struct blob_cache *cache = xcalloc(1, sizeof *cache);
  pthread_mutex_init(&cache->lock, NULL);
  cache->bytes_max = bytes_max;
  return cache;
}

void blob_cache_free(struct blob_cache *cache) {
  if (!cache)
    return;
  for (size_t i = 0; i < cache->n; i++)
    blob_unreference(cache->blobs[i]);
  pthread_mutex_destroy(&cache->lock);
  free(cache);
}

static void to_front(struct blob_cache *cache, size_t i) {
  struct blob *blob = cache->blobs[i];
  memmove(&cache->blobs[1], &cache->blobs[0], i * sizeof(struct blob *));
  cache->blobs[0] = blob;
}

static struct blob *cache_find(struct blob_cache *cache, const struct digest *digest) {
  HOLD(&cache->lock);
  for (size_t i = 0; i < cache->n; i++)
    if (digest_equal(&cache->blobs[i]->digest, digest)) {
      to_front(cache, i);
      return blob_reference(cache->blobs[0]);
    }
  return NULL;
}

static void cache_add(struct blob_cache *cache, struct blob *blob) {
  if (blob->size > cache->bytes_max / 4)
    return;

  HOLD(&cache->lock);
  while (cache->n &&
         (cache->n == CACHE_ENTRIES_MAX || cache->bytes + blob->size > cache->bytes_max)) {
    struct blob *last = cache->blobs[--cache->n];
    cache->bytes -= last->size;
    blob_unreference(last);
  }

  cache->blobs[cache->n] = blob_reference(blob);
  cache->bytes += blob->size;
  to_front(cache, cache->n++);
}

/* In the transaction that stored a file. */
static bool usage_check(struct db *db, struct request *request, struct error *error) {
  const struct author *author = request_author(request);
  cleanup_rows struct db_rows *rows = NULL;
  if (!limit_of(request->server, author, LIMIT_FILES))
    return true;
  return (rows = db_query(db, &sql_blob_usage, error, BIND("token", author->token))) &&
         limit_check(request->server, author, LIMIT_FILES,
                     (db_get_integer(rows, 0, "bytes") + MIB - 1) / MIB, error);
}

/* Stores the request's body, in a transaction of the caller's. *ret_is_new is false when the file
 * was stored already. */
static bool blob_store(struct db *db, struct request *request, const struct digest *digest,
                       bool *ret_is_new, struct error *error) {
  const struct author *author = request_author(request);
  const char *bytes = request->body;
  size_t size = request->body_size;
  cleanup_rows struct db_rows *rows = db_query(db, &sql_blob_insert, error, BIND("digest", digest),
                                               BIND("size", (int64_t)size), BIND_AUTHOR(author));
  if (!rows)
    return false;
  *ret_is_new = db_count(rows) == 1 && db_get_bool(rows, 0, "is_new");
  if (!*ret_is_new)
    return true;
  if (!usage_check(db, request, error))
    return false;

  size_t bound = ZSTD_compressBound(CHUNK_SIZE);
  cleanup_free uint8_t *compressed = xmalloc(bound);
  for (size_t at = 0; at < size; at += CHUNK_SIZE) {
    size_t chunk_size = size - at < CHUNK_SIZE ? size - at : CHUNK_SIZE;
    size_t compressed_size =
        ZSTD_compress(compressed, bound, bytes + at, chunk_size, COMPRESSION_LEVEL);
    ALWAYS(!ZSTD_isError(compressed_size));

    if (!db_execute(db, &sql_blob_chunk_insert, error, BIND("digest", digest),
                    BIND("ordinal", (int64_t)(at / CHUNK_SIZE)),
                    parameter_bytes("bytes", compressed, compressed_size)))
      return false;
  }
  return audit_note_digest(db, author, AUDIT_PUT_BLOB, digest,
                           json_pack("{s:I}", "size", (json_int_t)size), error);
}

static bool damaged(const struct digest *digest, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  return error_of(
      error, ERROR_DAMAGED,
      "the stored file %s is damaged: its bytes do not have this digest; restore the database's "
      "table blob_chunks from a backup, or delete the row and upload the file again",
      digest_format(digest, text));
}

/* Reads one row at a time, so that a worker holds one file and one chunk, not a result of twice the
 * file's size. */
static bool chunk_load(struct db *db, struct blob *blob, size_t at, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_blob_chunk, error, BIND("digest", &blob->digest),
               BIND("ordinal", (int64_t)(at / CHUNK_SIZE)));
  if (!rows)
    return false;
  if (!db_count(rows))
    return damaged(&blob->digest, error);

  size_t expected = blob->size - at < CHUNK_SIZE ? blob->size - at : CHUNK_SIZE, compressed_size;
  cleanup_free uint8_t *compressed = db_get_bytes(rows, 0, "bytes", &compressed_size);
  if (ZSTD_decompress(blob->bytes + at, expected, compressed, compressed_size) != expected)
    return damaged(&blob->digest, error);
  return true;
}

bool blob_load(struct worker *worker, const struct digest *digest, struct blob **ret_blob,
               struct error *error) {
  struct db *db = worker->db;
  struct blob_cache *cache = server_blobs(worker->server);
  *ret_blob = cache_find(cache, digest);
  if (*ret_blob)
    return true;

  cleanup_rows struct db_rows *rows = db_query(db, &sql_blob_size, error, BIND("digest", digest));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  cleanup_blob struct blob *blob = xcalloc(1, sizeof *blob);
  blob->references = 1;
  blob->digest = *digest;
  blob->size = (size_t)db_get_integer(rows, 0, "size");
  blob->bytes = xmalloc(blob->size);
  for (size_t at = 0; at < blob->size; at += CHUNK_SIZE)
    if (!chunk_load(db, blob, at, error))
      return false;

  struct digest actual = digest_of(blob->bytes, blob->size);
  if (!digest_equal(&actual, digest))
    return damaged(digest, error);

  cache_add(cache, blob);
  *ret_blob = TAKE(blob);
  return true;
}

bool files_check(struct worker *worker, struct request *request, const struct digest *digests,
                 size_t n, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_blobs_missing, error, BIND_ALL("digests", digests, n));
  if (!rows)
    return false;

  int n_missing = db_count(rows);
  if (!n_missing)
    return true;

  json_t *list = json_array();
  for (int row = 0; row < n_missing; row++)
    json_push(list, json_digest_text(&digests[db_get_integer(rows, row, "i")]));
  error_of(error, ERROR_CONFLICT,
           "%d of the files that this refers to %s not stored: PUT them to /v1/blobs/{digest} and "
           "try again",
           n_missing, n_missing == 1 ? "is" : "are");
  request->extra = json_pack("{s:o}", "missing", list);
  return false;
}

bool answer_missing_files(struct worker *worker, struct request *request,
                          const struct digest *digests, size_t n) {
  struct error error;
  bool ok = files_check(worker, request, digests, n, &error);
  if (!ok)
    answer_failure(request, &error);
  return ok;
}

/* The digest in the path; answers 404 when it is not one. */
static bool digest_of_path(struct request *request, struct digest *ret_digest,
                           struct error *error) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  return error_of(error, ERROR_MISSING,
                  "\"%.80s\" is no digest: \"sha256:\" and 64 lower-case hexadecimal digits",
                  request->segments[0]);
}

struct blob_answer {
  struct digest blob;
  int64_t size;
};
#define RECORD_OF struct blob_answer
static const struct field blob_answer_fields[] = {
    MEMBER(DIGEST, blob),
    MEMBER(INTEGER, size),
};
const struct record blob_answer_record = ANSWER("BlobAnswer", blob_answer_fields);
#undef RECORD_OF

bool route_blob_put(struct worker *worker, struct request *request, struct error *error) {
  struct blob_answer answer = {.size = (int64_t)request->body_size};
  bool is_new;

  if (!digest_of_path(request, &answer.blob, error))
    return false;

  struct digest actual = digest_of(request->body ? request->body : "", request->body_size);
  if (!digest_equal(&actual, &answer.blob)) {
    char text[DIGEST_TEXT_SIZE];
    return error_set(error, "the body's digest is %s, not the path's %s",
                     digest_format(&actual, text), request->segments[0]);
  }

  struct db *db = worker->db;
  if (!db_begin(db, error) ||
      !db_end(db, blob_store(db, request, &answer.blob, &is_new, error), error))
    return false;
  return request_answer_json(request, is_new ? 201 : 200,
                             record_write(&blob_answer_record, &answer));
}

static void blob_release(void *blob) { blob_unreference(blob); }

bool route_blob_get(struct worker *worker, struct request *request, struct error *error) {
  struct digest digest;
  struct blob *blob;

  if (!digest_of_path(request, &digest, error))
    return false;

  if (!blob_load(worker, &digest, &blob, error)) {
    if (error->kind == ERROR_DAMAGED) /* agents try again until it is restored */
      error_become(error, ERROR_UNAVAILABLE);
    return false;
  }
  if (!blob)
    return error_of(error, ERROR_MISSING, "no file %s is stored", request->segments[0]);
  return request_answer_file(request, request->segments[0], blob->bytes, blob->size, blob_release,
                             blob);
}
