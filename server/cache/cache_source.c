/* A renderer's source over the database. */
#include "server/cache/cache_source.h"

#include "server/kernel/kernels.h"

void cache_store_release(struct cache_store *store) {
  for (size_t i = 0; i < store->n_builds; i++)
    build_free(store->builds[i]);
  free(store->builds);
  for (size_t i = 0; i < store->n_kernels; i++)
    kernel_free(store->kernels[i]);
  free(store->kernels);
  for (size_t i = 0; i < store->n_files; i++)
    blob_unreference(store->files[i]);
  free(store->files);
  *store = (struct cache_store){0};
}

/* A renderer leaves out files that it does not get, so the first failure is kept for the answer. */
static bool failed(struct cache_store *store, const struct error *error) {
  if (!store->has_failed)
    store->failure = *error;
  store->has_failed = true;
  return false;
}

static bool damaged(struct cache_store *store, const char *what, const struct digest *digest,
                    struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  error_prefix(error, "the stored %s %s: ", what, digest_format(digest, text));
  error_become(error, ERROR_DAMAGED);
  return failed(store, error);
}

static bool kernel_find(void *context, const struct digest *hash, const struct kernel **ret,
                        struct error *error) {
  struct cache_store *store = context;
  char text[DIGEST_TEXT_SIZE];
  for (size_t i = 0; i < store->n_kernels; i++)
    if (digest_equal(&store->kernels[i]->hash, hash)) {
      *ret = store->kernels[i];
      return true;
    }

  cleanup_json json_t *manifest = NULL;
  struct kernel *kernel;
  if (!kernel_load(store->worker->db, hash, &manifest, error))
    return failed(store, error);
  if (!manifest)
    return error_of(error, ERROR_MISSING, "there is no kernel %s", digest_format(hash, text));
  if (!kernel_parse(manifest, &kernel, error))
    return damaged(store, "kernel", hash, error);

  GROW(store->kernels, store->n_kernels, store->kernels_capacity);
  *ret = store->kernels[store->n_kernels++] = kernel;
  return true;
}

static bool build_find(void *context, const struct kernel *kernel, const struct digest *digest,
                       const struct build **ret, struct error *error) {
  struct cache_store *store = context;
  char text[DIGEST_TEXT_SIZE];
  for (size_t i = 0; i < store->n_builds; i++)
    if (digest_equal(&store->builds[i]->digest, digest) &&
        digest_equal(&store->builds[i]->kernel, &kernel->hash)) {
      *ret = store->builds[i];
      return true;
    }

  cleanup_free char *stored = NULL;
  cleanup_json json_t *json = NULL;
  struct build *build;
  if (!build_load(store->worker->db, &kernel->hash, digest, &stored, error))
    return failed(store, error);
  if (!stored)
    return error_of(error, ERROR_MISSING, "kernel %.100s has no build %s", kernel->name,
                    digest_format(digest, text));
  if (!json_parse(stored, strlen(stored), &json, error) ||
      !build_parse(json, kernel, &build, error))
    return damaged(store, "build", digest, error);

  GROW(store->builds, store->n_builds, store->builds_capacity);
  *ret = store->builds[store->n_builds++] = build;
  return true;
}

static bool file_find(void *context, const struct digest *digest, const char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  struct cache_store *store = context;
  char text[DIGEST_TEXT_SIZE];
  struct blob *blob;
  if (!blob_load(store->worker, digest, &blob, error))
    return failed(store, error);
  if (!blob)
    return error_of(error, ERROR_MISSING, "there is no file %s", digest_format(digest, text));

  GROW(store->files, store->n_files, store->files_capacity);
  store->files[store->n_files++] = blob;
  *ret_bytes = (const char *)blob->bytes;
  *ret_size = blob->size;
  return true;
}

struct cache_source cache_store_source(struct cache_store *store) {
  return (struct cache_source){store, kernel_find, build_find, file_find};
}
