/* Writing a tar into memory, over libarchive. Memory: as the header says. Threads: any. */
#include "common/cache/cache_tar.h"

#include <archive.h>
#include <archive_entry.h>

static la_ssize_t write_to_memory(struct archive *archive, void *out, const void *bytes, size_t size) {
  (void)archive;
  return (la_ssize_t)fwrite_unlocked(bytes, 1, size, out);
}

static int files_compare(const void *a, const void *b) {
  return strcmp((*(const struct cache_file *const *)a)->path, (*(const struct cache_file *const *)b)->path);
}

static void header_add(struct archive *archive, struct archive_entry *entry, const char *path, unsigned type,
                       unsigned mode, size_t size) {
  archive_entry_clear(entry);
  archive_entry_set_pathname(entry, path);
  archive_entry_set_filetype(entry, type);
  archive_entry_set_perm(entry, (mode_t)mode);
  archive_entry_set_size(entry, (la_int64_t)size);
  archive_entry_set_mtime(entry, 0, 0);
  /* A warning: the path is not ASCII, and stands there byte for byte. */
  ALWAYS(archive_write_header(archive, entry) >= ARCHIVE_WARN);
}

/* The folders above a file that the one before it does not lie in: some tools write beside what they read, and so care for a
 * folder's mode. Files of a folder follow each other when they are sorted. */
static void folders_add(struct archive *archive, struct archive_entry *entry, const char *before, const char *path,
                        unsigned mode) {
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    size_t size = (size_t)(slash + 1 - path);
    if (strncmp(before, path, size) == 0)
      continue;
    cleanup_free char *folder = xstrndup(path, size);
    header_add(archive, entry, folder, AE_IFDIR, mode, 0);
  }
}

static void file_add(struct archive *archive, struct archive_entry *entry, const struct cache_file *file,
                     unsigned mode) {
  header_add(archive, entry, file->path, AE_IFREG, mode, file->size);
  ALWAYS(archive_write_data(archive, file->bytes, file->size) == (la_ssize_t)file->size);
}

/* In memory nothing fails but memory, and paths were checked when the files were added. */
char *cache_files_tar(const struct cache_files *files, size_t *ret_size) {
  char *bytes = NULL;
  FILE *out = open_memstream(&bytes, ret_size);
  struct archive *archive = archive_write_new();
  struct archive_entry *entry = archive_entry_new();
  cleanup_free const struct cache_file **sorted = xcalloc(files->n + 1, sizeof(struct cache_file *));
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
