/* The files that renderers return and importers read, as a tar too, and formats by name. The files
 * belong to who holds the struct; any thread. */
#include <archive.h>
#include <archive_entry.h>
#include <stdarg.h>

#include "common/base/names.h"
#include "common/cache/cache_text.h"
#include "common/cache/format.h"

#define PATH_TEXT_LEAST 250 /* bytes of a path that are said whatever else is cut */

void cache_files_release(struct cache_files *files) {
  for (size_t i = 0; i < files->n; i++) {
    free(files->files[i].path);
    free(files->files[i].bytes);
  }
  for (size_t i = 0; i < files->n_skipped; i++) {
    free(files->skipped[i].name);
    free(files->skipped[i].key);
    free(files->skipped[i].reason);
  }
  for (size_t i = 0; i < files->n_variables; i++) {
    free(files->variables[i].path);
    free(files->variables[i].literal);
  }
  free(files->files);
  free(files->skipped);
  free(files->variables);
  *files = (struct cache_files){0};
}

/* What escapes the folder is no mistake of an input but of a renderer. */
static bool path_stays_below(const char *path) {
  for (const char *part = path;; part++) {
    size_t size = strcspn(part, "/");
    if (size == 0 || (size == 1 && part[0] == '.') ||
        (size == 2 && part[0] == '.' && part[1] == '.'))
      return false;
    part += size;
    if (!*part)
      return true;
  }
}

void cache_files_add(struct cache_files *files, const char *path, char *bytes, size_t size) {
  ALWAYS(path_stays_below(path));
  GROW(files->files, files->n, files->capacity);
  files->files[files->n++] = (struct cache_file){xstrdup(path), bytes, size};
}

void cache_files_begin(struct cache_files *files, const char *path) {
  ALWAYS(path_stays_below(path));
  if (files->sink) {
    files->n_sunk++;
    files->sink->begin(files->sink->context, files, path);
  } else {
    cache_files_add(files, path, xcalloc(1, 1), 0);
    files->open_capacity = 1;
  }
}

void cache_files_put(struct cache_files *files, const char *bytes, size_t size) {
  if (files->sink) {
    files->sink->put(files->sink->context, bytes, size);
    return;
  }
  struct cache_file *file = &files->files[files->n - 1];
  struct text text = {file->bytes, file->size, files->open_capacity};
  text_add(&text, bytes, size);
  files->open_capacity = text.capacity;
  text.bytes[text.size] = '\0'; /* text_add leaves room */
  file->bytes = text.bytes;
  file->size = text.size;
}

void cache_files_skip(struct cache_files *files, const char *name, const char *key,
                      const char *reason, ...) {
  va_list arguments;
  char *text = NULL;
  va_start(arguments, reason);
  ALWAYS(vasprintf(&text, reason, arguments) >= 0);
  va_end(arguments);
  files->skipped = xreallocarray(files->skipped, files->n_skipped + 1, sizeof *files->skipped);
  files->skipped[files->n_skipped++] =
      (struct cache_skipped){xstrdup(name), key ? xstrdup(key) : NULL, text};
}

void cache_files_variable(struct cache_files *files, const char *name, const char *path,
                          const char *literal) {
  files->variables =
      xreallocarray(files->variables, files->n_variables + 1, sizeof *files->variables);
  files->variables[files->n_variables++] =
      (struct cache_variable){name, path ? xstrdup(path) : NULL, path ? NULL : xstrdup(literal)};
}

void imported_release(struct imported *imported) {
  for (size_t i = 0; i < imported->n_kernels; i++) {
    struct imported_kernel *kernel = &imported->kernels[i];
    for (size_t j = 0; j < kernel->n_entries; j++) {
      json_decref(kernel->entries[j].key);
      json_decref(kernel->entries[j].config);
      json_decref(kernel->entries[j].provenance);
    }
    free(kernel->entries);
    json_decref(kernel->manifest);
  }
  free(imported->kernels);
  json_decref(imported->environment);
  *imported = (struct imported){0};
}

/* Arrays without a capacity double when their length is a power of two. */
static void *array_grow(void *array, size_t n, size_t size) {
  return n & (n - 1) ? array : xreallocarray(array, n ? 2 * n : 1, size);
}

struct imported_kernel *imported_add_kernel(struct imported *imported) {
  imported->kernels = array_grow(imported->kernels, imported->n_kernels, sizeof *imported->kernels);
  struct imported_kernel *kernel = &imported->kernels[imported->n_kernels++];
  *kernel = (struct imported_kernel){0};
  return kernel;
}

struct imported_entry *imported_add_entry(struct imported_kernel *kernel) {
  kernel->entries = array_grow(kernel->entries, kernel->n_entries, sizeof *kernel->entries);
  struct imported_entry *entry = &kernel->entries[kernel->n_entries++];
  *entry = (struct imported_entry){0};
  return entry;
}

/* What a path ends with tells more than what it begins with. */
json_t *imported_source(const char *path) {
  json_t *text = json_string(path);
  if (text)
    return text;
  cleanup_free char *plain = xstrdup(path);
  for (char *c = plain; *c; c++)
    *c = (unsigned char)*c < 0x80 ? *c : '?';
  return json_string(plain);
}

