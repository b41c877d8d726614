/* Writing rendered caches. Memory and threads: files.h. */
#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/cache/cache_tar.h"
#include "common/file.h"
#include "common/options.h"

#define IDENTITY_DEFAULT "/etc/wavetune/identity.json"
#define LARGE_BYTES ((size_t)1 << 20)
#define FILE_MODE_DEFAULT 0644
#define FOLDER_MODE_DEFAULT 0755

static unsigned file_mode(const struct cache_files *files) {
  return files->file_mode ? files->file_mode : FILE_MODE_DEFAULT;
}

static unsigned folder_mode(const struct cache_files *files) {
  return files->folder_mode ? files->folder_mode : FOLDER_MODE_DEFAULT;
}

/* Makes the folders of `path` that it does not share with `before`, the path that was written last. */
static bool parents_make(int root, const char *path, const char *before, unsigned mode, struct error *error) {
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    size_t length = (size_t)(slash - path);
    if (before && strncmp(path, before, length + 1) == 0)
      continue;
    cleanup_free char *folder = xstrndup(path, length);
    if (mkdirat(root, folder, mode) < 0 && errno != EEXIST)
      return error_set(error, "cannot make the folder %s: %s", folder, strerror(errno));
  }
  return true;
}

/* A large file begins its way to the disk at once, while others are rendered: whoever syncs in the end waits less. */
static bool file_write(int root, const struct cache_file *file, unsigned mode, struct error *error) {
  cleanup_fd int fd = openat(root, file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0 || !fd_write_all(fd, file->bytes, file->size))
    return error_set(error, "cannot write %s: %s", file->path, strerror(errno));
  if (file->size >= LARGE_BYTES)
    (void)!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  return true;
}

bool file_create(const char *folder, const struct cache_file *file, struct error *error) {
  cleanup_fd int root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return root < 0 ? error_set(error, "cannot open %s: %s", folder, strerror(errno))
                  : file_write(root, file, FILE_MODE_DEFAULT, error);
}

static bool all_write(const struct cache_files *files, int root, int64_t deadline_ms, struct error *error) {
  const char *before = NULL;
  for (size_t i = 0; i < files->n; i++) {
    const struct cache_file *file = &files->files[i];
    if (deadline_ms && clock_monotonic_ms() >= deadline_ms)
      return error_set(error, "the time budget was used up after %zu of %zu files; give it more with --budget-ms", i,
                       files->n);
    if (!parents_make(root, file->path, before, folder_mode(files), error) ||
        !file_write(root, file, file_mode(files), error))
      return false;
    before = file->path;
  }
  return true;
}

bool files_write(const struct cache_files *files, const char *folder, int64_t deadline_ms, struct error *error) {
  bool states_modes = files->file_mode || files->folder_mode, ok = false;
  mode_t mask = umask(0);
  if (!states_modes)
    umask(mask);
  cleanup_fd int root = mkdir(folder, folder_mode(files)) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (root < 0)
    error_set(error, "cannot make the folder %s: %s", folder, strerror(errno));
  else
    ok = all_write(files, root, deadline_ms, error) || error_prefix(error, "%s: ", folder);
  umask(mask);
  return ok;
}

bool files_write_tar(const struct cache_files *files, const char *path, struct error *error) {
  size_t size;
  cleanup_free char *bytes = cache_files_tar(files, &size);
  return file_write_atomically(path, bytes, size, 0644, error) || error_prefix(error, "cannot write %s: ", path);
}

static bool is_among(const struct cache_format *format, const struct cache_format *const *formats, size_t n) {
  while (n)
    if (formats[--n] == format)
      return true;
  return false;
}

bool formats_of_option(const struct options *options, const struct cache_format ***ret_formats, size_t *ret_n,
                       struct error *error) {
  static const char *const standard[] = {"json"};
  const char *const *names;
  size_t n_names = option_list(options, "format", &names), n = 0;
  if (n_names == 0) {
    names = standard;
    n_names = 1;
  }
  cleanup_free const struct cache_format **formats = xcalloc(n_names, sizeof(struct cache_format *));
  for (size_t i = 0; i < n_names; i++) {
    const struct cache_format *format;
    if (!cache_format_find(names[i], &format, error))
      return error_prefix(error, "--format: ");
    if (!is_among(format, formats, n))
      formats[n++] = format;
  }
  *ret_formats = TAKE(formats);
  *ret_n = n;
  return true;
}

bool identity_of_option(const struct options *options, struct identity **ret_identity, struct error *error) {
  const char *path = option_text(options, "identity");
  cleanup_json json_t *json = NULL;
  *ret_identity = NULL;
  if (!path && access(IDENTITY_DEFAULT, F_OK) != 0)
    return true;
  if (!path)
    path = IDENTITY_DEFAULT;
  return json_parse_file(path, IDENTITY_SIZE_MAX, &json, error) &&
         (identity_parse(json, ret_identity, error) || error_prefix(error, "%s: ", path));
}
