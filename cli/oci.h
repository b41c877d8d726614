/* OCI images of Triton caches, in the form that redhat-et/GKM's MCV makes and extracts, and that
 * registries, skopeo, podman and cosign handle as any image: one gzip layer with io.triton.cache/
 * (the cache) and io.triton.manifest/manifest.json (its compiled kernels), and labels
 * cache.triton.image/… from which a node decides without a download whether the code is for its
 * GPU. Source: mcv/docs/spec-compat.md there.
 *
 * An image is a folder, an OCI image layout: oci-layout, index.json and blobs/sha256/…
 *
 * Memory: files are the caller's. Threads: one. */
#ifndef WAVETUNE_CLI_OCI_H
#define WAVETUNE_CLI_OCI_H

#include "common/cache/format.h"

/* Where MCV puts a cache when it is not told another folder and runs as root. */
#define IMAGE_ROOT_DEFAULT "/root/.triton/cache"

/* Makes the files of an image layout. They depend on nothing but the arguments. The contents of
 * `cache` move into them; its paths stay. Refuses a cache without compiled code: its image could
 * not state a GPU. */
must_check bool image_make(struct cache_files *cache, const struct digest *release,
                           struct cache_files *ret, struct error *error);

/* Whether the folder is an image layout. */
bool image_is(const char *folder);

/* Adds the tables in the cache of an image, whose paths begin with `below`. The image is untrusted:
 * digests are verified, and what is read is bounded. */
must_check bool image_tables_add(const char *folder, const struct cache_format *format,
                                 const char *below, struct cache_files *files, struct error *error);

#endif
