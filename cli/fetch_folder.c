/* The folder that fetches keep: who writes, what is there, how something new gets into place, what
 * is removed.
 *
 * After a crash current is the old cache or the new one, whole: everything new is written, then the
 * file system is synced once, then the release's folder, current and the state are renamed into
 * place. One syncfs costs what the files cost that were written, not a wait for each
 * (docs/measurements.md has both). Nothing is synced after it: a rename that is lost leaves the old
 * cache, which is whole.
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

#define HEX_DIGITS "0123456789abcdef"
#define KEEP_S 3600
#define STATE_MAX ((size_t)1 << 20)
#define LOCK_POLL_US 5000

static bool is_release_name(const char *name) {
  return strspn(name, HEX_DIGITS) == RELEASE_NAME_LENGTH && name[RELEASE_NAME_LENGTH] == '\0';
}

/* What TO/current points at; "" when it is no link that a fetch made. */
static void current_read(const struct fetch *fetch, char name[RELEASE_NAME_SIZE]) {
  char target[RELEASE_NAME_SIZE + 1];
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  ssize_t length = readlink(path, target, RELEASE_NAME_SIZE);
  target[length > 0 ? length : 0] = '\0';
  name[0] = '\0';
  if (is_release_name(target))
    memcpy(name, target, RELEASE_NAME_SIZE);
}

/* Removing */

/* What a fetch left behind that was killed or gave up: half a folder, a link or a file that nobody
 * renamed. */
static bool is_leftover(const char *name) {
  return (name[0] == '.' && strspn(name + 1, HEX_DIGITS) == RELEASE_NAME_LENGTH &&
          name[1 + RELEASE_NAME_LENGTH] == '.') ||
         string_starts(name, ".current.") || string_starts(name, ".fetch.json.");
}

/* Links are removed, never followed; what cannot be removed is tried again by the next fetch. */
static void entries_remove(const struct fetch *fetch,
                           bool (*is_chosen)(const struct fetch *fetch, const char *name,
                                             const struct stat *status)) {
  DIR *folder = opendir(fetch->to);
  struct stat status;
  struct error ignored;
  for (const struct dirent *entry; folder && (entry = readdir(folder));) {
    if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !is_chosen(fetch, entry->d_name, &status))
      continue;
    cleanup_free char *path = xasprintf("%s/%s", fetch->to, entry->d_name);
    (void)!folder_remove(path, &ignored);
  }
  if (folder)
    closedir(folder);
}

static bool leftover_is_chosen(const struct fetch *fetch, const char *name,
                               const struct stat *status) {
  (void)fetch, (void)status;
  return is_leftover(name);
}

void folder_tidy(const struct fetch *fetch) {
  if (clock_monotonic_ms() < fetch->deadline_ms)
    entries_remove(fetch, leftover_is_chosen);
}

static bool release_is_chosen(const struct fetch *fetch, const char *name,
                              const struct stat *status) {
  char current[RELEASE_NAME_SIZE];
  if (!is_release_name(name) || !S_ISDIR(status->st_mode) || time(NULL) - status->st_mtime < KEEP_S)
    return false;
  current_read(fetch, current);
  return current[0] && !string_equal(name, current) &&
         !string_equal(name, cli_member(fetch->state, "previous"));
}

void folder_prune(const struct fetch *fetch) { entries_remove(fetch, release_is_chosen); }

/* Opening */

/* Two fetches into one folder take turns; the one that waited finds the work done. */
static bool lock_take(const struct fetch *fetch, int *ret_fd, struct error *error) {
  cleanup_free char *path = xasprintf("%s/.lock", fetch->to);
  cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    return error_set(error, "cannot write to %s: %s", fetch->to, strerror(errno));
  while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    if (clock_monotonic_ms() >= fetch->deadline_ms)
      return error_set(error, "another fetch into %s did not end within the budget", fetch->to);
    usleep(LOCK_POLL_US);
  }
  *ret_fd = fd;
  fd = -1;
  return true;
}

