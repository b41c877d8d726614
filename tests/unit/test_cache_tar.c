/* A cache's files as a tar. */
#include "common/cache/format.h"

#include <archive.h>
#include <archive_entry.h>
#include <criterion/criterion.h>

/* "a/b 644 hello;": path, mode and content of every entry in its order, with a '!' for an owner or
 * a time. */
static char *listed(const char *bytes, size_t size) {
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  struct archive *archive = archive_read_new();
  struct archive_entry *entry;
  cr_assert_eq(archive_read_support_format_tar(archive), ARCHIVE_OK);
  cr_assert_eq(archive_read_open_memory(archive, bytes, size), ARCHIVE_OK);
  while (archive_read_next_header(archive, &entry) == ARCHIVE_OK) {
    char content[64] = "";
    cr_assert_geq(archive_read_data(archive, content, sizeof content - 1), 0);
    bool is_dated =
        archive_entry_uid(entry) || archive_entry_gid(entry) || archive_entry_mtime(entry);
    fprintf(out, "%s %o %s%s;", archive_entry_pathname(entry), archive_entry_perm(entry), content,
            is_dated ? "!" : "");
  }
  archive_read_free(archive);
  fclose(out);
  return text;
}

static void file_add(struct cache_files *files, const char *path, const char *content) {
  cache_files_add(files, path, xstrdup(content), strlen(content));
}

Test(cache_tar, holds_the_files_sorted_without_owners_or_times) {
  cleanup_cache_files struct cache_files files = {0};
  char long_path[200];
  memset(long_path, 'x', sizeof long_path);
  long_path[100] = '/';
  long_path[sizeof long_path - 1] = '\0';
  file_add(&files, long_path, "long");
  file_add(&files, "b/cache.json", "{}");
  file_add(&files, "a", "");
  size_t size;
  cleanup_free char *bytes = cache_files_tar(&files, &size);
  cleanup_free char *list = listed(bytes, size);
  cleanup_free char *wanted = xasprintf(
      "a 644 ;b/ 755 ;b/cache.json 644 {};%.101s 755 ;%s 644 long;", long_path, long_path);
  cr_assert_str_eq(list, wanted);
}

Test(cache_tar, has_the_modes_that_the_format_states) {
  cleanup_cache_files struct cache_files files = {.file_mode = 0777, .folder_mode = 01777};
  file_add(&files, "a/b/x.json", "x");
  file_add(&files, "a/b/y.json", "y");
  file_add(&files, "a/c/z.json", "z");
  size_t size;
  cleanup_free char *bytes = cache_files_tar(&files, &size);
  cleanup_free char *list = listed(bytes, size);
  cr_assert_str_eq(
      list, "a/ 1777 ;a/b/ 1777 ;a/b/x.json 777 x;a/b/y.json 777 y;a/c/ 1777 ;a/c/z.json 777 z;");
}

Test(cache_tar, is_the_same_for_the_same_files_in_another_order) {
  cleanup_cache_files struct cache_files one = {0}, other = {0};
  file_add(&one, "a", "1");
  file_add(&one, "b", "2");
  file_add(&other, "b", "2");
  file_add(&other, "a", "1");
  size_t size, again_size;
  cleanup_free char *bytes = cache_files_tar(&one, &size),
                    *again = cache_files_tar(&other, &again_size);
  cr_assert_eq(size, again_size);
  cr_assert_arr_eq(bytes, again, size);
}

Test(cache_tar, a_path_that_is_not_ascii_is_written_as_it_is) {
  cleanup_cache_files struct cache_files files = {0};
  file_add(&files,
           "gr\xc3\xb6\xc3\x9f"
           "e.json",
           "1");
  size_t size;
  cleanup_free char *bytes = cache_files_tar(&files, &size);
  cleanup_free char *list = listed(bytes, size);
  cr_assert_str_eq(list, "gr\xc3\xb6\xc3\x9f"
                         "e.json 644 1;");
}
