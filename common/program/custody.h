/* Whom what a stranger wrote runs as, and in which bounds, beside its sandbox: another user than
 * this program's, and a cgroup of its own for each process.
 *
 * Memory: a plain value, which borrows its cgroups. Threads: read-only once it is filled. */
#ifndef WAVETUNE_COMMON_PROGRAM_CUSTODY_H
#define WAVETUNE_COMMON_PROGRAM_CUSTODY_H

#include <sys/types.h>

#include "common/program/cgroup.h"

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
