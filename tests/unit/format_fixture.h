/* Releases, what they name and what is rendered of them, for tests of cache formats.
 *
 * Memory: what functions return is the caller's. Threads: one. */
#ifndef WAVETUNE_TESTS_FORMAT_FIXTURE_H
#define WAVETUNE_TESTS_FORMAT_FIXTURE_H

#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/cache/format.h"
#include "common/cache/release.h"
#include "tests/unit/kernel_fixture.h"

static inline struct identity *identity_of(const char *text) {
  cleanup_json json_t *json = json_of(text);
  struct identity *identity = NULL;
  struct error error;
  cr_assert(identity_parse(json, &identity, &error), "%s: %s", error.pointer, error.message);
  return identity;
}

/* What a source gives: kernels, builds and blobs by digest. */
struct shelf {
  size_t n_kernels, n_builds, n_blobs;
  struct kernel *kernels[8];
  struct build *builds[4];
  const char *blobs[16];
};

static inline bool shelf_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                                struct error *error) {
  const struct shelf *shelf = context;
  for (size_t i = 0; i < shelf->n_kernels; i++) {
    if (digest_equal(&shelf->kernels[i]->hash, hash)) {
      *ret = shelf->kernels[i];
      return true;
    }
  }
  return error_set(error, "no such kernel on the shelf");
}

static inline bool shelf_build(void *context, const struct kernel *kernel,
                               const struct digest *digest, const struct build **ret,
                               struct error *error) {
  const struct shelf *shelf = context;
  (void)kernel;
  for (size_t i = 0; i < shelf->n_builds; i++) {
    if (digest_equal(&shelf->builds[i]->digest, digest)) {
      *ret = shelf->builds[i];
      return true;
    }
  }
  return error_set(error, "no such build on the shelf");
}

static inline bool shelf_blob(void *context, const struct digest *digest, const char **ret_bytes,
                              size_t *ret_size, struct error *error) {
  const struct shelf *shelf = context;
  for (size_t i = 0; i < shelf->n_blobs; i++) {
    struct digest of_blob = digest_of(shelf->blobs[i], strlen(shelf->blobs[i]));
    if (digest_equal(&of_blob, digest)) {
      *ret_bytes = shelf->blobs[i];
      *ret_size = strlen(shelf->blobs[i]);
      return true;
    }
  }
  return error_set(error, "no such blob on the shelf");
}

static inline struct cache_source shelf_source(struct shelf *shelf) {
  return (struct cache_source){shelf, shelf_kernel, shelf_build, shelf_blob};
}

static inline void shelf_release(struct shelf *shelf) {
  for (size_t i = 0; i < shelf->n_kernels; i++)
    kernel_free(shelf->kernels[i]);
  for (size_t i = 0; i < shelf->n_builds; i++)
    build_free(shelf->builds[i]);
}

/* A winner as tests write it. */
struct winner {
  const struct kernel *kernel;
  const char *key, *config, *provenance;
  size_t n_ms;
  double ms[3];
};

static inline struct release *release_of(const struct winner *winners, size_t n) {
  struct environment environment = {0};
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&environment, "default", REGIME_COLD);
  struct release *release = NULL;
  struct error error;
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *key = json_of(winners[i].key), *config = json_of(winners[i].config),
                        *provenance = json_of(winners[i].provenance);
    struct release_entry entry = {.name = winners[i].kernel->name,
                                  .kernel = winners[i].kernel->hash,
                                  .key_names = (const char *const *)winners[i].kernel->key_names,
                                  .n_key_names = winners[i].kernel->n_key_names,
                                  .key = key,
                                  .config = config,
                                  .provenance = provenance,
                                  .ms = winners[i].ms,
                                  .n_ms = winners[i].n_ms};
    cr_assert(release_builder_add(builder, &entry, &error), "%s", error.message);
  }
  cr_assert(release_builder_finish(builder, &release, &error), "%s", error.message);
  return release;
}

