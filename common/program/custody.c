/* Another user for child processes. Memory and threads: see the header. */
#include "common/program/custody.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define USER_TASKS_MAX 4096 /* processes and threads of all that run as the user */

bool custody_set_user(struct custody *custody, const char *name, struct error *error) {
  const struct passwd *found = getpwnam(name);
  if (geteuid() != 0)
    return error_set(error, "workers can be another user's only where the agent is root");
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

/* By system calls: the C library's functions would speak to threads that this process has not. */
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
