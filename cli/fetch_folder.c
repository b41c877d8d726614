/* The folder of a fetch: locking it, reading its state, moving new files into place, removing old
 * ones.
 *
 * After a crash current is the old cache or the new one, whole: everything new is written, then the
 * file system is synced once, then the release's folder, current and the state are renamed into
 * place. One syncfs costs as much as writing the files; a sync of each file would add a wait for
 * each. Nothing is synced after it: a rename that is lost leaves
 * the old cache, which is whole.
 *
 * Memory and threads: fetch.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "cli/fetch.h"
#include "common/base/file.h"
#include "common/base/glibc.h"

#define HEX_DIGITS "0123456789abcdef"
#define KEEP_S 3600
#define STATE_MAX ((size_t)1 << 20)
#define LOCK_POLL_US 5000

static bool is_release_name(const char *name) {
  return strspn(name, HEX_DIGITS) == RELEASE_NAME_LENGTH && name[RELEASE_NAME_LENGTH] == '\0';
}

/* The release that TO/current points at; "" when that is not a link that a fetch made. */
static void current_read(const struct fetch *fetch, char name[RELEASE_NAME_SIZE]) {
  char target[RELEASE_NAME_SIZE + 1];
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  ssize_t length = readlink(path, target, RELEASE_NAME_SIZE);
  target[length > 0 ? length : 0] = '\0';
  name[0] = '\0';
  if (is_release_name(target))
    memcpy(name, target, RELEASE_NAME_SIZE);
}

/* Useless files in the folder: those that failed or killed fetches left, or releases that were
 * replaced long ago. */
enum garbage { GARBAGE_LEFTOVERS, GARBAGE_RELEASES };

