/* Landlock by raw system calls (Debian 12's C library has no functions for it) and a seccomp filter
 * that libseccomp writes. Both are made in the parent; the child only hands them to the kernel.
 *
 * Memory and threads: see sandbox.h. */
#include "common/program/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Rights that came after the oldest headers this is built with: Linux 5.19, 6.2 and 6.10. */
#define RIGHT_REFER (1ULL << 13)
#define RIGHT_TRUNCATE (1ULL << 14)
#define RIGHT_IOCTL_DEV (1ULL << 15)
#define RIGHTS_BIND_AND_CONNECT_TCP 3ULL
#define SCOPES_ABSTRACT_SOCKETS_AND_SIGNALS 3ULL

#define RIGHTS_READ                                                                                \
  (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* Neither pipes, sockets, devices nor links, which whoever looks into the folder later would
 * follow; and nothing that is written is executed. */
#define RIGHTS_WRITE                                                                               \
  (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |    \
   LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |  \
   LANDLOCK_ACCESS_FS_MAKE_REG | RIGHT_REFER | RIGHT_TRUNCATE)
#define RIGHTS_DEVICE                                                                              \
  (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |    \
   RIGHT_IOCTL_DEV)
#define RIGHTS_OF_A_FILE                                                                           \
  (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |     \
   RIGHT_TRUNCATE | RIGHT_IOCTL_DEV)

/* struct landlock_ruleset_attr as of ABI 6; older kernels are given a prefix of it. */
struct ruleset_attributes {
  uint64_t handled_files, handled_net, scoped;
};

struct sandbox {
  int ruleset_fd;           /* -1: files are not confined */
  struct sock_fprog filter; /* len 0: none */
};

/* What $WAVETUNE_SANDBOX leaves; a name that is none takes nothing away. */
static enum sandbox_level level_allowed(void) {
  const char *name = getenv(SANDBOX_VARIABLE);
  enum sandbox_level level = SANDBOX_LANDLOCK;
  return name && sandbox_level_parse(name, &level) ? level : SANDBOX_LANDLOCK;
}

/* 0: the kernel has no Landlock, or it is not enabled. */
static int landlock_abi(void) {
  if (level_allowed() < SANDBOX_LANDLOCK)
    return 0;

  long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi > 0 ? (int)abi : 0;
}

static bool has_seccomp(void) {
  uint32_t action = SECCOMP_RET_ERRNO;
  return level_allowed() >= SANDBOX_SECCOMP &&
         syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static uint64_t rights_of(int abi) {
  return (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1 + (abi >= 2 ? RIGHT_REFER : 0) +
         (abi >= 3 ? RIGHT_TRUNCATE : 0) + (abi >= 5 ? RIGHT_IOCTL_DEV : 0);
}

static bool path_allow(int ruleset_fd, const char *path, uint64_t rights, struct error *error) {
  cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
  struct stat status;
  /* What this user does not reach needs no rule. */
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
    return true;
  if (fd < 0 || fstat(fd, &status) < 0)
    return error_set(error, "cannot let a sandbox see %s: %s", path, strerror(errno));
  struct landlock_path_beneath_attr rule = {
      .allowed_access = S_ISDIR(status.st_mode) ? rights : rights & RIGHTS_OF_A_FILE,
      .parent_fd = fd};
  if (syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
    return error_set(error, "cannot let a sandbox see %s: %s", path, strerror(errno));
  return true;
}

static bool ruleset_make(const struct sandbox_rules *rules, int abi, int *ret_fd,
                         struct error *error) {
  uint64_t handled = rights_of(abi);
  struct ruleset_attributes attributes = {
      .handled_files = handled,
      .handled_net = RIGHTS_BIND_AND_CONNECT_TCP,
      .scoped = SCOPES_ABSTRACT_SOCKETS_AND_SIGNALS,
  };
  size_t size = abi >= 6   ? sizeof attributes
                : abi >= 4 ? offsetof(struct ruleset_attributes, scoped)
                           : offsetof(struct ruleset_attributes, handled_net);
  cleanup_fd int fd = (int)syscall(SYS_landlock_create_ruleset, &attributes, size, 0);
  if (fd < 0)
    return error_set(error, "cannot make a Landlock rule set: %s", strerror(errno));
  for (size_t i = 0; rules->readable[i]; i++) {
    if (!path_allow(fd, rules->readable[i], handled & RIGHTS_READ, error))
      return false;
  }
  for (size_t i = 0; rules->writable[i]; i++) {
    if (!path_allow(fd, rules->writable[i], handled & RIGHTS_WRITE, error))
      return false;
  }
  for (size_t i = 0; rules->devices && rules->devices[i]; i++) {
    if (!path_allow(fd, rules->devices[i], handled & RIGHTS_DEVICE, error))
      return false;
  }
  /* Programs throw output away there. */
  if (!path_allow(fd, "/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE,
                  error))
    return false;
  *ret_fd = fd;
  fd = -1;
  return true;
}

/* Names, not numbers: not every machine has them all, and a call that it lacks needs no rule. */
static const char *const denied_calls[] = {
    /* the network */
    "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
    /* other processes; and out of the process group, by which whoever started this one ends it */
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    "setsid", "setpgid", "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl",
    "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
    /* file systems */
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at",
    "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd", "swapon", "swapoff",
    /* by path, which Landlock before Linux 6.2 does not see */
    "truncate", "truncate64",
    /* namespaces */
    "unshare", "setns",
    /* keyrings, and parts of the kernel that a compiler has no business with */
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "reboot", "syslog", "acct", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm", "lookup_dcookie",
    "vhangup"};

/* Of a process that is alone. What names a process or thread by number is looked at below. */
static const char *const alone_denied_calls[] = {
    /* other processes */
    "execve", "execveat", "fork", "vfork", "tkill", "pidfd_open", "pidfd_send_signal",
    "process_mrelease", "migrate_pages", "move_pages", "setpriority", "ioprio_set",
    /* files by path, which Landlock does not see */
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime",
    "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "inotify_init", "inotify_init1",
    "mq_notify", "mq_timedsend", "mq_timedreceive"};
/* The first argument is the process that gets a signal. */
static const char *const signal_calls[] = {"kill", "tgkill", "rt_sigqueueinfo",
                                           "rt_tgsigqueueinfo"};

static const uint64_t namespace_flags[] = {CLONE_NEWNS,    CLONE_NEWUTS, CLONE_NEWIPC,
                                           CLONE_NEWUSER,  CLONE_NEWPID, CLONE_NEWNET,
                                           CLONE_NEWCGROUP};
static const uint64_t denied_ioctls[] = {TIOCSTI, TIOCLINUX};

/* Who gets a signal when something can be read from a descriptor: before Linux 6.12 Landlock does
 * not see that it goes to another process, for which SIGIO is deadly. */
static const uint64_t alone_denied_fcntls[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};
static const uint64_t alone_denied_ioctls[] = {FIOSETOWN, SIOCSPGRP};

static int calls_deny(scmp_filter_ctx context, const char *const *names, size_t n) {
  int result = 0;
  for (size_t i = 0; i < n && result == 0; i++) {
    int number = seccomp_syscall_resolve_name(names[i]);
    if (number >= 0)
      result = seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0);
  }
  return result;
}

/* Denies a system call whose second argument is one of the values; its upper half is not looked at
 * by the kernel. */
static int commands_deny(scmp_filter_ctx context, int call, const uint64_t *values, size_t n) {
  int result = 0;
  for (size_t i = 0; i < n && result == 0; i++)
    result = seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), call, 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, values[i]));
  return result;
}