/* What was imported as a release of its own; the kernels go to the shelf. */
static inline struct release *release_of_imported(const struct imported *imported,
                                                  const char *format, struct shelf *shelf) {
  struct environment environment = {0};
  cleanup_release_builder struct release_builder *builder =
      release_builder_new(&environment, "default", REGIME_COLD);
  struct release *release = NULL;
  struct error error;
  for (size_t i = 0; i < imported->n_kernels; i++) {
    const struct imported_kernel *kernel = &imported->kernels[i];
    struct kernel *parsed = NULL;
    cr_assert(kernel_parse(kernel->manifest, &parsed, &error), "%s: %s", error.pointer,
              error.message);
    shelf->kernels[shelf->n_kernels++] = parsed;
    for (size_t j = 0; j < kernel->n_entries; j++) {
      const struct imported_entry *imported_entry = &kernel->entries[j];
      cleanup_json json_t *provenance = json_copy(imported_entry->provenance);
      json_object_set_new(provenance, "origin", json_string("imported"));
      json_object_set_new(provenance, "format", json_string(format));
      struct release_entry entry = {.name = parsed->name,
                                    .kernel = parsed->hash,
                                    .key_names = (const char *const *)parsed->key_names,
                                    .n_key_names = parsed->n_key_names,
                                    .key = imported_entry->key,
                                    .config = imported_entry->config,
                                    .provenance = provenance,
                                    .ms = imported_entry->ms,
                                    .n_ms = imported_entry->n_ms};
      cr_assert(release_builder_add(builder, &entry, &error), "%s: %s", error.pointer,
                error.message);
    }
  }
  cr_assert(release_builder_finish(builder, &release, &error), "%s", error.message);
  return release;
}

static inline void files_add_text(struct cache_files *files, const char *path, const char *text) {
  cache_files_add(files, path, xstrdup(text), strlen(text));
}

static inline const char *file_text(const struct cache_files *files, const char *path) {
  for (size_t i = 0; i < files->n; i++) {
    if (strcmp(files->files[i].path, path) == 0)
      return files->files[i].bytes;
  }
  return NULL;
}

static inline const char *variable_of(const struct cache_files *files, const char *name) {
  for (size_t i = 0; i < files->n_variables; i++) {
    if (strcmp(files->variables[i].name, name) == 0)
      return files->variables[i].path ? files->variables[i].path : files->variables[i].literal;
  }
  return NULL;
}

static inline bool says_skipped(const struct cache_files *files, const char *reason) {
  for (size_t i = 0; i < files->n_skipped; i++) {
    if (strstr(files->skipped[i].reason, reason))
      return true;
  }
  return false;
}

/* A file that is too large, by its size alone: it is not looked into. */
static inline void check_size_refused(const struct cache_format *format, const char *path) {
  struct cache_file file = {(char *)path, (char *)"", (size_t)1 << 40};
  struct cache_files files = {.n = 1, .files = &file};
  struct imported imported;
  struct error error = {0};
  cr_assert(!cache_format_read(format, &(struct import_request){&files, NULL}, &imported, &error));
  cr_assert(strstr(error.message, "1099511627776 bytes; at most"), "%s", error.message);
  cr_assert(strstr(error.message, path), "no file in: %s", error.message);
}

/* Reads one file of a format and demands a refusal that says `message`. */
static inline void check_read_refused(const struct cache_format *format, const char *path,
                                      const char *text, const char *message) {
  cleanup_cache_files struct cache_files files = {0};
  struct imported imported;
  struct error error = {0};
  files_add_text(&files, path, text);
  cr_assert(!cache_format_read(format, &(struct import_request){&files, NULL}, &imported, &error),
            "taken: %s", text);
  cr_assert(strstr(error.message, message), "%s says: %s", text, error.message);
  cr_assert(strstr(error.message, path), "no file in: %s", error.message);
}

#endif
