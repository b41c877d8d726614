/* Reading the tables in an OCI image of a Triton cache. Memory and threads: oci.h. */
#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include "cli/oci.h"
#include "common/base/file.h"

#define CACHE_FOLDER "io.triton.cache/"
#define JSON_BLOB_MAX ((size_t)4 << 20)
#define LAYERS_MAX 127                     /* what Docker and containerd run at most */
#define LAYER_MAX ((size_t)1 << 30)        /* as it is stored */
#define UNPACKED_MAX ((la_int64_t)8 << 30) /* of all layers: compiled code is skipped, not kept */
#define TABLES_MAX 10000
#define TABLE_MAX ((size_t)16 << 20)
#define TABLES_BYTES_MAX ((size_t)256 << 20)
#define CHUNK ((size_t)64 << 10)

struct image_reading {
  const struct cache_format *format;
  const char *below;
  struct cache_files *files;
  json_t *seen;        /* a set of paths */
  size_t bytes;        /* of tables */
  la_int64_t unpacked; /* by the layers before this one */
};

bool image_is(const char *folder) {
  cleanup_free char *path = xasprintf("%s/oci-layout", folder);
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* Reads the blob of a descriptor and verifies its digest. The bytes are the caller's. */
static bool blob_read(const char *folder, const json_t *descriptor, size_t size_max,
                      char **ret_bytes, size_t *ret_size, struct error *error) {
  struct digest digest, found;
  if (!json_get_digest(descriptor, "", "digest", JSON_REQUIRED, &digest, error))
    return false;
  const char *text = DIGEST_TEXT(&digest);

  cleanup_free char *path = xasprintf("%s/blobs/sha256/%s", folder, text + strlen("sha256:")),
                    *bytes = NULL;
  if (!file_read(path, size_max, &bytes, ret_size, error))
    return false;
  found = digest_of(bytes, *ret_size);
  if (!digest_equal(&found, &digest))
    return error_set(error, "%s has other bytes than its name states; copy the image again", path);
  *ret_bytes = TAKE(bytes);

  return true;
}

static bool json_blob_read(const char *folder, const json_t *descriptor, json_t **ret_json,
                           struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size;
  return blob_read(folder, descriptor, JSON_BLOB_MAX, &bytes, &size, error) &&
         json_parse(bytes, size, ret_json, error);
}

/* Whether a name of the layer can be the path of a file below a folder. */
static bool is_path(const char *path) {
  for (const char *c = path; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return false;
  for (const char *part = path;; part++) {
    size_t size = strcspn(part, "/");
    if (size == 0 || (part[0] == '.' && (size == 1 || (size == 2 && part[1] == '.'))))
      return false;
    part += size;
    if (!*part)
      return true;
  }
}

static bool table_read(struct archive *archive, const char *path, struct image_reading *reading,
                       struct error *error) {
  cleanup_free char *name = xasprintf("%s/%s", reading->below, path);
  size_t size = 0, capacity = 0;
  cleanup_free char *bytes = NULL;

  if (!set_add(reading->seen, path))
    return error_set(error, "%.200s is in the image twice", path);
  if (reading->files->n == TABLES_MAX)
    return error_set(error, "the image has more than %d tables", TABLES_MAX);

  for (la_ssize_t n = 1; n > 0; size += (size_t)n) {
    if (capacity - size < CHUNK) {
      capacity = 2 * capacity + CHUNK;
      bytes = xreallocarray(bytes, capacity + 1, 1);
    }
    n = archive_read_data(archive, bytes + size, CHUNK);
    if (n < 0)
      return error_set(error, "%.200s: %s", path, archive_error_string(archive));
    if (size + (size_t)n > TABLE_MAX)
      return error_set(error, "%.200s has more than %zu MiB", path, TABLE_MAX >> 20);
  }

  bytes[size] = '\0';
  reading->bytes += size;
  if (reading->bytes > TABLES_BYTES_MAX)
    return error_set(error, "the image has more than %zu MiB of tables", TABLES_BYTES_MAX >> 20);
  cache_files_add(reading->files, name, TAKE(bytes), size);

  return true;
}

static bool entries_read(struct archive *archive, struct image_reading *reading,
                         struct error *error) {
  struct archive_entry *entry;
  for (;;) {
    int result = archive_read_next_header(archive, &entry);
    if (result == ARCHIVE_EOF)
      return true;
    if (result < ARCHIVE_WARN)
      return error_set(error, "%s", archive_error_string(archive));
    /* What is passed over is unpacked, too: refuse it before that. */
    la_int64_t left = UNPACKED_MAX - reading->unpacked - archive_filter_bytes(archive, 0);
    if (left < 0 || archive_entry_size(entry) > left)
      return error_set(error,
                       "the image unpacks to more than %d GiB, which no Triton cache has; "
                       "import the image that has only the cache",
                       (int)(UNPACKED_MAX >> 30));

    const char *path = archive_entry_pathname(entry);
    if (path && string_starts(path, "./"))
      path += 2;
    if (!path || !string_starts(path, CACHE_FOLDER) || archive_entry_filetype(entry) != AE_IFREG ||
        !reading->format->is_table(path))
      continue;
    if (!is_path(path))
      return error_set(error, "a path in it leaves its folder or has control characters");
    if (!table_read(archive, path, reading, error))
      return false;
  }
}

static bool layer_read(const char *bytes, size_t size, struct image_reading *reading,
                       struct error *error) {
  struct archive *archive = archive_read_new();
  ALWAYS(archive != NULL);
  ALWAYS(archive_read_support_filter_gzip(archive) == ARCHIVE_OK);
  ALWAYS(archive_read_support_format_tar(archive) == ARCHIVE_OK);
  bool ok = archive_read_open_memory(archive, bytes, size) == ARCHIVE_OK
                ? entries_read(archive, reading, error)
                : error_set(error, "%s", archive_error_string(archive));
  reading->unpacked += archive_filter_bytes(archive, 0);
  archive_read_free(archive);
  return ok;
}

/* The manifest of the only image in the layout. */
static bool manifest_read(const char *folder, json_t **ret_manifest, struct error *error) {
  cleanup_free char *path = xasprintf("%s/index.json", folder);
  cleanup_json json_t *index = NULL;
  if (!json_parse_file(path, JSON_BLOB_MAX, &index, error))
    return false;
  const json_t *manifests = json_object_get(index, "manifests");
  if (json_array_size(manifests) != 1)
    return error_set(error,
                     "%s lists %zu images instead of one; copy the wanted one by its tag: "
                     "skopeo copy oci:%s:TAG oci:ONE",
                     path, json_array_size(manifests), folder);
  return json_blob_read(folder, json_array_get(manifests, 0), ret_manifest, error) ||
         error_prefix(error, "the image's manifest: ");
}

bool image_tables_add(const char *folder, const struct cache_format *format, const char *below,
                      struct cache_files *files, struct error *error) {
  cleanup_json json_t *manifest = NULL, *seen = json_object();
  struct image_reading reading = {.format = format, .below = below, .files = files, .seen = seen};
  if (!string_equal(format->name, "triton"))
    return error_set(error, "%s is an image, which has a cache of Triton: import it as triton",
                     folder);
  if (!manifest_read(folder, &manifest, error))
    return false;

  const json_t *layers = json_object_get(manifest, "layers");
  if (json_array_size(layers) > LAYERS_MAX)
    return error_set(error,
                     "%s: the image has %zu layers, at most %d are read; import the image that has "
                     "only the cache",
                     folder, json_array_size(layers), LAYERS_MAX);
  json_elements (layers, i, layer) {
    cleanup_free char *bytes = NULL;
    size_t size;
    if (!blob_read(folder, layer, LAYER_MAX, &bytes, &size, error) ||
        !layer_read(bytes, size, &reading, error))
      return error_prefix(error, "%s: layer %zu: ", folder, i + 1);
  }

  return json_object_size(seen) > 0 ||
         error_set(error, "%s: the image has no %s below " CACHE_FOLDER, folder, format->table);
}
