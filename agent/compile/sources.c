/* Source files by their digests. Owns nothing; any thread. */
#include "agent/compile/sources.h"

#include <errno.h>
#include <libgen.h>

#include "common/base/file.h"

#define SOURCE_MAX ((size_t)64 << 20)

static size_t sources_count(const struct kernel *kernel) {
  return kernel->n_sources + (kernel->reference.source.path != NULL);
}

static const struct source *source_at(const struct kernel *kernel, size_t index) {
  return index < kernel->n_sources ? &kernel->sources[index] : &kernel->reference.source;
}

static bool sources_are_whole(const char *folder, const struct kernel *kernel) {
  for (size_t i = 0; i < sources_count(kernel); i++) {
    const struct source *source = source_at(kernel, i);
    cleanup_free char *path = xasprintf("%s/%s", folder, source->path);
    cleanup_free char *bytes = NULL;
    size_t size;
    struct error ignored;
    if (!file_read(path, SOURCE_MAX, &bytes, &size, &ignored))
      return false;
    struct digest digest = digest_of(bytes, size);
    if (!digest_equal(&digest, &source->digest))
      return false;
  }
  return true;
}

static bool source_write(const char *folder, const struct source *source,
                         const struct source_reader *reader, struct error *error) {
  cleanup_free char *path = xasprintf("%s/%s", folder, source->path);
  cleanup_free char *copy = xstrdup(path);
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!reader->read(reader->context, source, &bytes, &size, error))
    return false;
  struct digest digest = digest_of(bytes, size);
  if (!digest_equal(&digest, &source->digest))
    return error_set(error, "the file %s of the kernel is not the one that its manifest names",
                     source->path);
  return folder_make(dirname(copy), 0700, error) &&
         file_write_atomically(path, bytes, size, 0600, error);
}

static bool sources_write(const char *folder, const struct kernel *kernel,
                          const struct source_reader *reader, struct error *error) {
  if (!folder_make(folder, 0700, error))
    return false;
  for (size_t i = 0; i < sources_count(kernel); i++) {
    if (!source_write(folder, source_at(kernel, i), reader, error))
      return false;
  }
  return true;
}

bool sources_prepare(const char *root, const struct kernel *kernel,
                     const struct source_reader *reader, char **ret_folder, struct error *error) {
  char digest[DIGEST_TEXT_SIZE], suffix[17];
  random_hex(suffix, 8);
  digest_format(&kernel->hash, digest);
  cleanup_free char *folder = xasprintf("%s/%s", root, digest + strlen("sha256:"));
  cleanup_free char *fresh = xasprintf("%s.%s", folder, suffix);
  if (!sources_are_whole(folder, kernel)) {
    struct error ignored;
    bool written = sources_write(fresh, kernel, reader, error) && folder_remove(folder, error);
    /* Another device's thread may have been faster: its files are the same. */
    if (written && rename(fresh, folder) < 0 && errno != ENOTEMPTY && errno != EEXIST)
      written = error_set(error, "cannot rename %s: %s", fresh, strerror(errno));
    (void)!folder_remove(fresh, &ignored);
    if (!written)
      return false;
  }
  *ret_folder = TAKE(folder);
  return true;
}
