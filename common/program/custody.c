/* Child processes of another user, and cgroups: folders below /sys/fs/cgroup with files of limits
 * and counters. */
#include "common/program/custody.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>

#include "common/base/file.h"
#include "common/base/log.h"

#define FILE_MAX ((size_t)1 << 20)
#define EMPTY_MS 5000
#define LEAF_ATTEMPTS 1000
#define AGENT_LEAF "agent"
#define USER_TASKS_MAX 4096 /* processes and threads of all that run as the user */

bool custody_set_user(struct custody *custody, const char *name, struct error *error) {
  const struct passwd *found = getpwnam(name);
  if (geteuid() != 0)
    return error_set(error, "workers can run as another user only if the agent is root");
  if (!found || found->pw_uid == 0)
    return error_set(error, "there is no user \"%.40s\" that is not root", name);

  custody->uid = found->pw_uid;
  custody->gid = found->pw_gid;
  custody->n_groups = CUSTODY_GROUPS_MAX;
  if (getgrouplist(name, custody->gid, custody->groups, &custody->n_groups) < 0)
    return error_set(error, "the user %s is in more than %d groups", name, CUSTODY_GROUPS_MAX);

  custody->has_user = true;
  return true;
}

/* By system calls: the functions of the C library would signal the parent's threads, which the
 * child does not have. */
bool custody_become_user(const struct custody *custody) {
  if (!custody->has_user)
    return true;
  setrlimit(RLIMIT_NPROC, &(struct rlimit){USER_TASKS_MAX, USER_TASKS_MAX});
  return syscall(SYS_setgroups, custody->n_groups, custody->groups) == 0 &&
         syscall(SYS_setresgid, custody->gid, custody->gid, custody->gid) == 0 &&
         syscall(SYS_setresuid, custody->uid, custody->uid, custody->uid) == 0;
}

bool custody_give(const struct custody *custody, const char *path, struct error *error) {
  return !custody->has_user || lchown(path, custody->uid, custody->gid) == 0 ||
         error_set(error, "cannot give %s to the user of workers: %s", path, strerror(errno));
}

struct cgroups {
  char *folder;
  struct cgroup_limits limits;
  _Atomic uint64_t made; /* the number of cgroups so far, which is in their names */
};

struct cgroup {
  char *folder;
  int procs_fd;
};

/* "/system.slice/x.service" of the line "0::/system.slice/x.service"; NULL: there is none. The
 * caller's. */
static char *own_path(const char *cgroup) {
  for (const char *line = cgroup; *line; line += strcspn(line, "\n"), line += *line == '\n')
    if (string_starts(line, "0::/"))
      return xstrndup(line + 3, strcspn(line + 3, "\n"));
  return NULL;
}

bool cgroup_folder_find(const char *cgroup, const char *mountinfo, char **ret_folder,
                        struct error *error) {
  cleanup_free char *path = own_path(cgroup);
  if (!path)
    return error_set(error, "this machine has no cgroup v2");
  if (strstr(path, "/.."))
    return error_set(error, "this process is in a cgroup outside of its cgroup namespace");

  /* "36 35 0:30 ROOT PLACE rw,nosuid … - cgroup2 cgroup2 rw": the folder ROOT of the file system is
   * mounted at PLACE. */
  for (const char *line = mountinfo; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    char root[PATH_MAX], place[PATH_MAX];
    const char *type = memmem(line, strcspn(line, "\n"), " - ", 3);
    if (!type || !string_starts(type + 3, "cgroup2 ") ||
        sscanf(line, "%*s %*s %*s %4095s %4095s", root, place) != 2)
      continue;

    size_t length = string_equal(root, "/") ? 0 : strlen(root);
    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
      continue;

    const char *rest = string_equal(path + length, "/") ? "" : path + length;
    *ret_folder = xasprintf("%s%s", place, rest);
    return true;
  }

  return error_set(error, "the cgroup %s is not mounted here", path);
}

static bool value_write(const char *folder, const char *file, const char *value) {
  cleanup_free char *path = xasprintf("%s/%s", folder, file);
  cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
  return fd >= 0 && write(fd, value, strlen(value)) >= 0;
}

/* Whether a list of controllers contains this one. */
static bool has_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at += length)
    if ((at == text || at[-1] == ' ') && strchr(" \n", at[length]))
      return true;
  return false;
}

static bool is_marked(const char *folder, const char *attribute) {
  char value[2];
  return getxattr(folder, attribute, value, sizeof value) == 1 && value[0] == '1';
}

static bool folder_of_process(char **ret_folder, struct error *error) {
  cleanup_free char *cgroup = NULL, *mountinfo = NULL, *folder = NULL;
  size_t size;
  if (!file_read("/proc/self/cgroup", FILE_MAX, &cgroup, &size, error) ||
      !file_read("/proc/self/mountinfo", FILE_MAX, &mountinfo, &size, error) ||
      !cgroup_folder_find(cgroup, mountinfo, &folder, error))
    return false;

  /* Root can write to every cgroup, also to those that systemd manages; another user only to those
   * that were delegated to it. */
  cleanup_free char *own = own_path(cgroup);
  if (geteuid() == 0 && !string_equal(own, "/") && !is_marked(folder, "user.delegate") &&
      !is_marked(folder, "trusted.delegate"))
    return error_set(error,
                     "the cgroup %s is not delegated; in a systemd unit, set Delegate=memory pids",
                     folder);

  *ret_folder = TAKE(folder);
  return true;
}

