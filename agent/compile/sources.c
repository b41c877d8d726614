/* Source files, checked against their digests. */
#include "agent/compile/sources.h"

#include <errno.h>
#include <libgen.h>

#include "common/base/file.h"

#define SOURCE_MAX ((size_t)64 << 20)

/* The kernel's sources, and then its reference if it has one; NULL after the last. */
static const struct source *source_at(const struct kernel *kernel, size_t index) {
  if (index < kernel->n_sources)
    return &kernel->sources[index];
  return index == kernel->n_sources && kernel->reference.source.path ? &kernel->reference.source
                                                                     : NULL;
}

static bool has_digest(const char *bytes, size_t size, const struct source *source) {
  struct digest digest = digest_of(bytes, size);
  return digest_equal(&digest, &source->digest);
}

static bool sources_are_whole(const char *folder, const struct kernel *kernel) {
  const struct source *source;
  for (size_t i = 0; (source = source_at(kernel, i)); i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, source->path), *bytes = NULL;
    size_t size;
    struct error ignored;
    if (!file_read(path, SOURCE_MAX, &bytes, &size, &ignored) || !has_digest(bytes, size, source))
      return false;
  }
  return true;
}

static bool sources_write(const char *folder, const struct kernel *kernel,
                          const struct source_reader *reader, struct error *error) {
  const struct source *source;
  for (size_t i = 0; (source = source_at(kernel, i)); i++) {
    cleanup_free char *path = xasprintf("%s/%s", folder, source->path), *copy = xstrdup(path),
                      *bytes = NULL;
    size_t size;
    if (!reader->read(reader->context, source, &bytes, &size, error))
      return false;

    if (!has_digest(bytes, size, source))
      return error_set(error, "the file %s of the kernel is not the one that its manifest names",
                       source->path);

    if (!folder_make(dirname(copy), 0700, error) ||
        !file_write_atomically(path, bytes, size, 0600, error))
      return false;
  }

  return true;
}

bool sources_prepare(const char *root, const struct kernel *kernel,
                     const struct source_reader *reader, char **ret_folder, struct error *error) {
  char digest[DIGEST_TEXT_SIZE], suffix[17];
  random_hex(suffix, 8);

  digest_format(&kernel->hash, digest);
  cleanup_free char *folder = xasprintf("%s/%s", root, digest + strlen("sha256:")),
                    *fresh = xasprintf("%s.%s", folder, suffix);
  if (!sources_are_whole(folder, kernel)) {
    struct error ignored;
    bool written = folder_make(fresh, 0700, error) && sources_write(fresh, kernel, reader, error) &&
                   folder_remove(folder, error);
    /* Another device's thread may have made the folder meanwhile, with the same files. */
    if (written && rename(fresh, folder) < 0 && errno != ENOTEMPTY && errno != EEXIST)
      written = error_set(error, "cannot rename %s: %s", fresh, strerror(errno));
    (void)!folder_remove(fresh, &ignored);
    if (!written)
      return false;
  }

  *ret_folder = TAKE(folder);
  return true;
}
