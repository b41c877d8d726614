/* Files in the database, and the cache of those read last. A cache has its own lock; blobs are
 * counted. */
#include "server/blob/blobs.h"

#include <pthread.h>
#include <zstd.h>

#include "server/blob/blob.sql.h"
#include "server/db/db_record.h"

#define CHUNK_SIZE (256 * 1024)
#define COMPRESSION_LEVEL 3
#define CACHE_ENTRIES_MAX 512

struct blob_cache {
  pthread_mutex_t lock;
  size_t bytes, bytes_max, n;
  struct blob *blobs[CACHE_ENTRIES_MAX]; /* the one used last first */
};

struct blob *blob_reference(struct blob *blob) {
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
  struct blob *found = NULL;
  pthread_mutex_lock(&cache->lock);
  for (size_t i = 0; i < cache->n && !found; i++)
    if (memcmp(cache->blobs[i]->digest.bytes, digest->bytes, DIGEST_SIZE) == 0) {
      to_front(cache, i);
      found = blob_reference(cache->blobs[0]);
    }
  pthread_mutex_unlock(&cache->lock);
  return found;
}

static void cache_add(struct blob_cache *cache, struct blob *blob) {
  if (blob->size > cache->bytes_max / 4)
    return;
  pthread_mutex_lock(&cache->lock);
  while (cache->n &&
         (cache->n == CACHE_ENTRIES_MAX || cache->bytes + blob->size > cache->bytes_max)) {
    struct blob *last = cache->blobs[--cache->n];
    cache->bytes -= last->size;
    blob_unreference(last);
  }
  cache->blobs[cache->n] = blob_reference(blob);
  cache->bytes += blob->size;
  to_front(cache, cache->n++);
  pthread_mutex_unlock(&cache->lock);
}

static bool chunk_insert(struct db *db, const struct digest *digest, size_t ordinal,
                         const void *bytes, size_t size, struct error *error) {
  size_t bound = ZSTD_compressBound(size);
  cleanup_free uint8_t *compressed = xmalloc(bound);
  size_t compressed_size = ZSTD_compress(compressed, bound, bytes, size, COMPRESSION_LEVEL);
  ALWAYS(!ZSTD_isError(compressed_size));

  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  bind_integer(&parameters, "ordinal", (int64_t)ordinal);
  bind_bytes(&parameters, "bytes", compressed, compressed_size);
  return db_run(db, &sql_blob_chunk_insert, &parameters, NULL, error);
}

static bool rows_store(struct db *db, const struct digest *digest, const uint8_t *bytes,
                       size_t size, const struct author *author, bool *ret_is_new,
                       struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  bind_integer(&parameters, "size", (int64_t)size);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_blob_insert, &parameters, &rows, error))
    return false;

  *ret_is_new = db_affected(rows) == 1;
  if (!*ret_is_new)
    return true;
  for (size_t at = 0; at < size; at += CHUNK_SIZE)
    if (!chunk_insert(db, digest, at / CHUNK_SIZE, bytes + at,
                      size - at < CHUNK_SIZE ? size - at : CHUNK_SIZE, error))
      return false;
  return audit_note_digest(db, author, AUDIT_PUT_BLOB, digest,
                           json_pack("{s:I}", "size", (json_int_t)size), error);
}

bool blob_store(struct db *db, const struct digest *digest, const void *bytes, size_t size,
                const struct author *author, bool *ret_is_new, struct error *error) {
  ALWAYS(size <= BLOB_SIZE_MAX);
  return db_begin(db, error) &&
         db_end(db, rows_store(db, digest, bytes, size, author, ret_is_new, error), error);
}

/* *ret_size is -1 when there is no such file. */
static bool size_load(struct db *db, const struct digest *digest, int64_t *ret_size,
                      struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  if (!db_run(db, &sql_blob_size, &parameters, &rows, error))
    return false;
  *ret_size = db_count(rows) ? db_get_integer(rows, 0, "size") : -1;
  return true;
}

static bool damaged(const struct digest *digest, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  return error_of(
      error, ERROR_DAMAGED,
      "the stored file %s is damaged: its bytes do not have this digest; restore the database's "
      "table blob_chunks from a backup, or delete the row and upload the file again",
      digest_format(digest, text));
}

/* One row at a time: a worker holds one file and one chunk, not a result of twice its size. */
static bool chunk_load(struct db *db, struct blob *blob, size_t at, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", &blob->digest);
  bind_integer(&parameters, "ordinal", (int64_t)(at / CHUNK_SIZE));
  if (!db_run(db, &sql_blob_chunk, &parameters, &rows, error))
    return false;
  if (!db_count(rows))
    return damaged(&blob->digest, error);

  size_t expected = blob->size - at < CHUNK_SIZE ? blob->size - at : CHUNK_SIZE, compressed_size;
  cleanup_free uint8_t *compressed = db_get_bytes(rows, 0, "bytes", &compressed_size);
  if (ZSTD_decompress(blob->bytes + at, expected, compressed, compressed_size) != expected)
    return damaged(&blob->digest, error);
  return true;
}

bool blob_load(struct db *db, struct blob_cache *cache, const struct digest *digest,
               struct blob **ret_blob, struct error *error) {
  int64_t size = -1;
  struct blob *known = cache_find(cache, digest);
  if (!known && !size_load(db, digest, &size, error))
    return false;
  if (known || size < 0) {
    *ret_blob = known;
    return true;
  }

  cleanup_blob struct blob *blob = xcalloc(1, sizeof *blob);
  blob->references = 1;
  blob->digest = *digest;
  blob->size = (size_t)size;
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

bool blobs_missing(struct db *db, const struct digest *digests, size_t n, bool *ret_missing,
                   size_t *ret_n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "digests", digests, n);
  if (!db_run(db, &sql_blobs_missing, &parameters, &rows, error))
    return false;

  memset(ret_missing, 0, n * sizeof *ret_missing);
  for (int row = 0; row < db_count(rows); row++)
    ret_missing[db_get_integer(rows, row, "i")] = true;
  *ret_n = (size_t)db_count(rows);
  return true;
}
