/* Confines foreign code in addition to its sandbox: it runs as another user than this program, and
 * each process and all that it starts in a new cgroup, which limits their memory and number and can
 * kill them all.
 *
 * Cgroups need a cgroup2 file system with the controllers memory and pids, and a subtree that this
 * program may write to: systemd's Delegate=, or a container with a cgroup namespace. Without them
 * cgroups_new reports why, and the caller continues without cgroups. With them this program moves
 * to the child "agent" of its cgroup, because a cgroup that contains processes cannot have children
 * with limits.
 *
 * Memory: custody is a plain value, which borrows its cgroups; a struct cgroups must outlive each
 * struct cgroup made from it.
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
 * /proc/self/mountinfo; owned by the caller. False: this process sees none. */
must_check bool cgroup_folder_find(const char *cgroup, const char *mountinfo, char **ret_folder,
                                   struct error *error);

struct cgroups;
/* To be called in the main thread before other threads start: moves this process. */
must_check bool cgroups_new(const struct cgroup_limits *limits, struct cgroups **ret_cgroups,
                            struct error *error);
void cgroups_free(struct cgroups *cgroups);

struct cgroup;
must_check bool cgroup_new(const struct cgroups *cgroups, struct cgroup **ret_cgroup,
                           struct error *error);
/* Moves the child into the cgroup, between fork and exec and before it becomes another user.
 * async-signal-safe. */
must_check bool cgroup_enter(const struct cgroup *cgroup);
/* Kills every process in it; does nothing before Linux 5.14. */
void cgroup_kill(const struct cgroup *cgroup);
/* A sentence about the limit that its processes have reached; NULL: none. A static text. */
const char *cgroup_overstepped(const struct cgroup *cgroup);
/* Kills the processes in it, waits a few seconds at most until it is empty, and removes it. NULL is
 * allowed. */
void cgroup_free(struct cgroup *cgroup);
DEFINE_CLEANUP(struct cgroup *, cleanup_cgroup_free, cgroup_free)
#define cleanup_cgroup cleanup_by(cleanup_cgroup_free)

#define CUSTODY_GROUPS_MAX 64

struct custody {
  bool has_user;
  uid_t uid;
  gid_t gid, groups[CUSTODY_GROUPS_MAX];
  int n_groups;
  const struct cgroups *cgroups; /* NULL: none */
};

/* Sets the user, which must not be root, and its groups. Only root can. */
must_check bool custody_set_user(struct custody *custody, const char *name, struct error *error);

/* Changes the user of a child between fork and exec, if one is set. async-signal-safe. */
must_check bool custody_become_user(const struct custody *custody);

/* Makes the user the owner of a file or folder. Does nothing where no user is set. */
must_check bool custody_give(const struct custody *custody, const char *path, struct error *error);

#endif
