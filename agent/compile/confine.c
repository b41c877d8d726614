/* The process that confines a builder's child. */
#include "agent/compile/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/program/command.h"

#define FILE_BYTES_MAX ((uint64_t)1 << 30)
#define OUTPUT_MAX ((size_t)64 << 10)
#define SECONDS_MAX 604800
/* The ids that systemd gives to users which live as long as one process. */
#define USERS_FIRST 61184
#define USERS 4336

static const char *const machine_places[] = {"/usr",          "/bin",
                                             "/lib",          "/lib32",
                                             "/lib64",        "/etc/ld.so.cache",
                                             "/dev/urandom",  "/proc/cpuinfo",
                                             "/proc/meminfo", "/sys/devices/system/cpu"};

struct confining {
  int64_t memory, tasks, seconds;
  const char *folder;
  const char **readable;
  char **program;
};

/* Makes a root process one of a user whose processes can be counted, and who reads what root
 * reads. Without privileges beyond that. */
static bool user_leave(const char *folder, struct error *error) {
  if (geteuid() != 0)
    return true;

  uid_t own = USERS_FIRST + (uid_t)getpid() % USERS;
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  uint32_t reads = 1U << CAP_DAC_READ_SEARCH;
  struct __user_cap_data_struct kept[_LINUX_CAPABILITY_U32S_3] = {{reads, reads, reads}};
  if (lchown(folder, own, own) < 0 || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
      syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, own, own, own) < 0 ||
      syscall(SYS_setresuid, own, own, own) < 0 || syscall(SYS_capset, &header, kept) < 0 ||
      prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0) < 0)
    return error_set(error, "root cannot become another user here: %s; start the builder as a user",
                     strerror(errno));
  return true;
}

static bool number_read(const char *text, int64_t most, int64_t *ret) {
  char *end;
  errno = 0;
  *ret = strtoll(text, &end, 10);
  return errno == 0 && end != text && !*end && *ret > 0 && *ret <= most;
}

static bool arguments_read(int argc, char **argv, struct confining *ret, struct error *error) {
  int n = 6;
  while (n < argc && !string_equal(argv[n], "--"))
    n++;
  if (argc < n + 2 || !number_read(argv[2], INT64_MAX, &ret->memory) ||
      !number_read(argv[3], INT32_MAX, &ret->tasks) ||
      !number_read(argv[4], SECONDS_MAX, &ret->seconds))
    return error_set(error, "give MEMORY TASKS SECONDS FOLDER READABLE… -- PROGRAM ARGUMENT…");

  size_t n_places = ARRAY_LENGTH(machine_places), used = 0;
  ret->readable = xcalloc(n_places + (size_t)n, sizeof *ret->readable);
  array_foreach (place, machine_places, n_places)
    ret->readable[used++] = *place;
  for (int i = 6; i < n; i++)
    ret->readable[used++] = argv[i];
  ret->folder = argv[5];
  ret->program = argv + n + 1;
  return true;
}

static bool run(const struct confining *confining, struct command_result *ret,
                struct error *error) {
  if (sandbox_level() < SANDBOX_LANDLOCK)
    return error_set(
        error, "this Linux confines programs by: %s; Landlock (Linux 5.13) and seccomp are needed",
        sandbox_kind());
  if (!user_leave(confining->folder, error))
    return false;

  /* The guard that command_run starts ends with this process, and the program with the guard. */
  rlim_t tasks = (rlim_t)confining->tasks;
  cleanup_sandbox struct sandbox *sandbox = NULL;
  struct sandbox_rules rules = {confining->readable,
                                (const char *const[]){confining->folder, NULL}};
  if (setrlimit(RLIMIT_NPROC, &(struct rlimit){tasks, tasks}) < 0 ||
      prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
    return error_set(error, "cannot limit processes: %s", strerror(errno));
  if (!sandbox_new(&rules, &sandbox, error))
    return false;

  const struct command command = {.arguments = confining->program,
                                  .environment = environ,
                                  .folder = confining->folder,
                                  .timeout_ms = confining->seconds * 1000,
                                  .cpu_seconds_max = (uint64_t)confining->seconds,
                                  .memory_bytes_max = (uint64_t)confining->memory,
                                  .file_bytes_max = FILE_BYTES_MAX,
                                  .output_max = OUTPUT_MAX,
                                  .sandbox = sandbox,
                                  .stop_fd = -1};
  return command_run(&command, ret, error);
}

int confine_main(int argc, char **argv) {
  struct confining confining = {0};
  struct command_result result;
  struct error error;
  if (!arguments_read(argc, argv, &confining, &error) || !run(&confining, &result, &error)) {
    fprintf(stderr, "wavetune-agent confine: %s\n", error.message);
    return CONFINE_EXIT_MACHINE;
  }

  fputs(result.output, stderr);
  free(result.output);
  free(confining.readable);
  if (result.timed_out)
    return CONFINE_EXIT_LATE;
  return WIFEXITED(result.status) ? WEXITSTATUS(result.status) : 128 + WTERMSIG(result.status);
}
