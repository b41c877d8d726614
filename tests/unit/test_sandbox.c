/* The sandbox of compilers and disassemblers, and commands that run in it. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define NEEDS_LANDLOCK                                                                             \
  do {                                                                                             \
    if (!sandbox_confines_files())                                                                 \
      cr_skip("this kernel has no Landlock");                                                      \
  } while (0)

static const char *const system_folders[] = {
    "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/does/not/exist", NULL};

struct setting {
  char folder[64]; /* writable in the sandbox */
  struct sandbox *sandbox;
};

static struct setting setting_make(void) {
  struct setting setting = {.folder = "/tmp/wavetune-test-XXXXXX"};
  struct error error;
  cr_assert_not_null(mkdtemp(setting.folder));
  struct sandbox_rules rules = {system_folders, (const char *const[]){setting.folder, NULL}};
  cr_assert(sandbox_new(&rules, &setting.sandbox, &error), "%s", error.message);
  return setting;
}

static void setting_end(struct setting *setting) {
  struct error error;
  sandbox_free(setting->sandbox);
  cr_expect(folder_remove(setting->folder, &error), "%s", error.message);
}

static bool shell_run(const struct setting *setting, const char *script,
                      struct command_result *result, struct error *error) {
  cleanup_free char *text = xstrdup(script);
  char *const arguments[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, text, NULL};
  char *const environment[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"LC_ALL=C"}, NULL};
  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .folder = setting->folder,
                            .timeout_ms = 60000,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = 1u << 30,
                            .file_bytes_max = 1u << 20,
                            .output_max = 1000,
                            .sandbox = setting->sandbox,
                            .stop_fd = -1};
  return command_run(&command, result, error);
}

/* What a script in the sandbox prints; owned by the caller. */
static char *shell_output(const struct setting *setting, const char *script) {
  struct command_result result;
  struct error error;
  cr_assert(shell_run(setting, script, &result, &error), "%s", error.message);
  return result.output;
}

Test(sandbox, a_file_outside_cannot_be_read) {
  NEEDS_LANDLOCK;
  struct setting setting = setting_make();
  cleanup_free char *output =
      shell_output(&setting, "cat /etc/passwd; ls /etc; cat /proc/self/environ");
  cr_expect_null(strstr(output, "root"), "%s", output);
  cr_expect_not_null(strstr(output, "/etc/passwd: Permission denied"), "%s", output);
  cr_expect_not_null(strstr(output, "'/etc': Permission denied"), "%s", output);
  cr_expect_not_null(strstr(output, "/proc/self/environ: Permission denied"), "%s", output);
  setting_end(&setting);
}

Test(sandbox, a_link_does_not_lead_outside) {
  NEEDS_LANDLOCK;
  struct setting setting = setting_make();
  cleanup_free char *link = xasprintf("%s/link", setting.folder);
  cr_assert_eq(symlink("/etc/passwd", link), 0);
  cleanup_free char *output =
      shell_output(&setting, "cat link; ln -s /etc/passwd soft; ln /etc/passwd hard; ls");
  cr_expect_null(strstr(output, "root:"), "%s", output);
  cr_expect_not_null(strstr(output, "link: Permission denied"), "%s", output);
  cr_expect_null(strstr(output, "\nsoft\n"), "a link for whoever looks into the folder later: %s",
                 output);
  setting_end(&setting);
}

Test(sandbox, programs_of_the_system_can_be_run) {
  struct setting setting = setting_make();
  cleanup_free char *output =
      shell_output(&setting, "head -c 4 /usr/bin/env | tail -c 3; ls / >/dev/null 2>&1; "
                             "env | grep LC_ALL");
  cr_expect_str_eq(output, "ELFLC_ALL=C\n");
  setting_end(&setting);
}

Test(sandbox, only_the_writable_folder_is_written) {
  NEEDS_LANDLOCK;
  struct setting setting = setting_make();
  char other[] = "/tmp/wavetune-test-XXXXXX";
  cr_assert_not_null(mkdtemp(other));
  cleanup_free char *script =
      xasprintf("mkdir a b && echo text >a/file && mv a/file b/file && cat b/file && rm -r a b; "
                "echo x >%s/file;"
                "mkdir %s/folder; mknod null c 1 3; cp /bin/true program && ./program",
                other, other);
  cleanup_free char *output = shell_output(&setting, script);
  cr_expect(string_starts(output, "text\n"), "%s", output);
  cr_expect_not_null(strstr(output, "/file: Permission denied"), "%s", output);
  cr_expect_not_null(strstr(output, "./program: Permission denied"),
                     "what was written there does not run: %s", output);
  cr_expect_eq(rmdir(other), 0, "nothing was made there");
  cleanup_free char *device = xasprintf("%s/null", setting.folder);
  cr_expect_neq(access(device, F_OK), 0, "a device was made");
  setting_end(&setting);
}

/* Runs `attempt` in a confined child: the errno that it returns. */
static int confined(int (*attempt)(void)) {
  struct setting setting = setting_make();
  pid_t child = fork();
  if (child == 0) {
    if (sandbox_enter(setting.sandbox) != 0)
      _exit(255);
    _exit(attempt());
  }
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status), "signal %d", WTERMSIG(status));
  setting_end(&setting);
  return WEXITSTATUS(status);
}