bool cache_file_refuse(const struct cache_file *file, struct error *error) {
  struct error why = *error;
  size_t said = strlen(why.message) + strlen(why.pointer) + sizeof "…: : ",
         size = strlen(file->path);
  size_t room = sizeof error->message > said ? sizeof error->message - said : 0;
  if (room < PATH_TEXT_LEAST)
    room = PATH_TEXT_LEAST;
  return error_set(error, "%s%s: %s%s%s", size > room ? "…" : "",
                   size > room ? file->path + size - room : file->path, why.pointer,
                   why.pointer[0] ? ": " : "", why.message);
}

bool cache_format_find(const char *name, const struct cache_format **ret, struct error *error) {
  cleanup_free char *names = NULL;
  size_t size = 0, n = 0;
  const char *known[64];
  FILE *out = open_memstream(&names, &size);
  ALWAYS(out != NULL);
  for (; cache_formats[n]; n++) {
    if (strcmp(cache_formats[n]->name, name) == 0) {
      ALWAYS(fclose(out) == 0);
      *ret = cache_formats[n];
      return true;
    }
    ALWAYS(n < ARRAY_LENGTH(known));
    known[n] = cache_formats[n]->name;
    fprintf(out, "%s %s", n ? "," : "", known[n]);
  }
  ALWAYS(fclose(out) == 0);
  char cut[NAME_TEXT_SIZE];
  const char *nearest = name_nearest(name, known, n);
  return error_set(error, "unknown format \"%s\"; %s%s%sthere are:%s",
                   name_cut(name, strlen(name), cut), nearest ? "did you mean \"" : "",
                   nearest ? nearest : "", nearest ? "\"? " : "", names);
}

/* A tar in memory */

static la_ssize_t write_to_memory(struct archive *archive, void *out, const void *bytes,
                                  size_t size) {
  (void)archive;
  return (la_ssize_t)fwrite_unlocked(bytes, 1, size, out);
}

static int files_compare(const void *a, const void *b) {
  return strcmp((*(const struct cache_file *const *)a)->path,
                (*(const struct cache_file *const *)b)->path);
}

static void header_add(struct archive *archive, struct archive_entry *entry, const char *path,
                       unsigned type, unsigned mode, size_t size) {
  archive_entry_clear(entry);
  archive_entry_set_pathname(entry, path);
  archive_entry_set_filetype(entry, type);
  archive_entry_set_perm(entry, (mode_t)mode);
  archive_entry_set_size(entry, (la_int64_t)size);
  archive_entry_set_mtime(entry, 0, 0);
  /* A warning: the path is not ASCII, and stands there byte for byte. */
  ALWAYS(archive_write_header(archive, entry) >= ARCHIVE_WARN);
}

/* The folders above a file that the one before it does not lie in: some tools write beside what
 * they read, and so care for a folder's mode. Files of a folder follow each other when they are
 * sorted. */
static void folders_add(struct archive *archive, struct archive_entry *entry, const char *before,
                        const char *path, unsigned mode) {
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    size_t size = (size_t)(slash + 1 - path);
    if (strncmp(before, path, size) == 0)
      continue;
    cleanup_free char *folder = xstrndup(path, size);
    header_add(archive, entry, folder, AE_IFDIR, mode, 0);
  }
}

static void file_add(struct archive *archive, struct archive_entry *entry,
                     const struct cache_file *file, unsigned mode) {
  header_add(archive, entry, file->path, AE_IFREG, mode, file->size);
  ALWAYS(archive_write_data(archive, file->bytes, file->size) == (la_ssize_t)file->size);
}

/* In memory nothing fails but memory, and paths were checked when the files were added. */
char *cache_files_tar(const struct cache_files *files, size_t *ret_size) {
  char *bytes = NULL;
  FILE *out = open_memstream(&bytes, ret_size);
  struct archive *archive = archive_write_new();
  struct archive_entry *entry = archive_entry_new();
  cleanup_free const struct cache_file **sorted =
      xcalloc(files->n + 1, sizeof(struct cache_file *));
  ALWAYS(out && archive && entry);
  for (size_t i = 0; i < files->n; i++)
    sorted[i] = &files->files[i];
  qsort(sorted, files->n, sizeof *sorted, files_compare);
  ALWAYS(archive_write_set_format_pax_restricted(archive) == ARCHIVE_OK);
  ALWAYS(archive_write_open(archive, out, NULL, write_to_memory, NULL) == ARCHIVE_OK);
  for (size_t i = 0; i < files->n; i++) {
    folders_add(archive, entry, i ? sorted[i - 1]->path : "", sorted[i]->path,
                files->folder_mode ? files->folder_mode : 0755);
    file_add(archive, entry, sorted[i], files->file_mode ? files->file_mode : 0644);
  }
  ALWAYS(archive_write_close(archive) == ARCHIVE_OK);
  archive_entry_free(entry);
  archive_write_free(archive);
  ALWAYS(fclose(out) == 0);
  return bytes;
}
