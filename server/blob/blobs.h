/* Content-addressed files in the database, of at most 64 MiB, in rows of 256 KiB that are
 * compressed with zstd.
 *
 * A file that is read is checked against its digest, so that a damaged row is an error and never a
 * wrong file. A small cache keeps the files that were read last.
 *
 * Memory: blobs have a reference count. Threads: a blob_cache and blobs any; functions with a db or
 * a worker, its thread. */
#ifndef WAVETUNE_SERVER_BLOB_BLOBS_H
#define WAVETUNE_SERVER_BLOB_BLOBS_H

#include "common/base/digest.h"
#include "server/db/db.h"
#include "server/server.h"

struct blob {
  struct digest digest;
  size_t size;
  uint8_t *bytes;
  uint32_t references; /* atomic */
};
void blob_unreference(struct blob *blob);
DEFINE_CLEANUP(struct blob *, cleanup_blob_unreference, blob_unreference)
#define cleanup_blob __attribute__((cleanup(cleanup_blob_unreference)))

struct blob_cache;
must_check struct blob_cache *blob_cache_new(size_t bytes_max);
void blob_cache_free(struct blob_cache *cache);
struct blob_cache *server_blobs(const struct server *server);

/* *ret_blob (a reference of the caller's) is NULL when there is no such file. */
must_check bool blob_load(struct worker *worker, const struct digest *digest,
                          struct blob **ret_blob, struct error *error);

/* Whether all of these files are stored; the problem has the digests of the missing ones. */
struct request;
must_check bool files_check(struct worker *worker, struct request *request,
                            const struct digest *digests, size_t n, struct error *error);
/* The same; otherwise answers. */
must_check bool answer_missing_files(struct worker *worker, struct request *request,
                                     const struct digest *digests, size_t n);

#endif
