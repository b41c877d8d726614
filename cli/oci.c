/* Writing a Triton cache as an OCI image. Memory and threads: oci.h. */
#include "cli/oci.h"

#include "common/base/gzip.h"

#define LAYER_TYPE "application/vnd.oci.image.layer.v1.tar+gzip"
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define CONFIG_TYPE "application/vnd.oci.image.config.v1+json"
#define LABEL(name) "cache.triton.image/" name

/* An entry of MCV's manifest.json from the metadata of a compiled kernel, or NULL: the file is
 * something else. */
static json_t *manifest_entry(const struct cache_file *file) {
  static const char *const copied[] = {"hash", "num_stages", "num_warps", "debug"};
  cleanup_json json_t *metadata = NULL;
  struct error ignored;
  if (!string_ends(file->path, ".json") ||
      !json_parse(file->bytes, file->size, &metadata, &ignored))
    return NULL;

  const json_t *target = json_object_get(metadata, "target"),
               *arch = json_object_get(target, "arch");
  if (!json_is_string(json_object_get(metadata, "hash")) ||
      !json_is_string(json_object_get(target, "backend")) ||
      !json_is_integer(json_object_get(target, "warp_size")) ||
      (!json_is_string(arch) && !json_is_integer(arch)))
    return NULL;

  json_t *entry = json_object();
  for (size_t i = 0; i < ARRAY_LENGTH(copied); i++) {
    json_t *value = json_object_get(metadata, copied[i]);
    if (value)
      json_put(entry, copied[i], json_incref(value));
  }
  json_t *ptx_version = json_object_get(metadata, "ptx_version");
  if (json_is_integer(ptx_version))
    json_put(entry, "ptx_version", json_incref(ptx_version));
  json_put(entry, "backend", json_incref(json_object_get(target, "backend")));
  json_put(entry, "warp_size", json_incref(json_object_get(target, "warp_size")));
  /* MCV compares texts: CUDA's 90 is "90". */
  cleanup_free char *number =
      json_is_integer(arch) ? xasprintf("%lld", json_integer_value(arch)) : NULL;
  json_put(entry, "arch", json_string(number ? number : json_string_value(arch)));

  return entry;
}

/* {"targets": […]}: each target of the entries once, sorted. */
static json_t *summary_make(const json_t *entries) {
  cleanup_json json_t *seen = json_object();
  json_t *targets = json_array();

  json_elements (entries, i, entry) {
    cleanup_json json_t *target = json_pack(
        "{s:O, s:O, s:O}", "arch", json_object_get(entry, "arch"), "backend",
        json_object_get(entry, "backend"), "warp_size", json_object_get(entry, "warp_size"));
    cleanup_free char *id = json_canonical(target);
    json_put(seen, id, json_incref(target));
  }

  /* The canonical form is sorted by the targets' texts. */
  cleanup_free char *sorted = json_canonical(seen);
  cleanup_json json_t *in_order = json_loads(sorted, 0, NULL);
  json_members (in_order, text, entry)
    json_push(targets, json_incref(entry));

  return json_pack("{s:o}", "targets", targets);
}

/* Adds blobs/sha256/… with the bytes, which are taken over, and returns its descriptor. */
static json_t *blob_add(struct cache_files *files, const char *type, char *bytes, size_t size) {
  struct digest digest = digest_of(bytes, size);
  const char *text = DIGEST_TEXT(&digest);
  cleanup_free char *path = xasprintf("blobs/sha256/%s", text + strlen("sha256:"));
  cache_files_add(files, path, bytes, size);
  return json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", text, "size", (json_int_t)size);
}

static json_t *json_blob_add(struct cache_files *files, const char *type, const json_t *json) {
  char *bytes = json_canonical(json);
  return blob_add(files, type, bytes, strlen(bytes));
}

static json_t *labels_make(const json_t *entries, size_t n_bytes, const struct digest *release) {
  cleanup_json json_t *targets = summary_make(entries);
  cleanup_free char *summary = json_canonical(targets), *size = xasprintf("%zu", n_bytes),
                    *count = xasprintf("%zu", json_array_size(entries));
  return json_pack("{s:s, s:s, s:s, s:s}", LABEL("entry-count"), count, LABEL("summary"), summary,
                   LABEL("cache-size-bytes"), size, "wavetune.release", DIGEST_TEXT(release));
}

bool image_make(struct cache_files *cache, const struct digest *release, struct cache_files *ret,
                struct error *error) {
  cleanup_cache_files struct cache_files layer = {.folder_mode = cache->folder_mode};
  cleanup_json json_t *entries = json_array();
  size_t n_bytes = 0, tar_size, zipped_size;

  for (size_t i = 0; i < cache->n; i++) {
    struct cache_file *file = &cache->files[i];
    json_t *entry = manifest_entry(file);
    if (entry)
      json_push(entries, entry);
    cleanup_free char *path = xasprintf("io.triton.cache/%s", file->path);
    n_bytes += file->size;
    cache_files_add(&layer, path, TAKE(file->bytes), file->size);
  }
  if (!json_array_size(entries))
    return error_set(error, "the cache has no compiled code, so its image could not state for "
                            "which GPU it is; publish winners with a build (docs/builds.md)");

  cleanup_json json_t *contents = json_pack("{s:O}", "triton", entries),
                      *labels = labels_make(entries, n_bytes, release);
  cache_files_add_json(&layer, "io.triton.manifest/manifest.json", contents);

  cleanup_free char *tar = cache_files_tar(&layer, &tar_size);
  char *zipped = gzip_compress(tar, tar_size, &zipped_size);
  struct digest diff_id = digest_of(tar, tar_size);
  json_t *layer_json = blob_add(ret, LAYER_TYPE, zipped, zipped_size);

  /* Code for a GPU runs under any host's architecture, but an image has to state one. */
  cleanup_json json_t *config =
      json_pack("{s:s, s:s, s:s, s:{s:O}, s:{s:s, s:[o]}}", "architecture", "amd64", "os", "linux",
                "created", "1970-01-01T00:00:00Z", "config", "Labels", labels, "rootfs", "type",
                "layers", "diff_ids", json_digest_text(&diff_id));
  cleanup_json json_t *manifest =
      json_pack("{s:i, s:s, s:o, s:[o]}", "schemaVersion", 2, "mediaType", MANIFEST_TYPE, "config",
                json_blob_add(ret, CONFIG_TYPE, config), "layers", layer_json);
  cleanup_json json_t *index = json_pack("{s:i, s:[o]}", "schemaVersion", 2, "manifests",
                                         json_blob_add(ret, MANIFEST_TYPE, manifest));
  cleanup_json json_t *layout = json_pack("{s:s}", "imageLayoutVersion", "1.0.0");
  cache_files_add_json(ret, "index.json", index);
  cache_files_add_json(ret, "oci-layout", layout);

  return true;
}