static int attempt_socket(void) {
  static const int families[] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};
  for (size_t i = 0; i < ARRAY_LENGTH(families); i++) {
    if (socket(families[i], SOCK_STREAM, 0) >= 0 || errno != EPERM)
      return 0;
  }
  return EPERM;
}

#define ATTEMPT(name, expression)                                                                  \
  static int attempt_##name(void) { return (expression) < 0 ? errno : 0; }
ATTEMPT(ptrace, ptrace(PTRACE_TRACEME, 0, NULL, NULL))
ATTEMPT(memory, syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0))
ATTEMPT(mount, mount("none", "/tmp", "tmpfs", 0, NULL))
ATTEMPT(keyring, syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0))
ATTEMPT(bpf, syscall(SYS_bpf, 0, NULL, 0))
ATTEMPT(perf, syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0))
ATTEMPT(userfault, syscall(SYS_userfaultfd, 0))
ATTEMPT(ring, syscall(SYS_io_uring_setup, 1, NULL))
ATTEMPT(unshare, unshare(CLONE_NEWUSER))
ATTEMPT(clone, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0))
ATTEMPT(clone3, syscall(SYS_clone3, NULL, 0))
ATTEMPT(module, syscall(SYS_finit_module, -1, "", 0))
ATTEMPT(kexec, syscall(SYS_kexec_load, 0, 0, NULL, 0))
ATTEMPT(personality, personality(ADDR_NO_RANDOMIZE))
ATTEMPT(push_back, ioctl(0, TIOCSTI, "x"))
ATTEMPT(session, setsid())
ATTEMPT(group, setpgid(0, 0))
ATTEMPT(nice, setpriority(PRIO_PROCESS, (id_t)getppid(), 1))
ATTEMPT(disk_priority, (int)syscall(SYS_ioprio_set, 1, getppid(), 3 << 13))
ATTEMPT(policy, sched_setscheduler(getppid(), SCHED_BATCH, &(struct sched_param){0}))
ATTEMPT(parameters, sched_setparam(getppid(), &(struct sched_param){0}))
ATTEMPT(attributes, (int)syscall(SYS_sched_setattr, getppid(), (uint32_t[12]){48, SCHED_BATCH}, 0))
ATTEMPT(limit, prlimit(getppid(), RLIMIT_NOFILE, &(struct rlimit){3, 3}, NULL))
ATTEMPT(shared_memory, shmget(IPC_PRIVATE, 4096, 0600))
ATTEMPT(queue, (int)mq_open("/wavetune-test", O_RDWR | O_CREAT, 0600, NULL))
ATTEMPT(truncate, truncate("/does/not/exist", 0))
ATTEMPT(handle, syscall(SYS_open_by_handle_at, -1, NULL, 0))

Test(sandbox, there_is_no_network) { cr_expect_eq(confined(attempt_socket), EPERM); }

Test(sandbox, calls_that_affect_other_processes_are_refused) {
  static const struct {
    const char *name;
    int (*attempt)(void);
    int reason;
  } attempts[] = {
      {"ptrace", attempt_ptrace, EPERM},
      {"process_vm_readv", attempt_memory, EPERM},
      {"mount", attempt_mount, EPERM},
      {"keyctl", attempt_keyring, EPERM},
      {"bpf", attempt_bpf, EPERM},
      {"perf_event_open", attempt_perf, EPERM},
      {"userfaultfd", attempt_userfault, EPERM},
      {"io_uring_setup", attempt_ring, EPERM},
      {"unshare", attempt_unshare, EPERM},
      {"clone", attempt_clone, EPERM},
      {"clone3", attempt_clone3, ENOSYS},
      {"finit_module", attempt_module, EPERM},
      {"kexec_load", attempt_kexec, EPERM},
      {"personality", attempt_personality, EPERM},
      {"TIOCSTI", attempt_push_back, EPERM},
      {"setsid", attempt_session, EPERM},
      {"setpgid", attempt_group, EPERM},
      {"setpriority", attempt_nice, EPERM},
      {"ioprio_set", attempt_disk_priority, EPERM},
      {"sched_setscheduler", attempt_policy, EPERM},
      {"sched_setparam", attempt_parameters, EPERM},
      {"sched_setattr", attempt_attributes, EPERM},
      {"prlimit", attempt_limit, EPERM},
      {"shmget", attempt_shared_memory, EPERM},
      {"mq_open", attempt_queue, EPERM},
      {"truncate", attempt_truncate, EPERM},
      {"open_by_handle_at", attempt_handle, EPERM},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(attempts); i++)
    cr_expect_eq(confined(attempts[i].attempt), attempts[i].reason, "%s", attempts[i].name);
}

static void *thread_nothing(void *context) { return context; }

/* What ROCr and OpenMP do: a thread whose attributes name CPUs, a call by the thread's own id, and
 * one without an id. The parent keeps its CPUs. */
