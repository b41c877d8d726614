/* gzip in memory, by libarchive. Memory and threads: gzip.h. */
#include "common/base/gzip.h"

#include <archive.h>
#include <archive_entry.h>

static la_ssize_t write_to_memory(struct archive *archive, void *out, const void *bytes,
                                  size_t size) {
  (void)archive;
  return (la_ssize_t)fwrite_unlocked(bytes, 1, size, out);
}

/* Writing to memory fails only when memory is exhausted. */
char *gzip_compress(const char *bytes, size_t size, size_t *ret_size) {
  char *compressed = NULL;
  FILE *out = open_memstream(&compressed, ret_size);
  struct archive *archive = archive_write_new();
  struct archive_entry *entry = archive_entry_new();
  ALWAYS(out && archive && entry);
  archive_entry_set_pathname(entry, "data");
  archive_entry_set_filetype(entry, AE_IFREG);

  bool is_good =
      archive_write_set_format_raw(archive) == ARCHIVE_OK &&
      archive_write_add_filter_gzip(archive) == ARCHIVE_OK &&
      archive_write_set_filter_option(archive, "gzip", "compression-level", "9") == ARCHIVE_OK &&
      archive_write_set_filter_option(archive, "gzip", "timestamp", NULL) == ARCHIVE_OK &&
      archive_write_set_bytes_in_last_block(archive, 1) == ARCHIVE_OK &&
      archive_write_open(archive, out, NULL, write_to_memory, NULL) == ARCHIVE_OK &&
      archive_write_header(archive, entry) == ARCHIVE_OK &&
      archive_write_data(archive, bytes, size) == (la_ssize_t)size &&
      archive_write_close(archive) == ARCHIVE_OK;
  ALWAYS(is_good);

  archive_entry_free(entry);
  archive_write_free(archive);
  ALWAYS(fclose(out) == 0);

  return compressed;
}