/* The filter is this process's own: it names it. */
static int filter_fill_alone(scmp_filter_ctx context) {
  uint32_t deny = SCMP_ACT_ERRNO(EPERM);
  int result = calls_deny(context, alone_denied_calls, ARRAY_LENGTH(alone_denied_calls));
  for (size_t i = 0; i < ARRAY_LENGTH(signal_calls) && result == 0; i++)
    result = seccomp_rule_add(context, deny, seccomp_syscall_resolve_name(signal_calls[i]), 1,
                              SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)getpid()));
  if (result == 0)
    result = commands_deny(context, SCMP_SYS(fcntl), alone_denied_fcntls,
                           ARRAY_LENGTH(alone_denied_fcntls));
  if (result == 0)
    result = commands_deny(context, SCMP_SYS(ioctl), alone_denied_ioctls,
                           ARRAY_LENGTH(alone_denied_ioctls));
  /* Threads, but no processes. */
  if (result == 0)
    result = seccomp_rule_add(context, deny, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  /* It dies with its parent. */
  return result == 0 ? seccomp_rule_add(context, deny, SCMP_SYS(prctl), 1,
                                        SCMP_A0(SCMP_CMP_EQ, PR_SET_PDEATHSIG))
                     : result;
}

static int filter_fill(scmp_filter_ctx context, bool is_alone) {
  uint32_t deny = SCMP_ACT_ERRNO(EPERM);
  int result = calls_deny(context, denied_calls, ARRAY_LENGTH(denied_calls));
  if (result == 0 && is_alone)
    result = filter_fill_alone(context);
  for (size_t i = 0; i < ARRAY_LENGTH(namespace_flags) && result == 0; i++)
    result = seccomp_rule_add(context, deny, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, namespace_flags[i], namespace_flags[i]));
  if (result == 0)
    result = commands_deny(context, SCMP_SYS(ioctl), denied_ioctls, ARRAY_LENGTH(denied_ioctls));
  /* The limits of other processes: those of the same user, such as the agent. */
  if (result == 0)
    result = seccomp_rule_add(context, deny, SCMP_SYS(prlimit64), 1, SCMP_A0(SCMP_CMP_NE, 0));
  /* All but asking which one there is. */
  if (result == 0)
    result =
        seccomp_rule_add(context, deny, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_NE, 0xffffffff));
  /* Its flags lie in memory, where no filter sees them; C libraries take clone when it is not
   * there. */
  return result == 0 ? seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0)
                     : result;
}