static int attempt_affinity(void) {
  cpu_set_t one, before, after, own;
  pthread_attr_t attributes;
  pthread_t thread;
  CPU_ZERO(&one);
  sched_getaffinity(getppid(), sizeof before, &before);
  for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
    if (CPU_ISSET(cpu, &before))
      CPU_SET(cpu, &one);

  pthread_attr_init(&attributes);
  if (pthread_attr_setaffinity_np(&attributes, sizeof one, &one) != 0 ||
      pthread_create(&thread, &attributes, thread_nothing, NULL) != 0 ||
      pthread_join(thread, NULL) != 0)
    return 1;
  (void)sched_setaffinity(getppid(), sizeof one, &one);
  sched_getaffinity(getppid(), sizeof after, &after);
  if (!CPU_EQUAL(&before, &after))
    return 2;
  if (sched_setaffinity(0, sizeof one, &one) != 0 || sched_getaffinity(0, sizeof own, &own) != 0)
    return 3;
  if (sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}) != 0)
    return 4;
  return CPU_EQUAL(&own, &one) ? 0 : 5;
}

Test(sandbox, a_process_sets_its_own_scheduling_and_that_of_no_other) {
  cr_expect_eq(confined(attempt_affinity), 0);
}

static int attempt_ask(void) {
  struct rlimit own;
  return personality(0xffffffff) < 0 || fcntl(0, F_GETFD) < 0 || getrlimit(RLIMIT_NOFILE, &own) < 0
             ? errno
             : 0;
}

Test(sandbox, a_process_can_read_its_own_state) { cr_expect_eq(confined(attempt_ask), 0); }

/* The kernel stacks 16 rule sets and no more. */
Test(sandbox, a_command_that_cannot_be_confined_does_not_run) {
  NEEDS_LANDLOCK;
  struct setting setting = setting_make();
  pid_t child = fork();
  if (child == 0) {
    struct error error = {0};
    struct command_result result;
    for (int i = 0; i < 16; i++) {
      if (sandbox_enter(setting.sandbox) != 0)
        _exit(2);
    }
    if (shell_run(&setting, "touch ran", &result, &error))
      _exit(3);
    _exit(string_starts(error.message, "cannot confine /bin/sh: Argument list too long") ? 0 : 4);
  }
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
  cleanup_free char *ran = xasprintf("%s/ran", setting.folder);
  cr_expect_neq(access(ran, F_OK), 0);
  setting_end(&setting);
}

Test(sandbox, a_missing_command_is_an_error_without_a_result) {
  struct setting setting = setting_make();
  char *const arguments[] = {(char[]){"/usr/bin/no-such-program"}, NULL};
  char *const environment[] = {NULL};
  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .timeout_ms = 1000,
                            .cpu_seconds_max = 1,
                            .memory_bytes_max = 1u << 30,
                            .output_max = 1,
                            .sandbox = setting.sandbox,
                            .stop_fd = -1};
  struct command_result result;
  struct error error;
  cr_expect_not(command_run(&command, &result, &error));
  cr_expect(string_starts(error.message, "cannot run /usr/bin/no-such-program: No such file"));
  command.folder = "/does/not/exist";
  cr_expect_not(command_run(&command, &result, &error));
  cr_expect_str_eq(
      error.message,
      "cannot enter the folder of /usr/bin/no-such-program: No such file or directory");
  setting_end(&setting);
}

/* Makes this process one on a kernel without Landlock. */
static void landlock_take_away(void) {
  scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);
  cr_assert_not_null(context);
  cr_assert_eq(seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SYS_landlock_create_ruleset, 0),
               0);
  cr_assert_eq(seccomp_load(context), 0);
  seccomp_release(context);
}

Test(sandbox, a_kernel_without_landlock_still_filters_calls_and_reports_it) {
  landlock_take_away();
  cr_expect_not(sandbox_confines_files());
  cr_expect_str_eq(sandbox_kind(), "seccomp");
  cr_expect_eq(confined(attempt_socket), EPERM);
  struct setting setting = setting_make();
  cleanup_free char *output = shell_output(&setting, "head -c 5 /etc/passwd");
  cr_expect_str_eq(output, "root:");
  setting_end(&setting);
}

Test(sandbox, the_kind_names_the_version_of_landlock) {
  NEEDS_LANDLOCK;
  cr_expect(string_starts(sandbox_kind(), "landlock "), "%s", sandbox_kind());
  cr_expect_not_null(strstr(sandbox_kind(), ", seccomp"));
}

Test(sandbox, a_path_that_cannot_be_opened_is_an_error) {
  NEEDS_LANDLOCK;
  struct sandbox *sandbox;
  struct error error;
  char name[300];
  memset(name, 'x', sizeof name);
  name[0] = '/';
  name[sizeof name - 1] = '\0';
  struct sandbox_rules rules = {(const char *const[]){name, NULL}, (const char *const[]){NULL}};
  cr_expect_not(sandbox_new(&rules, &sandbox, &error));
  cr_expect(string_starts(error.message, "cannot let a sandbox see /xxx"), "%s", error.message);
}
