/* Landlock by raw system calls (Debian 12's C library has no functions for it) and a seccomp filter
 * that libseccomp writes. Both are made in the parent; the child only passes them to the kernel. */
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

/* Rights that are newer than the oldest supported headers: Linux 5.19, 6.2 and 6.10. */
#define RIGHT_REFER (1ULL << 13)
#define RIGHT_TRUNCATE (1ULL << 14)
#define RIGHT_IOCTL_DEV (1ULL << 15)
#define RIGHTS_BIND_AND_CONNECT_TCP 3ULL
#define SCOPES_ABSTRACT_SOCKETS_AND_SIGNALS 3ULL

#define RIGHTS_READ                                                                                \
  (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* Without the rights to make pipes, sockets, devices and links, which a later reader of the folder
 * would follow, and to execute what was written. */
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

/* struct landlock_ruleset_attr of ABI 6; older kernels get a prefix of it. */
struct ruleset_attributes {
  uint64_t handled_files, handled_net, scoped;
};

struct sandbox {
  int ruleset_fd;           /* -1: files are not confined */
  struct sock_fprog filter; /* len 0: none */
};

/* What $WAVETUNE_SANDBOX permits; an unknown name permits all. */
static enum sandbox_level level_allowed(void) {
  const char *name = getenv(SANDBOX_VARIABLE);
  enum sandbox_level level = SANDBOX_LANDLOCK;
  return name && sandbox_level_parse(name, &level) ? level : SANDBOX_LANDLOCK;
}

/* 0: the kernel has no Landlock, or it is not enabled. */
static int landlock_abi(void) {
  long abi = level_allowed() < SANDBOX_LANDLOCK
                 ? 0
                 : syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi > 0 ? (int)abi : 0;
}

static bool has_seccomp(void) {
  uint32_t action = SECCOMP_RET_ERRNO;
  return level_allowed() >= SANDBOX_SECCOMP &&
         syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* Adds a rule for each path of a NULL-terminated list. */
static bool paths_allow(int ruleset_fd, const char *const *paths, uint64_t rights,
                        struct error *error) {
  for (; *paths; paths++) {
    cleanup_fd int fd = open(*paths, O_PATH | O_CLOEXEC);
    struct stat status;
    /* A path that this user cannot reach needs no rule. */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
      continue;

    bool is_open = fd >= 0 && fstat(fd, &status) == 0;
    struct landlock_path_beneath_attr rule = {
        .allowed_access = is_open && S_ISDIR(status.st_mode) ? rights : rights & RIGHTS_OF_A_FILE,
        .parent_fd = fd};
    if (!is_open ||
        syscall(__NR_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
      return error_set(error, "cannot let a sandbox see %s: %s", *paths, strerror(errno));
  }

  return true;
}

static bool ruleset_make(const struct sandbox_rules *rules, int abi, int *ret_fd,
                         struct error *error) {
  static const char *const none[] = {NULL}, *const null_device[] = {"/dev/null", NULL};
  uint64_t handled = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1 + (abi >= 2 ? RIGHT_REFER : 0) +
                     (abi >= 3 ? RIGHT_TRUNCATE : 0) + (abi >= 5 ? RIGHT_IOCTL_DEV : 0);
  struct ruleset_attributes attributes = {
      .handled_files = handled,
      .handled_net = RIGHTS_BIND_AND_CONNECT_TCP,
      .scoped = SCOPES_ABSTRACT_SOCKETS_AND_SIGNALS,
  };
  size_t size = abi >= 6   ? sizeof attributes
                : abi >= 4 ? offsetof(struct ruleset_attributes, scoped)
                           : offsetof(struct ruleset_attributes, handled_net);
  cleanup_fd int fd = (int)syscall(__NR_landlock_create_ruleset, &attributes, size, 0);
  if (fd < 0)
    return error_set(error, "cannot make a Landlock rule set: %s", strerror(errno));

  /* Programs use /dev/null to discard output. */
  if (!paths_allow(fd, rules->readable, handled & RIGHTS_READ, error) ||
      !paths_allow(fd, rules->writable, handled & RIGHTS_WRITE, error) ||
      !paths_allow(fd, rules->devices ? rules->devices : none, handled & RIGHTS_DEVICE, error) ||
      !paths_allow(fd, null_device, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE,
                   error))
    return false;

  *ret_fd = fd;
  fd = -1;
  return true;
}

/* By name: no architecture has all of them, and a call that does not exist needs no rule. */
static const char *const denied_calls[] = {
    /* the network */
    "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4",
    /* other processes; and leaving the process group, which the parent kills to end this process */
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    "setsid", "setpgid", "setpriority", "ioprio_set", "shmget", "shmat", "shmctl", "semget",
    "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
    /* file systems */
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at",
    "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd", "swapon", "swapoff",
    /* by path, which Landlock before Linux 6.2 does not see */
    "truncate", "truncate64",
    /* namespaces */
    "unshare", "setns",
    /* keyrings, and parts of the kernel that no compiler needs */
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup",
    "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "reboot", "syslog", "acct", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm", "lookup_dcookie",
    "vhangup"};

/* Denied in addition if is_alone, like alone_rules. */
static const char *const alone_denied_calls[] = {
    /* other processes */
    "execve", "execveat", "fork", "vfork", "tkill", "pidfd_open", "pidfd_send_signal",
    "process_mrelease", "migrate_pages", "move_pages",
    /* files by path, which Landlock does not see */
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime",
    "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "inotify_init", "inotify_init1",
    "mq_notify", "mq_timedsend", "mq_timedreceive"};
/* Denies a call if its argument, or some of its bits, has a value. HALF is the mask for arguments
 * of 32 bits, of which the kernel ignores the upper half. */
struct call_rule {
  const char *call;
  struct scmp_arg_cmp argument;
};
#define IS(of_arg, mask, value)                                                                    \
  {.arg = of_arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value}
#define IS_NOT(of_arg, value) {.arg = of_arg, .op = SCMP_CMP_NE, .datum_a = value}
#define HALF 0xffffffffu

static const struct call_rule rules_of_all[] = {
    {"clone", IS(0, CLONE_NEWNS, CLONE_NEWNS)},
    {"clone", IS(0, CLONE_NEWUTS, CLONE_NEWUTS)},
    {"clone", IS(0, CLONE_NEWIPC, CLONE_NEWIPC)},
    {"clone", IS(0, CLONE_NEWUSER, CLONE_NEWUSER)},
    {"clone", IS(0, CLONE_NEWPID, CLONE_NEWPID)},
    {"clone", IS(0, CLONE_NEWNET, CLONE_NEWNET)},
    {"clone", IS(0, CLONE_NEWCGROUP, CLONE_NEWCGROUP)},
    {"ioctl", IS(1, HALF, TIOCSTI)},
    {"ioctl", IS(1, HALF, TIOCLINUX)},
    /* The limits of other processes: those of the same user, such as the agent. */
    {"prlimit64", IS_NOT(0, 0)},
    /* The scheduling of any thread but the calling one: no filter can tell a thread of this process
     * from another process. */
    {"sched_setscheduler", IS_NOT(0, 0)},
    {"sched_setparam", IS_NOT(0, 0)},
    {"sched_setattr", IS_NOT(0, 0)},
    /* All but the query. */
    {"personality", IS_NOT(0, HALF)},
};

/* With is_alone: F_SETOWN and the like choose the process that gets a signal when a descriptor can
 * be read. Before Linux 6.12 Landlock allows any process of the user, which SIGIO would kill. */
static const struct call_rule alone_rules[] = {
    {"fcntl", IS(1, HALF, F_SETOWN)},
    {"fcntl", IS(1, HALF, F_SETOWN_EX)},
    {"fcntl", IS(1, HALF, F_SETSIG)},
    {"ioctl", IS(1, HALF, FIOSETOWN)},
    {"ioctl", IS(1, HALF, SIOCSPGRP)},
    /* Threads, but no processes. */
    {"clone", IS(0, CLONE_THREAD, 0)},
    /* It must die with its parent. */
    {"prctl", {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = PR_SET_PDEATHSIG}},
};

/* Denies calls, whatever their arguments. */
static int calls_deny(scmp_filter_ctx context, const char *const *names, size_t n) {
  int result = 0;
  for (size_t i = 0; i < n && result == 0; i++) {
    int number = seccomp_syscall_resolve_name(names[i]);
    if (number >= 0)
      result = seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0);
  }
  return result;
}

static int rules_add(scmp_filter_ctx context, const struct call_rule *rules, size_t n) {
  int result = 0;
  for (size_t i = 0; i < n && result == 0; i++)
    result =
        seccomp_rule_add_array(context, SCMP_ACT_ERRNO(EPERM),
                               seccomp_syscall_resolve_name(rules[i].call), 1, &rules[i].argument);
  return result;
}

/* sched_setaffinity of another thread is answered with success and does nothing: pthread_create
 * fails where the CPUs in its attributes cannot be set, and ROCr and OpenMP start threads so. */
static int affinity_ignore(scmp_filter_ctx context) {
  const struct scmp_arg_cmp other = IS_NOT(0, 0);
  return seccomp_rule_add_array(context, SCMP_ACT_ERRNO(0), SCMP_SYS(sched_setaffinity), 1, &other);
}

static int filter_fill(scmp_filter_ctx context, bool is_alone) {
  /* With is_alone the process that makes the filter is the one that enters it: the filter has its
   * id. */
  const scmp_datum_t self = (scmp_datum_t)getpid();
  const struct call_rule signal_rules[] = {{"kill", IS_NOT(0, self)},
                                           {"tgkill", IS_NOT(0, self)},
                                           {"rt_sigqueueinfo", IS_NOT(0, self)},
                                           {"rt_tgsigqueueinfo", IS_NOT(0, self)}};
  int result = calls_deny(context, denied_calls, ARRAY_LENGTH(denied_calls));
  if (result == 0)
    result = rules_add(context, rules_of_all, ARRAY_LENGTH(rules_of_all));
  if (result == 0)
    result = affinity_ignore(context);
  if (result == 0 && is_alone)
    result = calls_deny(context, alone_denied_calls, ARRAY_LENGTH(alone_denied_calls));
  if (result == 0 && is_alone)
    result = rules_add(context, alone_rules, ARRAY_LENGTH(alone_rules));
  if (result == 0 && is_alone)
    result = rules_add(context, signal_rules, ARRAY_LENGTH(signal_rules));

  /* clone3 has its flags in memory, which no filter sees; C libraries use clone where it is
   * missing. */
  return result == 0 ? seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0)
                     : result;
}

static bool filter_make(bool is_alone, struct sock_fprog *ret_filter, struct error *error) {
  cleanup_fd int fd = memfd_create("wavetune-seccomp", MFD_CLOEXEC);
  scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
  int result = context && fd >= 0 ? filter_fill(context, is_alone) : -ENOMEM;
  if (result == 0)
    result = seccomp_export_bpf(context, fd);
  seccomp_release(context);
  if (result < 0)
    return error_set(error, "cannot make a seccomp filter: %s", strerror(-result));

  struct stat status = {0};
  size_t size = fstat(fd, &status) == 0 ? (size_t)status.st_size : 0;
  cleanup_free void *steps = xmalloc(size + 1);
  if (size == 0 || size % sizeof(struct sock_filter) || pread(fd, steps, size, 0) != status.st_size)
    return error_set(error, "cannot make a seccomp filter: %s", strerror(EIO));

  *ret_filter = (struct sock_fprog){.len = (unsigned short)(size / sizeof(struct sock_filter)),
                                    .filter = TAKE(steps)};

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
  if (sandbox->ruleset_fd >= 0 && syscall(__NR_landlock_restrict_self, sandbox->ruleset_fd, 0) < 0)
    return errno;
  return 0;
}

int sandbox_enter_calls(const struct sandbox *sandbox) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return errno;
  if (!sandbox->filter.len)
    return 0;
  long result =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &sandbox->filter);
  /* A result above 0 is the id of a thread that has another filter. */
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
  for (size_t i = 0; i < ARRAY_LENGTH(level_names); i++)
    if (string_equal(name, level_names[i])) {
      *ret_level = (enum sandbox_level)i;
      return true;
    }
  return false;
}

void capabilities_drop(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
  syscall(SYS_capset, &header, none);
}

void process_hide(void) {
  if (!string_equal(getenv("WAVETUNE_DUMPABLE"), "1"))
    prctl(PR_SET_DUMPABLE, 0);
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
