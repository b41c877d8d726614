/* Which processes on a GPU are this agent's own: workers are kept, each with a context of its own.
 * Memory: none kept. Threads: any. */
#include "agent/device/gpu.h"

#include <dirent.h>

#define STAT_MAX 512
#define NAME_MAX_LENGTH 64

/* Name and parent of a process; false when it is not there. The name stands in brackets and may
 * hold some. */
static bool process_read(int64_t pid, char name[NAME_MAX_LENGTH], int *ret_parent) {
  char path[64], line[STAT_MAX];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  cleanup_file FILE *file = fopen(path, "re");
  if (!file || !fgets(line, sizeof line, file))
    return false;
  char *begin = strchr(line, '('), *end = strrchr(line, ')');
  if (!begin || !end || end - begin >= NAME_MAX_LENGTH ||
      sscanf(end + 1, " %*c %d", ret_parent) != 1)
    return false;
  *end = '\0';
  snprintf(name, NAME_MAX_LENGTH, "%s", begin + 1);
  return true;
}

static bool is_sibling(int64_t pid) {
  char name[NAME_MAX_LENGTH], own_name[NAME_MAX_LENGTH];
  int parent, own_parent;
  return pid != getpid() && process_read(pid, name, &parent) &&
         process_read(getpid(), own_name, &own_parent) && parent == own_parent &&
         string_equal(name, own_name);
}

bool gpu_process_is_own(int64_t pid) { return pid == getpid() || is_sibling(pid); }

size_t gpu_process_siblings(void) {
  DIR *entries = opendir("/proc");
  struct dirent *entry;
  size_t n = 0;
  while (entries && (entry = readdir(entries)))
    n += entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_sibling(atoll(entry->d_name));
  if (entries)
    closedir(entries);
  return n;
}
