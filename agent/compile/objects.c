/* Least recently used objects. An object's last access time is set when it is used, because a file
 * system may not keep it; its modification time stays that of the compile. Memory and threads: as
 * the header says. */
#include "agent/compile/objects.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/log.h"

struct object {
  char *path;
  uint64_t size;
  int64_t used_s;
};

struct objects {
  size_t n, capacity;
  struct object *all;
};

void object_touch(const char *object) {
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
  (void)utimensat(AT_FDCWD, object, times, 0);
}

static bool ends_in(const char *text, const char *suffix) {
  size_t length = strlen(text), end = strlen(suffix);
  return length > end && strcmp(text + length - end, suffix) == 0;
}

static bool is_object(const char *name) { return ends_in(name, ".so") || ends_in(name, ".co"); }

static void scratch_remove(const char *path) {
  struct error error;
  if (!folder_remove(path, &error))
    log_warning("compile: %s", error.message);
}

static void objects_list(const char *folder, int64_t before_s, struct objects *objects,
                         uint64_t *ret_bytes) {
  DIR *entries = opendir(folder);
  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    struct stat status;
    cleanup_free char *path = xasprintf("%s/%s", folder, entry->d_name);
    if (lstat(path, &status) < 0)
      continue;
    int64_t used_s = status.st_atime > status.st_mtime ? status.st_atime : status.st_mtime;
    if (S_ISDIR(status.st_mode) && ends_in(entry->d_name, ".scratch") && used_s < before_s)
      scratch_remove(path);
    if (!S_ISREG(status.st_mode) || !is_object(entry->d_name))
      continue;
    *ret_bytes += (uint64_t)status.st_size;
    GROW(objects->all, objects->n, objects->capacity);
    objects->all[objects->n++] = (struct object){TAKE(path), (uint64_t)status.st_size, used_s};
  }
  if (entries)
    closedir(entries);
}

static int by_use(const void *a, const void *b) {
  const struct object *left = a, *right = b;
  return (left->used_s > right->used_s) - (left->used_s < right->used_s);
}

void objects_prune(const char *folder, uint64_t bytes_max, int64_t recent_s) {
  struct objects objects = {0};
  uint64_t bytes = 0;
  int64_t before_s = (int64_t)time(NULL) - recent_s;
  size_t n = 0;
  objects_list(folder, before_s, &objects, &bytes);
  if (objects.n)
    qsort(objects.all, objects.n, sizeof *objects.all, by_use);
  for (; n < objects.n && bytes > bytes_max && objects.all[n].used_s < before_s; n++) {
    cleanup_free char *digest = xasprintf("%s" OBJECT_DIGEST_SUFFIX, objects.all[n].path);
    if (unlink(objects.all[n].path) < 0)
      continue;
    (void)unlink(digest);
    bytes -= objects.all[n].size;
  }
  if (n)
    log_info("compile: removed %zu compiled objects that were not used for longest", n);
  for (size_t i = 0; i < objects.n; i++)
    free(objects.all[i].path);
  free(objects.all);
}