bool cgroups_new(const struct cgroup_limits *limits, struct cgroups **ret_cgroups,
                 struct error *error) {
  char pid[32];
  cleanup_free char *folder = NULL, *controllers = NULL;
  size_t size;
  if (!folder_of_process(&folder, error))
    return false;

  cleanup_free char *list = xasprintf("%s/cgroup.controllers", folder),
                    *own = xasprintf("%s/" AGENT_LEAF, folder);
  if (!file_read(list, FILE_MAX, &controllers, &size, error) || !has_word(controllers, "memory") ||
      !has_word(controllers, "pids"))
    return error_set(
        error,
        "%s lacks the controller memory or pids; in a systemd unit, set Delegate=memory pids",
        folder);
  snprintf(pid, sizeof pid, "%d", (int)getpid());

  /* A killed agent may have left cgroups. One that is in use cannot be removed. */
  for (int i = 0; i < LEAF_ATTEMPTS; i++) {
    cleanup_free char *leaf = xasprintf("%s/child-%d", folder, i);
    if (rmdir(leaf) < 0 && errno == ENOENT && i > 64)
      break;
  }

  bool is_moved =
      (mkdir(own, 0755) == 0 || errno == EEXIST) && value_write(own, "cgroup.procs", pid);
  if (!is_moved || !value_write(folder, "cgroup.subtree_control", "+memory +pids")) {
    int reason = errno;
    if (is_moved && !value_write(folder, "cgroup.procs", pid))
      log_warning("cgroup: this process stays in %s: %s", own, strerror(errno));
    (void)rmdir(own);
    return error_set(error, "the cgroup %s cannot have children with limits: %s%s", folder,
                     strerror(reason), reason == EBUSY ? "; another process is in it" : "");
  }

  struct cgroups *cgroups = xcalloc(1, sizeof *cgroups);
  cgroups->folder = TAKE(folder);
  cgroups->limits = *limits;
  *ret_cgroups = cgroups;
  return true;
}

void cgroups_free(struct cgroups *cgroups) {
  free(cgroups->folder);
  free(cgroups);
}

static bool number_write(const struct cgroup *cgroup, const char *file, uint64_t number) {
  cleanup_free char *text = xasprintf("%llu", (unsigned long long)number);
  return value_write(cgroup->folder, file, text);
}

bool cgroup_new(const struct cgroups *shared, struct cgroup **ret_cgroup, struct error *error) {
  struct cgroups *cgroups = (struct cgroups *)(uintptr_t)shared; /* only its counter changes */
  struct cgroup *cgroup = xcalloc(1, sizeof *cgroup);
  int made = -1;

  for (int i = 0; i < LEAF_ATTEMPTS && made < 0; i++) {
    free(cgroup->folder);
    cgroup->folder = xasprintf("%s/child-%llu", cgroups->folder,
                               (unsigned long long)atomic_fetch_add(&cgroups->made, 1));
    made = mkdir(cgroup->folder, 0755);
    if (made < 0 && errno != EEXIST)
      break;
  }

  cleanup_free char *procs = xasprintf("%s/cgroup.procs", cgroup->folder);
  cgroup->procs_fd = -1;
  if (made == 0) {
    /* A machine without swap lacks the first of these files, Linux before 4.19 the second. */
    (void)number_write(cgroup, "memory.swap.max", 0);
    (void)number_write(cgroup, "memory.oom.group", 1);
    if (number_write(cgroup, "memory.max", cgroups->limits.memory_bytes_max) &&
        number_write(cgroup, "pids.max", (uint64_t)cgroups->limits.tasks_max))
      cgroup->procs_fd = open(procs, O_WRONLY | O_CLOEXEC);
  }

  if (cgroup->procs_fd < 0) {
    error_set(error, "cannot make the cgroup %s: %s", cgroup->folder, strerror(errno));
    if (made == 0)
      (void)rmdir(cgroup->folder);
    free(cgroup->folder);
    free(cgroup);
    return false;
  }

  *ret_cgroup = cgroup;
  return true;
}

bool cgroup_enter(const struct cgroup *cgroup) { return write(cgroup->procs_fd, "0", 1) == 1; }

void cgroup_kill(const struct cgroup *cgroup) { (void)number_write(cgroup, "cgroup.kill", 1); }

/* The number behind `name` in a file of "name number" lines. */
static long long event_count(const struct cgroup *cgroup, const char *file, const char *name) {
  cleanup_free char *path = xasprintf("%s/%s", cgroup->folder, file), *text = NULL;
  size_t size;
  struct error ignored;
  if (!file_read(path, FILE_MAX, &text, &size, &ignored))
    return 0;

  const char *at = string_starts(text, name) ? text : strstr(text, name);
  return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

const char *cgroup_overstepped(const struct cgroup *cgroup) {
  if (event_count(cgroup, "memory.events", "oom_kill ") > 0)
    return "it took more memory than --worker-memory-mb";
  return event_count(cgroup, "pids.events", "max ") > 0
             ? "it tried to start more processes and threads than --worker-pids"
             : NULL;
}

void cgroup_free(struct cgroup *cgroup) {
  if (!cgroup)
    return;

  int64_t until_ms = clock_monotonic_ms() + EMPTY_MS;
  close(cgroup->procs_fd);
  cgroup_kill(cgroup);
  while (rmdir(cgroup->folder) < 0 && errno == EBUSY && clock_monotonic_ms() < until_ms)
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);

  if (access(cgroup->folder, F_OK) == 0)
    log_warning("cgroup: %s cannot be removed: a process in it does not end", cgroup->folder);
  free(cgroup->folder);
  free(cgroup);
}