bool folder_has_release(const struct fetch *fetch, const char *name) {
  cleanup_free char *path = xasprintf("%s/%s", fetch->to, name);
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A channel entry belongs to the release's folder, so that it is always that of what current points
 * at. */
static void kept_entry_read(struct fetch *fetch) {
  struct kept *kept = &fetch->kept;
  cleanup_free char *path = xasprintf("%s/%s/entry.json", fetch->to, kept->name);
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  kept->has_entry = kept->name[0] && folder_has_release(fetch, kept->name) &&
                    json_parse_file(path, STATE_MAX, &kept->entry_json, &ignored) &&
                    channel_entry_parse(kept->entry_json, &kept->entry, &ignored);
  if (kept->has_entry &&
      !string_equal(digest_format(&kept->entry.release, text) + strlen("sha256:"), kept->name))
    kept->has_entry = false;
}

void kept_release(struct kept *kept) {
  channel_entry_release(&kept->entry);
  json_decref(kept->entry_json);
  *kept = (struct kept){0};
}

static void kept_read(struct fetch *fetch) {
  kept_release(&fetch->kept);
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  struct stat status;
  struct error ignored;
  fetch->kept.is_there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  current_read(fetch, fetch->kept.name);
  kept_entry_read(fetch);
  fetch->kept.is_believed =
      fetch->keys.n == 0 ||
      (fetch->kept.has_entry && entry_is_signed(fetch, &fetch->kept.entry, &ignored));
}

static void state_read(struct fetch *fetch) {
  cleanup_free char *path = xasprintf("%s/.fetch.json", fetch->to);
  cleanup_json json_t *state =
      NULL; /* the first fetch has none, and a damaged one is done without */
  struct error ignored;
  if (json_parse_file(path, STATE_MAX, &state, &ignored) && json_is_object(state))
    json_object_update(fetch->state, state);
}

bool folder_release_read(const struct fetch *fetch, const char *name, char **ret_bytes,
                         size_t *ret_size) {
  cleanup_free char *path = xasprintf("%s/%s/release.json", fetch->to, name), *bytes = NULL;
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  size_t size;
  if (!folder_has_release(fetch, name) ||
      !file_read(path, RELEASE_SIZE_MAX, &bytes, &size, &ignored))
    return false;
  struct digest digest = digest_of(bytes, size);
  if (!string_equal(digest_format(&digest, text) + strlen("sha256:"), name))
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
    return is_made && error_set(error, "cannot look at %s: %s", fetch->to, strerror(errno));
  if (!json_can_hold(fetch->absolute))
    return error_set(
        error,
        "%s lies at a path that is no UTF-8, which files of caches cannot name; fetch elsewhere",
        fetch->to);
  if (!lock_take(fetch, ret_lock, error))
    return false;
  kept_read(fetch); /* again: who had the lock may have changed it */
  state_read(fetch);
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

static bool move(const char *from, const char *to, struct error *error) {
  return rename(from, to) == 0 ||
         error_set(error, "cannot rename %s to %s: %s", from, to, strerror(errno));
}

/* syncfs waits as long as the disk likes, and cannot be interrupted: a child of this process waits
 * for it, this one no longer than the budget. The child keeps nothing open that somebody may wait
 * for. */
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
    return error_set(error, "the disk of %s did not take the new cache within the budget",
                     fetch->to);
  bool ok = read(done, &byte, 1) == 1;
  waitpid(child, NULL, 0);
  return ok || error_set(error, "cannot sync %s; is its disk full or broken?", fetch->to);
}

/* Puts a new folder in the place of an old one; the old one is then where the new one was. */
static bool folder_exchange(const char *new, const char *old, struct error *error) {
  if (rename(new, old) == 0 || renameat2(AT_FDCWD, new, AT_FDCWD, old, RENAME_EXCHANGE) == 0)
    return true;
  /* Some network file systems exchange nothing. */
  cleanup_free char *aside = xasprintf("%s.old", new);
  bool is_aside = rename(old, aside) == 0;
  if (is_aside && rename(new, old) == 0)
    return true;
  error_set(error, "cannot rename %s to %s: %s", new, old, strerror(errno));
  if (is_aside)
    (void)!rename(aside, old); /* what was there is better than nothing */
  return false;
}

/* Moves what is in the staging folder into the release's folder; all of it when that is not
 * there. */
static bool staging_move(const struct fetch *fetch, const char *name, const char *staging,
                         struct error *error) {
  cleanup_free char *final = xasprintf("%s/%s", fetch->to, name);
  struct error ignored;
  if (rename(staging, final) == 0)
    return true;
  if (errno ==
      ENOTDIR) { /* a link or a file; what is staged is whole, as that was not read as a release */
    bool is_replaced = folder_exchange(staging, final, error);
    (void)!folder_remove(staging, &ignored);
    return is_replaced;
  }
  if (errno != EEXIST && errno != ENOTEMPTY)
    return error_set(error, "cannot rename %s to %s: %s", staging, final, strerror(errno));
  DIR *folder = opendir(staging);
  bool ok = folder || error_set(error, "cannot read %s: %s", staging, strerror(errno));
  for (const struct dirent *entry; ok && folder && (entry = readdir(folder));) {
    cleanup_free char *from = xasprintf("%s/%s", staging, entry->d_name);
    cleanup_free char *to = xasprintf("%s/%s", final, entry->d_name);
    if (entry->d_name[0] != '.')
      ok = folder_exchange(from, to, error);
  }
  if (folder)
    closedir(folder);
  (void)!folder_remove(staging,
                       &ignored); /* what cannot be removed is tried again by the next fetch */
  return ok;
}

/* Points TO/current at `name`: a new link renamed over the old one, so that a reader sees one or
 * the other. */
static bool link_swap(const struct fetch *fetch, const char *name, struct error *error) {
  cleanup_free char *current = xasprintf("%s/current", fetch->to),
                    *temporary = temporary_path(fetch, "current");
  if (symlink(name, temporary) < 0 || rename(temporary, current) < 0) {
    int reason = errno;
    unlink(temporary);
    return error_set(error, "cannot point %s at %s: %s", current, name, strerror(reason));
  }
  return true;
}

/* The hour of a replaced folder begins now, however old it is. */
static void previous_note(struct fetch *fetch, const char *name) {
  const char *before = fetch->kept.name;
  if (!before[0] || string_equal(before, name))
    return;
  cleanup_free char *path = xasprintf("%s/%s", fetch->to, before);
  utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
  ALWAYS(json_object_set_new(fetch->state, "previous", json_string(before)) == 0);
}

bool folder_publish(struct fetch *fetch, const char *name, const char *staging,
                    struct error *error) {
  cleanup_free char *entry_path = xasprintf("%s/entry.json", staging);
  cleanup_free char *state_path = xasprintf("%s/.fetch.json", fetch->to);
  cleanup_free char *state_temporary = temporary_path(fetch, "fetch.json");
  bool is_current = string_equal(fetch->kept.name, name);
  previous_note(fetch, name);
  return json_write(entry_path, fetch->entry, error) &&
         json_write(state_temporary, fetch->state, error) && disk_sync(fetch, error) &&
         staging_move(fetch, name, staging, error) &&
         (is_current || link_swap(fetch, name, error)) && move(state_temporary, state_path, error);
}