static bool filter_read(int fd, struct sock_fprog *ret_filter) {
  struct stat status;
  if (fstat(fd, &status) < 0 || status.st_size <= 0 ||
      (size_t)status.st_size % sizeof(struct sock_filter))
    return false;
  size_t size = (size_t)status.st_size;
  void *steps = xmalloc(size);
  if (pread(fd, steps, size, 0) != status.st_size) {
    free(steps);
    return false;
  }
  *ret_filter = (struct sock_fprog){.len = (unsigned short)(size / sizeof(struct sock_filter)),
                                    .filter = steps};
  return true;
}

static bool filter_make(bool is_alone, struct sock_fprog *ret_filter, struct error *error) {
  cleanup_fd int fd = memfd_create("wavetune-seccomp", MFD_CLOEXEC);
  scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
  int result = context && fd >= 0 ? filter_fill(context, is_alone) : -ENOMEM;
  if (result == 0)
    result = seccomp_export_bpf(context, fd);
  seccomp_release(context);
  if (result < 0 || !filter_read(fd, ret_filter))
    return error_set(error, "cannot make a seccomp filter: %s",
                     strerror(result < 0 ? -result : EIO));
  return true;
}

bool sandbox_new(const struct sandbox_rules *rules, struct sandbox **ret_sandbox,
                 struct error *error) {
  int abi = landlock_abi();
  cleanup_sandbox struct sandbox *sandbox = xcalloc(1, sizeof *sandbox);
  sandbox->ruleset_fd = -1;
  if ((abi && !ruleset_make(rules, abi, &sandbox->ruleset_fd, error)) ||
      (has_seccomp() && !filter_make(rules->is_alone, &sandbox->filter, error)))
    return false;
  *ret_sandbox = TAKE(sandbox);
  return true;
}

void sandbox_free(struct sandbox *sandbox) {
  if (sandbox->ruleset_fd >= 0)
    close(sandbox->ruleset_fd);
  free(sandbox->filter.filter);
  free(sandbox);
}

int sandbox_enter_files(const struct sandbox *sandbox) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return errno;
  bool is_in =
      sandbox->ruleset_fd < 0 || syscall(SYS_landlock_restrict_self, sandbox->ruleset_fd, 0) == 0;
  return is_in ? 0 : errno;
}

int sandbox_enter_calls(const struct sandbox *sandbox) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return errno;
  if (!sandbox->filter.len)
    return 0;
  long result =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &sandbox->filter);
  /* Above 0 it is a thread that has a filter of its own. */
  return result < 0 ? errno : result > 0 ? EBUSY : 0;
}

int sandbox_enter(const struct sandbox *sandbox) {
  int reason = sandbox_enter_files(sandbox);
  return reason ? reason : sandbox_enter_calls(sandbox);
}

static const char *const level_names[] = {
    [SANDBOX_NONE] = "none", [SANDBOX_SECCOMP] = "seccomp", [SANDBOX_LANDLOCK] = "landlock"};

enum sandbox_level sandbox_level(void) {
  if (!has_seccomp())
    return SANDBOX_NONE;
  return landlock_abi() ? SANDBOX_LANDLOCK : SANDBOX_SECCOMP;
}

const char *sandbox_level_name(enum sandbox_level level) { return level_names[level]; }

bool sandbox_level_parse(const char *name, enum sandbox_level *ret_level) {
  for (size_t i = 0; i < ARRAY_LENGTH(level_names); i++) {
    if (string_equal(name, level_names[i])) {
      *ret_level = (enum sandbox_level)i;
      return true;
    }
  }
  return false;
}

void capabilities_drop(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
  syscall(SYS_capset, &header, none);
}

bool sandbox_confines_files(void) { return landlock_abi() > 0; }

const char *sandbox_kind(void) {
  static const char *const kinds[][2] = {
      {"none", "seccomp"},
      {"landlock 1", "landlock 1, seccomp"},
      {"landlock 2", "landlock 2, seccomp"},
      {"landlock 3", "landlock 3, seccomp"},
      {"landlock 4", "landlock 4, seccomp"},
      {"landlock 5", "landlock 5, seccomp"},
      {"landlock 6", "landlock 6, seccomp"},
      {"landlock 7", "landlock 7, seccomp"},
      {"landlock 8 or later", "landlock 8 or later, seccomp"},
  };
  size_t abi = (size_t)landlock_abi();
  return kinds[abi < ARRAY_LENGTH(kinds) ? abi : ARRAY_LENGTH(kinds) - 1][has_seccomp()];
}