static void garbage_remove(const struct fetch *fetch, enum garbage garbage) {
  DIR *folder = opendir(fetch->to);
  char current[RELEASE_NAME_SIZE];
  current_read(fetch, current);

  for (const struct dirent *entry; folder && (entry = readdir(folder));) {
    const char *name = entry->d_name;
    struct stat status;
    struct error ignored;
    if (fstatat(dirfd(folder), name, &status, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    bool is_staging = name[0] == '.' && strspn(name + 1, HEX_DIGITS) == RELEASE_NAME_LENGTH &&
                      name[1 + RELEASE_NAME_LENGTH] == '.',
         is_leftover =
             is_staging || string_starts(name, ".current.") || string_starts(name, ".fetch.json."),
         is_old = is_release_name(name) && S_ISDIR(status.st_mode) &&
                  time(NULL) - status.st_mtime >= KEEP_S && current[0] &&
                  !string_equal(name, current) &&
                  !string_equal(name, cli_member(fetch->state, "previous"));
    if (garbage == GARBAGE_LEFTOVERS ? !is_leftover : !is_old)
      continue;
    /* Links are removed, never followed; the next fetch tries again what cannot be removed. */
    cleanup_free char *path = xasprintf("%s/%s", fetch->to, name);
    (void)!folder_remove(path, &ignored);
  }

  if (folder)
    closedir(folder);
}

void folder_tidy(const struct fetch *fetch) {
  if (clock_monotonic_ms() < fetch->deadline_ms)
    garbage_remove(fetch, GARBAGE_LEFTOVERS);
}

void folder_prune(const struct fetch *fetch) { garbage_remove(fetch, GARBAGE_RELEASES); }

/* Opening */

bool folder_has_release(const struct fetch *fetch, const char *name) {
  cleanup_free char *path = xasprintf("%s/%s", fetch->to, name);
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void kept_release(struct kept *kept) {
  channel_entry_release(&kept->entry);
  json_decref(kept->entry_json);
  *kept = (struct kept){0};
}

static void kept_read(struct fetch *fetch) {
  struct kept *kept = &fetch->kept;
  kept_release(kept);
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  struct stat status;
  struct error ignored;
  kept->is_there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  current_read(fetch, kept->name);

  /* The entry is stored in the release's folder, so that it always belongs to the release that
   * current points at. */
  cleanup_free char *entry_path = xasprintf("%s/%s/entry.json", fetch->to, kept->name);
  kept->has_entry = kept->name[0] && folder_has_release(fetch, kept->name) &&
                    json_parse_file(entry_path, STATE_MAX, &kept->entry_json, &ignored) &&
                    channel_entry_parse(kept->entry_json, &kept->entry, &ignored) &&
                    string_equal(DIGEST_TEXT(&kept->entry.release) + strlen("sha256:"), kept->name);
  kept->is_trusted =
      fetch->keys.n == 0 || (kept->has_entry && entry_is_signed(fetch, &kept->entry, &ignored));
}

bool folder_release_read(const struct fetch *fetch, const char *name, char **ret_bytes,
                         size_t *ret_size) {
  cleanup_free char *path = xasprintf("%s/%s/release.json", fetch->to, name), *bytes = NULL;
  struct error ignored;
  size_t size;
  if (!folder_has_release(fetch, name) ||
      !file_read(path, RELEASE_SIZE_MAX, &bytes, &size, &ignored))
    return false;

  struct digest digest = digest_of(bytes, size);
  if (!string_equal(DIGEST_TEXT(&digest) + strlen("sha256:"), name))
    return false;
  *ret_bytes = TAKE(bytes);
  *ret_size = size;

  return true;
}

bool folder_open(struct fetch *fetch, int *ret_lock, struct error *error) {
  bool is_made = folder_make(fetch->to, 0755, error);
  fetch->absolute = is_made ? realpath(fetch->to, NULL) : NULL;
  kept_read(fetch);
  if (!is_made || !fetch->absolute)
    return is_made && error_set(error, "cannot find %s: %s", fetch->to, strerror(errno));
  if (!json_can_hold(fetch->absolute)) {
    free(TAKE(fetch->absolute)); /* the path of the kept cache could not be reported either */
    return error_set(
        error, "the path of %s is no UTF-8, so files of caches cannot name it; fetch elsewhere",
        fetch->to);
  }

  /* Of two fetches into one folder the second waits for the first, and then finds the work done. */
  cleanup_free char *lock_path = xasprintf("%s/.lock", fetch->to),
                    *state_path = xasprintf("%s/.fetch.json", fetch->to);
  cleanup_fd int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0)
    return error_set(error, "cannot write to %s: %s", fetch->to, strerror(errno));

  while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
    if (clock_monotonic_ms() >= fetch->deadline_ms)
      return error_set(error, "another fetch into %s did not end within the budget", fetch->to);
    usleep(LOCK_POLL_US);
  }

  *ret_lock = lock;
  lock = -1;

  /* The state is absent before the first fetch; a damaged one is ignored. */
  cleanup_json json_t *state = NULL;
  struct error ignored;
  kept_read(fetch); /* again: another fetch may have changed it */
  if (json_parse_file(state_path, STATE_MAX, &state, &ignored) && json_is_object(state))
    json_object_update(fetch->state, state);
  folder_tidy(fetch);

  return true;
}

/* Publishing */

static char *temporary_path(const struct fetch *fetch, const char *name) {
  char suffix[17];
  random_hex(suffix, 8);
  return xasprintf("%s/.%s.%s", fetch->to, name, suffix);
}

bool folder_stage(struct fetch *fetch, const char *name, char **ret_staging, struct error *error) {
  cleanup_free char *staging = temporary_path(fetch, name);
  fetch->disk = open(fetch->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fetch->disk < 0 || mkdir(staging, 0755) < 0)
    return error_set(error, "cannot make the folder %s: %s", staging, strerror(errno));
  *ret_staging = TAKE(staging);
  return true;
}

static bool json_write(const char *path, const json_t *json, struct error *error) {
  cleanup_free char *text = json_canonical(json);
  cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  return (fd >= 0 && fd_write_all(fd, text, strlen(text))) ||
         error_set(error, "cannot write %s: %s", path, strerror(errno));
}

/* syncfs takes as long as the disk does, and cannot be interrupted: a child process waits for it,
 * and this one waits no longer than the budget. The child keeps no descriptor open that would delay
 * an end of file for another process. */
static bool disk_sync(const struct fetch *fetch, struct error *error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return error_set(error, "cannot sync %s: %s", fetch->to, strerror(errno));
  pid_t child = fork();
  if (child == 0) {
    dup2(fetch->disk, 0);
    dup2(ends[1], 1);
    close_range(2, ~0U, 0);
    bool ok = syncfs(0) == 0 && write(1, "", 1) == 1;
    _exit(ok ? 0 : 1);
  }

  close(ends[1]);
  cleanup_fd int done = ends[0];
  if (child < 0)
    return error_set(error, "cannot sync %s: %s", fetch->to, strerror(errno));
  int64_t left_ms = fetch->deadline_ms - clock_monotonic_ms();
  struct pollfd waited = {.fd = done, .events = POLLIN};
  char byte;
  if (poll(&waited, 1, left_ms > 0 ? (int)left_ms : 0) == 0)
    return error_set(error, "the disk of %s did not store the new cache within the budget",
                     fetch->to);
  bool ok = read(done, &byte, 1) == 1;
  waitpid(child, NULL, 0);

  return ok || error_set(error, "cannot sync %s; is its disk full or broken?", fetch->to);
}

/* Replaces an old folder by a new one; the old one then has the new one's former path. */
static bool folder_exchange(const char *new, const char *old, struct error *error) {
  if (rename(new, old) == 0 || renameat2(AT_FDCWD, new, AT_FDCWD, old, RENAME_EXCHANGE) == 0)
    return true;
  /* Some network file systems cannot exchange two folders. */
  cleanup_free char *aside = xasprintf("%s.old", new);
  bool is_aside = rename(old, aside) == 0;
  if (is_aside && rename(new, old) == 0)
    return true;
  error_set(error, "cannot rename %s to %s: %s", new, old, strerror(errno));
  if (is_aside)
    (void)!rename(aside, old); /* the old folder is better than none */
  return false;
}

/* Moves the content of the staging folder into the release's folder, or the staging folder itself
 * when the release has none. */
static bool staging_move(const struct fetch *fetch, const char *name, const char *staging,
                         struct error *error) {
  cleanup_free char *final = xasprintf("%s/%s", fetch->to, name);
  struct error ignored;
  bool ok = true;
  if (rename(staging, final) == 0)
    return true;

  if (errno == ENOTDIR) {
    /* The release's place has a link or a file. That was not read as a release, so the staging
     * folder is complete. */
    ok = folder_exchange(staging, final, error);
  } else if (errno != EEXIST && errno != ENOTEMPTY) {
    return error_set(error, "cannot rename %s to %s: %s", staging, final, strerror(errno));
  } else {
    DIR *folder = opendir(staging);
    if (!folder)
      ok = error_set(error, "cannot read %s: %s", staging, strerror(errno));
    for (const struct dirent *entry; ok && (entry = readdir(folder));) {
      cleanup_free char *from = xasprintf("%s/%s", staging, entry->d_name),
                        *to = xasprintf("%s/%s", final, entry->d_name);
      if (entry->d_name[0] != '.')
        ok = folder_exchange(from, to, error);
    }
    if (folder)
      closedir(folder);
  }

  (void)!folder_remove(staging, &ignored); /* otherwise the next fetch removes it */
  return ok;
}

bool folder_publish(struct fetch *fetch, const char *name, const char *staging,
                    struct error *error) {
  const char *before = fetch->kept.name;
  cleanup_free char *entry_path = xasprintf("%s/entry.json", staging),
                    *state = xasprintf("%s/.fetch.json", fetch->to),
                    *new_state = temporary_path(fetch, "fetch.json"),
                    *current = xasprintf("%s/current", fetch->to),
                    *new_current = temporary_path(fetch, "current");
  bool is_current = string_equal(before, name);
  if (before[0] && !is_current) {
    /* A replaced folder is kept for KEEP_S from now, however old it is. */
    cleanup_free char *path = xasprintf("%s/%s", fetch->to, before);
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
    json_put(fetch->state, "previous", json_string(before));
  }

  if (!json_write(entry_path, fetch->entry, error) || !json_write(new_state, fetch->state, error) ||
      !disk_sync(fetch, error) || !staging_move(fetch, name, staging, error))
    return false;

  /* A new link is renamed over the old one: a reader sees one or the other. */
  if (!is_current && (symlink(name, new_current) < 0 || rename(new_current, current) < 0)) {
    int reason = errno;
    unlink(new_current);
    return error_set(error, "cannot point %s at %s: %s", current, name, strerror(reason));
  }

  return rename(new_state, state) == 0 ||
         error_set(error, "cannot rename %s to %s: %s", new_state, state, strerror(errno));
}
