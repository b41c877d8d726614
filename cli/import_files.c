/* Collects names first, then reads: what is wrong with a folder is said before anything of it is in
 * memory. One thread. */
#include "cli/import_files.h"

#include <errno.h>
#include <fts.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/program/progress.h"

/* A Triton cache holds compiled code beside its tables, gigabytes of it. */
static const char *const table_ends[] = {".json", ".csv", ".best_config"};

struct names {
  size_t n, capacity;
  char **all;   /* absolute */
  size_t bytes; /* of all of them, as their folders say */
  struct import_files *into;
};

static void names_release(struct names *names) {
  for (size_t i = 0; i < names->n; i++)
    free(names->all[i]);
  free(names->all);
}

static bool name_is_printable(const char *name) {
  for (const char *c = name; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return false;
  return true;
}

static bool names_add(struct names *names, const char *path, off_t size, struct error *error) {
  if (!name_is_printable(path))
    return error_set(error, "%s: the name holds control characters; rename it", path);
  if (names->n == IMPORT_FILES_MAX)
    return error_set(error, "more than %d files; import them in parts, by naming folders below",
                     IMPORT_FILES_MAX);
  if (size > (off_t)IMPORT_FILE_MAX)
    return error_set(error, "%s has more than %zu MiB", path, IMPORT_FILE_MAX >> 20);
  names->bytes += (size_t)size;
  if (names->bytes > IMPORT_BYTES_MAX)
    return error_set(error,
                     "more than %zu MiB of files; import them in parts, by naming folders below",
                     IMPORT_BYTES_MAX >> 20);
  GROW(names->all, names->n, names->capacity);
  names->all[names->n++] = xstrdup(path);
  return true;
}

static bool ends_as_table(const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < ARRAY_LENGTH(table_ends); i++) {
    size_t end = strlen(table_ends[i]);
    if (length > end && strcmp(name + length - end, table_ends[i]) == 0)
      return true;
  }
  return false;
}

static bool is_below(const char *path, const char *folder) {
  size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
  return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool link_stays_inside(const char *path, const char *folder, struct error *error) {
  cleanup_free char *target = realpath(path, NULL);
  if (!target)
    return error_set(error, "%s is a link that leads nowhere; remove it", path);
  return is_below(target, folder) ||
         error_set(error, "%s is a link that leads out of %s; name what it leads to instead", path,
                   folder);
}

static int entries_compare(const FTSENT **a, const FTSENT **b) {
  return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool entry_take(FTS *tree, FTSENT *entry, const char *folder, struct names *names,
                       struct error *error) {
  if (entry->fts_level > 0 && entry->fts_name[0] == '.') {
    (void)fts_set(tree, entry, FTS_SKIP);
    return true;
  }
  switch (entry->fts_info) {
  case FTS_DNR:
  case FTS_ERR:
  case FTS_NS:
    return error_set(error, "cannot read %s: %s", entry->fts_path, strerror(entry->fts_errno));
  case FTS_SL:
  case FTS_SLNONE:
    return link_stays_inside(entry->fts_path, folder, error);
  case FTS_F:
    return !ends_as_table(entry->fts_name) ||
           names_add(names, entry->fts_path, entry->fts_statp->st_size, error);
  default:
    return true;
  }
}

static bool folder_collect(char *folder, struct names *names, struct error *error) {
  char *const roots[] = {folder, NULL};
  size_t before = names->n;
  FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, entries_compare);
  if (!tree)
    return error_set(error, "cannot read %s: %s", folder, strerror(errno));
  bool is_good = true;
  for (FTSENT *entry; is_good && (entry = fts_read(tree));)
    is_good = entry_take(tree, entry, folder, names, error);
  fts_close(tree);
  return is_good &&
         (names->n > before || error_set(error,
                                         "%s holds no tables: no file that ends in .json, .csv or "
                                         ".best_config",
                                         folder));
}

/* The real folder of what was typed: itself, or the one that a file lies in. A file keeps its own
 * name, even that of a link: names of tables mean something. */
static char *folder_of(const char *path, bool is_folder) {
  cleanup_free char *copy = xstrdup(path);
  return realpath(is_folder ? path : dirname(copy), NULL);
}

static void root_add(struct import_files *files, const char *folder) {
  for (size_t i = 0; i < files->n_roots; i++)
    if (strcmp(files->roots[i], folder) == 0)
      return;
  GROW(files->roots, files->n_roots, files->capacity);
  files->roots[files->n_roots++] = xstrdup(folder);
}

static bool path_collect(const char *path, struct names *names, struct error *error) {
  struct stat status;
  bool is_there = stat(path, &status) == 0, is_folder = is_there && S_ISDIR(status.st_mode);
  cleanup_free char *folder = is_there ? folder_of(path, is_folder) : NULL;
  if (!folder)
    return error_set(error, "cannot read %s: %s", path, strerror(errno));
  root_add(names->into, folder);
  if (is_folder)
    return folder_collect(folder, names, error);
  cleanup_free char *copy = xstrdup(path);
  cleanup_free char *whole =
      xasprintf("%s/%s", strcmp(folder, "/") == 0 ? "" : folder, basename(copy));
  return names_add(names, whole, status.st_size, error);
}

static int texts_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool names_are_distinct(struct names *names, struct error *error) {
  if (names->n)
    qsort(names->all, names->n, sizeof *names->all, texts_compare);
  for (size_t i = 1; i < names->n; i++)
    if (strcmp(names->all[i - 1], names->all[i]) == 0)
      return error_set(error, "%s is named twice", names->all[i]);
  return true;
}

static bool names_read(const struct names *names, struct cache_files *files, struct error *error) {
  struct progress progress = progress_start(stderr, "files", names->n);
  bool is_good = true;
  for (size_t i = 0; is_good && i < names->n; i++) {
    char *bytes;
    size_t size;
    progress_show(&progress, i, "");
    is_good = file_read(names->all[i], IMPORT_FILE_MAX, &bytes, &size, error);
    if (is_good)
      cache_files_add(files, names->all[i] + 1, bytes, size);
  }
  progress_end(&progress);
  return is_good;
}

void import_files_release(struct import_files *files) {
  cache_files_release(&files->files);
  for (size_t i = 0; i < files->n_roots; i++)
    free(files->roots[i]);
  free(files->roots);
  *files = (struct import_files){0};
}

bool import_files_read(char *const *paths, size_t n_paths, struct import_files *ret,
                       struct error *error) {
  cleanup_import_files struct import_files files = {0};
  __attribute__((cleanup(names_release))) struct names names = {.into = &files};
  for (size_t i = 0; i < n_paths; i++)
    if (!path_collect(paths[i], &names, error))
      return false;
  if (!names_are_distinct(&names, error) || !names_read(&names, &files.files, error))
    return false;
  *ret = files;
  files = (struct import_files){0};
  return true;
}

const char *import_files_name(const struct import_files *files, const char *path) {
  for (size_t i = 0; i < files->n_roots; i++) {
    const char *root = files->roots[i] + 1;
    size_t length = strlen(root);
    if (length && strncmp(path, root, length) == 0 && path[length] == '/')
      return path + length + 1;
  }
  return path;
}
