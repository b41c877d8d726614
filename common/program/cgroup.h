/* Cgroups (v2) of their own for child processes, under this program's own: bounds on memory and on
 * processes that hold for all that a child starts, and an end that nothing outlives.
 *
 * Wanted: a cgroup2 file system with the controllers memory and pids, and a subtree that this
 * program may write to: systemd's Delegate=, or a container with a cgroup namespace. Without,
 * cgroups_new says why, and the caller goes on without. With it this program moves to the child
 * "agent" of its cgroup, because one with processes of its own cannot bound its children; it makes
 * a child for each process that it starts.
 *
 * Memory: cgroups must outlive its cgroups. Threads: any; a struct cgroup belongs to one at a
 * time. */
#ifndef WAVETUNE_COMMON_PROGRAM_CGROUP_H
#define WAVETUNE_COMMON_PROGRAM_CGROUP_H

#include "common/base/error.h"

struct cgroup_limits {
  uint64_t memory_bytes_max;
  int64_t tasks_max; /* processes and threads */
};

/* The folder of this process's cgroup, from the texts of /proc/self/cgroup and
 * /proc/self/mountinfo; owned by the caller. False where there is none that this process sees. */
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
/* What in it was refused so far: a static text, NULL for nothing. */
const char *cgroup_overstepped(const struct cgroup *cgroup);
/* Ends what is in it, waits until it is empty, a few seconds at most, and removes it. NULL is
 * allowed. */
void cgroup_free(struct cgroup *cgroup);
DEFINE_CLEANUP(struct cgroup *, cleanup_cgroup_free, cgroup_free)
#define cleanup_cgroup __attribute__((cleanup(cleanup_cgroup_free)))

#endif
