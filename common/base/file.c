/* Whole files and folders. */
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <libgen.h>
#include <sys/stat.h>

#include "common/base/digest.h"

/* Reads to the end; `capacity`, at least 1, is what is expected. */
static bool fd_read_expecting(int fd, const char *name, size_t capacity, size_t size_max,
                              char **ret_text, size_t *ret_size, struct error *error) {
  size_t used = 0;
  cleanup_free char *text = xmalloc(capacity);
  for (;;) {
    ssize_t n = read(fd, text + used, capacity - used);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return error_set(error, "cannot read %s: %s", name, strerror(errno));
    if (n == 0)
      break;

    used += (size_t)n;
    if (used > size_max)
      return error_set(error, "cannot read %s: more than the limit of %zu bytes", name, size_max);
    GROW(text, used, capacity);
  }

  text[used] = '\0';
  *ret_text = TAKE(text);
  *ret_size = used;
  return true;
}

bool fd_read_all(int fd, const char *name, size_t size_max, char **ret_text, size_t *ret_size,
                 struct error *error) {
  return fd_read_expecting(fd, name, 4096, size_max, ret_text, ret_size, error);
}

bool file_read(const char *path, size_t size_max, char **ret_text, size_t *ret_size,
               struct error *error) {
  cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    return error_set(error, "cannot read %s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return error_set(error, "cannot read %s: not a regular file", path);
  if (status.st_size < 0 || (uintmax_t)status.st_size > size_max)
    return error_set(error, "cannot read %s: %lld bytes, more than the limit of %zu", path,
                     (long long)status.st_size, size_max);

  /* The files of /proc have a size of 0, and any file may have grown: read to the end, not to
   * st_size. */
  return fd_read_expecting(fd, path, (size_t)status.st_size + 1, size_max, ret_text, ret_size,
                           error);
}

bool fd_write_all(int fd, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

bool folder_sync(const char *file_path) {
  cleanup_free char *copy = xstrdup(file_path);
  cleanup_fd int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd >= 0 && fsync(fd) == 0;
}

static bool write_and_rename(const char *path, const void *bytes, size_t size, unsigned mode,
                             bool is_synced, struct error *error) {
  char suffix[17];
  random_hex(suffix, 8);
  cleanup_free char *temporary = xasprintf("%s.%s.tmp", path, suffix);
  cleanup_fd int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0)
    return error_set(error, "cannot create %s: %s", temporary, strerror(errno));

  if (!fd_write_all(fd, bytes, size) || (is_synced && fsync(fd) < 0) ||
      rename(temporary, path) < 0) {
    int reason = errno;
    unlink(temporary);
    return error_set(error, "cannot write %s: %s", path, strerror(reason));
  }
  return true;
}

bool file_write_atomically(const char *path, const void *bytes, size_t size, unsigned mode,
                           struct error *error) {
  if (!write_and_rename(path, bytes, size, mode, true, error))
    return false;
  return folder_sync(path) ||
         error_set(error, "cannot sync the folder of %s: %s", path, strerror(errno));
}

bool file_write_unsynced(const char *path, const void *bytes, size_t size, unsigned mode,
                         struct error *error) {
  return write_and_rename(path, bytes, size, mode, false, error);
}

bool folder_make(const char *path, unsigned mode, struct error *error) {
  if (!*path)
    return error_set(error, "cannot make a folder without a name");

  cleanup_free char *partial = xstrdup(path);
  for (char *slash = partial + 1;; slash++) {
    if (*slash != '/' && *slash != '\0')
      continue;

    char kept = *slash;
    *slash = '\0';
    if (mkdir(partial, mode) < 0 && errno != EEXIST)
      return error_set(error, "cannot make the folder %s: %s", partial, strerror(errno));
    if (kept == '\0')
      break;
    *slash = kept;
  }

  struct stat status;
  if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode))
    return error_set(error, "cannot make the folder %s: something else has that name", path);
  return true;
}

bool file_is_private(const char *path, bool or_roots_group, struct error *error) {
  struct stat status;
  if (stat(path, &status) < 0)
    return error_set(error, "cannot read the mode of %s: %s", path, strerror(errno));

  mode_t refused = S_IRWXG | S_IRWXO;
  if (or_roots_group && status.st_uid == 0)
    refused &= ~(mode_t)S_IRGRP;
  return !(status.st_mode & refused) ||
         error_set(error,
                   "%s is a private key with mode %04o, so that others may have read it; chmod 600 "
                   "it, or make a new one",
                   path, (unsigned)status.st_mode & 07777);
}

bool folder_make_private(const char *path, struct error *error) {
  struct stat status;
  if (!folder_make(path, 0700, error))
    return false;

  if (stat(path, &status) < 0)
    return error_set(error, "cannot read the owner of the folder %s: %s", path, strerror(errno));
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return error_set(
        error, "the folder %s belongs to user %u, who could put anything into it; name another one",
        path, (unsigned)status.st_uid);

  return !(status.st_mode & S_IWOTH) || error_set(error,
                                                  "all users may write to the folder %s; make it "
                                                  "private (chmod 700) or name another one",
                                                  path);
}

bool folder_make_temporary(char **ret_path, struct error *error) {
  const char *given = getenv("TMPDIR"), *parent = given && *given ? given : "/tmp";
  cleanup_free char *path = xasprintf("%s/wavetune-XXXXXX", parent);
  if (!mkdtemp(path))
    return error_set(error, "cannot make a temporary folder in %s: %s; set TMPDIR", parent,
                     strerror(errno));

  *ret_path = TAKE(path);
  return true;
}

bool folder_remove(const char *path, struct error *error) {
  /* Not nftw with FTW_MOUNT: on overlayfs it would pass over every file whose st_dev is that of a
   * layer; fts compares folders only. */
  char *paths[] = {(char *)path, NULL};
  FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
  int failed = walk ? 0 : errno;
  for (FTSENT *entry; walk && !failed && (errno = 0, entry = fts_read(walk));) {
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
      failed = entry->fts_errno;
    else if (entry->fts_info != FTS_D && remove(entry->fts_accpath) < 0)
      failed = errno;
    if (failed == ENOENT) /* another process may remove the same folder */
      failed = 0;
  }
  if (!failed)
    failed = errno; /* of fts_read */
  if (walk)
    fts_close(walk);

  return !failed || failed == ENOENT ||
         error_set(error, "cannot remove the folder %s: %s", path, strerror(failed));
}
