/* What tests of tables share: files in, imported kernels, the release that is made of them, and
 * files out again. The release's kernels are the imported manifests: the source finds them by
 * hash. */
#ifndef WAVETUNE_TESTS_TABLE_FIXTURE_H
#define WAVETUNE_TESTS_TABLE_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/cache/format.h"
#include "common/cache/release.h"

#define TEST_DATA SOURCE_FOLDER "/tests/data"

static inline const struct cache_format *format_named(const char *name) {
  const struct cache_format *format = NULL;
  struct error error;
  cr_assert(cache_format_find(name, &format, &error), "%s", error.message);
  return format;
}

/* Not cache_files_add, which is for renderers and aborts on a path that leads out of the folder. */
static inline void files_add_text(struct cache_files *files, const char *path, const char *text) {
  GROW(files->files, files->n, files->capacity);
  files->files[files->n++] = (struct cache_file){xstrdup(path), xstrdup(text), strlen(text)};
}

/* Every file below `folder`, with its path relative to that. */
static inline void files_add_folder(struct cache_files *files, const char *folder,
                                    const char *below) {
  cleanup_free char *path = xasprintf("%s/%s", folder, below);
  DIR *open_folder = opendir(path);
  cr_assert(open_folder != NULL, "%s", path);
  for (struct dirent *entry; (entry = readdir(open_folder));) {
    if (entry->d_name[0] == '.')
      continue;
    cleanup_free char *name = xasprintf("%s%s%s", below, below[0] ? "/" : "", entry->d_name);
    cleanup_free char *full = xasprintf("%s/%s", folder, name);
    struct stat status;
    cr_assert(stat(full, &status) == 0);
    if (S_ISDIR(status.st_mode)) {
      files_add_folder(files, folder, name);
      continue;
    }
    struct error error;
    char *bytes = NULL;
    size_t size = 0;
    cr_assert(file_read(full, 1 << 24, &bytes, &size, &error), "%s", error.message);
    cache_files_add(files, name, bytes, size);
  }
  closedir(open_folder);
}

/* The kernels of a release, by hash. */
struct kernels {
  size_t n;
  struct kernel *all[64];
};

static inline void kernels_release(struct kernels *kernels) {
  for (size_t i = 0; i < kernels->n; i++)
    kernel_free(kernels->all[i]);
  kernels->n = 0;
}
#define cleanup_kernels __attribute__((cleanup(kernels_release)))

static inline struct kernel *kernels_add(struct kernels *kernels, const json_t *manifest) {
  struct error error;
  cr_assert(kernels->n < ARRAY_LENGTH(kernels->all));
  cr_assert(kernel_parse(manifest, &kernels->all[kernels->n], &error), "%s: %s", error.pointer,
            error.message);
  return kernels->all[kernels->n++];
}

static inline bool kernels_find(void *context, const struct digest *hash, const struct kernel **ret,
                                struct error *error) {
  struct kernels *kernels = context;
  for (size_t i = 0; i < kernels->n; i++) {
    if (digest_equal(&kernels->all[i]->hash, hash)) {
      *ret = kernels->all[i];
      return true;
    }
  }
  return error_set(error, "the source has no such kernel");
}

static inline void winners_add(struct release_builder *builder, const struct kernel *kernel,
                               const struct imported_kernel *from, const char *format) {
  for (size_t i = 0; i < from->n_entries; i++) {
    const struct imported_entry *entry = &from->entries[i];
    struct error error;
    cleanup_json json_t *provenance = json_copy(entry->provenance);
    json_object_set_new(provenance, "origin", json_string("imported"));
    json_object_set_new(provenance, "format", json_string(format));
    struct release_entry winner = {.name = kernel->name,
                                   .kernel = kernel->hash,
                                   .key_names = (const char *const *)kernel->key_names,
                                   .n_key_names = kernel->n_key_names,
                                   .key = entry->key,
                                   .config = entry->config,
                                   .provenance = provenance,
                                   .ms = entry->ms,
                                   .n_ms = entry->n_ms};
    cr_assert(release_builder_add(builder, &winner, &error), "%s: %s", error.pointer,
              error.message);
  }
}

/* A release of what was imported, for its own environment or another one; kernels that are known by
 * hash must be in `kernels` already, and those with a manifest are put there. */
static inline struct release *release_of(const struct imported *imported, const char *format,
                                         const char *environment, struct kernels *kernels) {
  struct error error;
  cleanup_json json_t *json =
      environment ? json_loads(environment, 0, NULL) : json_incref(imported->environment);
  cleanup_environment struct environment parsed = {0};
  cr_assert(environment_parse(json, &parsed, &error), "%s", error.message);
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&parsed, "default", REGIME_COLD);
  for (size_t i = 0; i < imported->n_kernels; i++) {
    const struct imported_kernel *from = &imported->kernels[i];
    const struct kernel *kernel = NULL;
    if (from->manifest)
      kernel = kernels_add(kernels, from->manifest);
    else
      cr_assert(kernels_find(kernels, &from->hash, &kernel, &error), "%s", error.message);
    winners_add(builder, kernel, from, format);
  }
  struct release *release = NULL;
  cr_assert(release_builder_finish(builder, &release, &error), "%s", error.message);
  return release;
}

static inline struct release *release_of_text(const char *bytes) {
  struct release *release = NULL;
  struct error error;
  cr_assert(release_parse(bytes, strlen(bytes), &release, &error), "%s: %s", error.pointer,
            error.message);
  return release;
}

static inline bool render_with(const char *format, const struct release *release,
                               struct kernels *kernels, const struct identity *identity,
                               struct cache_files *ret, struct error *error) {
  struct cache_source source = {.context = kernels, .kernel = kernels_find};
  struct render_request request = {.release = release, .source = &source, .identity = identity};
  return format_named(format)->render(&request, ret, error);
}

static inline bool read_with(const char *format, const struct cache_files *files,
                             const struct kernel *kernel, struct imported *ret,
                             struct error *error) {
  struct import_request request = {.files = files, .kernel = kernel};
  return cache_format_read(format_named(format), &request, ret, error);
}

#endif
