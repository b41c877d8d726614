/* What confines foreign code besides its sandbox: another user than this program's, and a cgroup
 * for each process, with bounds on memory and on the number of processes that hold for all that it
 * starts, and an end that no process outlives.
 *
 * Cgroups need a cgroup2 file system with the controllers memory and pids, and a subtree that this
 * program may write to: systemd's Delegate=, or a container with a cgroup namespace. Where there is
 * none, cgroups_new reports why, and the caller continues without. Where there is one, this program
 * moves to the child "agent" of its cgroup, because a cgroup with processes of its own cannot bound
 * its children.
 *
 * Memory: custody is a plain value, which borrows its cgroups; those must outlive each cgroup.
 * Threads: custody is read-only once it is filled; a struct cgroup belongs to one thread at a
 * time. */
#ifndef WAVETUNE_COMMON_PROGRAM_CUSTODY_H
#define WAVETUNE_COMMON_PROGRAM_CUSTODY_H

#include <sys/types.h>

#include "common/base/error.h"

struct cgroup_limits {
  uint64_t memory_bytes_max;
  int64_t tasks_max; /* processes and threads */
};

/* The folder of this process's cgroup, from the texts of /proc/self/cgroup and
 * /proc/self/mountinfo; owned by the caller. False where this process sees none. */
must_check bool cgroup_folder_find(const char *cgroup, const char *mountinfo, char **ret_folder,
                                   struct error *error);

struct cgroups;
/* Main thread, before others are started: this process moves. */
must_check bool cgroups_new(const struct cgroup_limits *limits, struct cgroups **ret_cgroups,
                            struct error *error);
void cgroups_free(struct cgroups *cgroups);

struct cgroup;
must_check bool cgroup_new(const struct cgroups *cgroups, struct cgroup **ret_cgroup,
                           struct error *error);
/* In a child between fork and exec, before it becomes another user: moves it there.
 * async-signal-safe. */
must_check bool cgroup_enter(const struct cgroup *cgroup);
/* Ends every process in it, where the kernel can (5.14). */
void cgroup_kill(const struct cgroup *cgroup);
/* The limit that a process in it has reached: a static text, NULL for none. */
const char *cgroup_overstepped(const struct cgroup *cgroup);
/* Ends the processes in it, waits until it is empty, a few seconds at most, and removes it. NULL is
 * allowed. */
void cgroup_free(struct cgroup *cgroup);
DEFINE_CLEANUP(struct cgroup *, cleanup_cgroup_free, cgroup_free)
#define cleanup_cgroup __attribute__((cleanup(cleanup_cgroup_free)))

#define CUSTODY_GROUPS_MAX 64

struct custody {
  bool has_user;
  uid_t uid;
  gid_t gid, groups[CUSTODY_GROUPS_MAX];
  int n_groups;
  const struct cgroups *cgroups; /* NULL: none */
};

/* Only as root: a user that is not root, with its groups. */
must_check bool custody_set_user(struct custody *custody, const char *name, struct error *error);

/* In a child between fork and exec: becomes the user, if there is one. async-signal-safe. */
must_check bool custody_become_user(const struct custody *custody);

/* Lets the user have a file or folder of this program's; done where there is no user. */
must_check bool custody_give(const struct custody *custody, const char *path, struct error *error);

#endif
