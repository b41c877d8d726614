/* Commands: fork, limits, exec, and a poll of the output, the process and stop_fd.
 *
 * Between fork and exec only async-signal-safe functions are called, because other threads may hold
 * any lock. */
#include "common/program/command.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/glibc.h"

bool program_find(const char *program, char **ret_path, struct error *error) {
  const char *path = getenv("PATH");
  cleanup_free char *folders = xstrdup(path && *path ? path : "/usr/bin:/bin");
  char *rest = folders;

  for (char *folder; (folder = strsep(&rest, ":"));) {
    cleanup_free char *candidate = xasprintf("%s/%s", folder, program);
    if (*folder == '/' && access(candidate, X_OK) == 0) {
      *ret_path = TAKE(candidate);
      return true;
    }
  }

  return error_set(
      error, "there is no `%s` in $PATH; install a C compiler (Debian: apt install gcc libc6-dev)",
      program);
}

static void limit_set(int resource, uint64_t value) {
  setrlimit(resource, &(struct rlimit){value, value});
}

/* Why the program did not start, written to the parent through a pipe that a successful exec
 * closes. */
struct start_failure {
  enum { STEP_CGROUP, STEP_USER, STEP_SANDBOX, STEP_FOLDER, STEP_EXEC } step;
  int reason;
};

no_return static void failure_exit(int failure_fd, int step, int reason) {
  struct start_failure failure = {step, reason};
  (void)!write(failure_fd, &failure, sizeof failure);
  _exit(127);
}

no_return static void program_exec(const struct command *command, int failure_fd) {
  limit_set(RLIMIT_CPU, command->cpu_seconds_max);
  limit_set(RLIMIT_AS, command->memory_bytes_max);
  limit_set(RLIMIT_FSIZE, command->file_bytes_max);
  limit_set(RLIMIT_CORE, 0);
  signal(SIGTERM, SIG_DFL);
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);

  if (command->folder && chdir(command->folder) < 0)
    failure_exit(failure_fd, STEP_FOLDER, errno);
  if (command->custody && !custody_become_user(command->custody))
    failure_exit(failure_fd, STEP_USER, errno);

  int reason = command->sandbox ? sandbox_enter(command->sandbox) : 0;
  if (reason)
    failure_exit(failure_fd, STEP_SANDBOX, reason);

  execve(command->arguments[0], command->arguments, command->environment);
  failure_exit(failure_fd, STEP_EXEC, errno);
}

static void group_kill(int number) {
  (void)number;
  kill(0, SIGKILL);
}

/* The child, which leads the process group of the program and all that it starts, and ends with the
 * program's status. When the parent dies, the kernel signals only one process: this one, which then
 * kills the group, so that a compiler's own children end too. */
no_return static void guard_run(const struct command *command, const struct cgroup *cgroup,
                                int output_fd, int failure_fd, pid_t parent) {
  sigset_t none;
  int status = 0;
  if (cgroup && !cgroup_enter(cgroup))
    failure_exit(failure_fd, STEP_CGROUP, errno);

  setpgid(0, 0);
  signal(SIGTERM, group_kill);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);

  int null_fd = open("/dev/null", O_RDONLY);
  if (getppid() != parent || null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(output_fd, 1) < 0 ||
      dup2(output_fd, 2) < 0)
    _exit(127);

  pid_t program = _Fork();
  if (program == 0)
    program_exec(command, failure_fd);
  close_range(3, ~0u, 0);

  while (program > 0 && waitpid(program, &status, 0) < 0 && errno == EINTR)
    continue;
  if (program < 0 || !WIFSIGNALED(status))
    _exit(program < 0 ? 127 : WEXITSTATUS(status));

  limit_set(RLIMIT_CORE, 0);
  signal(WTERMSIG(status), SIG_DFL);
  kill(getpid(), WTERMSIG(status));
  _exit(127);
}

/* Collects output until the program ends, timeout_ms pass or stop_fd becomes readable. */
static void command_wait(const struct command *command, int process, int read_end,
                         struct command_result *result) {
  size_t length = 0;
  int64_t deadline = clock_monotonic_ms() + command->timeout_ms;
  bool open = true;
  result->output = xmalloc(command->output_max + 1);

  while (!result->timed_out && !result->stopped) {
    int64_t left = deadline - clock_monotonic_ms();
    struct pollfd polled[] = {
        {process, POLLIN, 0}, {open ? read_end : -1, POLLIN, 0}, {command->stop_fd, POLLIN, 0}};
    int ready =
        left > 0 ? poll(polled, ARRAY_LENGTH(polled), (int)(left < 60000 ? left : 60000)) : 0;
    if (ready < 0 && errno != EINTR)
      break;

    if (ready > 0 && polled[1].revents) {
      char chunk[4096];
      ssize_t n = read(read_end, chunk, sizeof chunk);
      size_t room = command->output_max - length;
      open = n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
      if (n > 0) {
        size_t kept = room < (size_t)n ? room : (size_t)n;
        memcpy(result->output + length, chunk, kept);
        length += kept;
      }
    } else if (ready > 0 && polled[0].revents) {
      break;
    } else if (ready > 0 && polled[2].revents) {
      result->stopped = true;
    } else if (left <= 0) {
      result->timed_out = true;
    }
  }

  result->output[length] = '\0';
}

bool command_run(const struct command *command, struct command_result *ret_result,
                 struct error *error) {
  static const char *const steps[] = {[STEP_CGROUP] = "cannot enter the cgroup of",
                                      [STEP_USER] = "cannot become the user of",
                                      [STEP_SANDBOX] = "cannot confine",
                                      [STEP_FOLDER] = "cannot enter the folder of",
                                      [STEP_EXEC] = "cannot run"};
  const char *name = command->arguments[0];
  int outputs[2] = {-1, -1}, failures[2] = {-1, -1};
  bool has_pipes = pipe2(outputs, O_CLOEXEC) == 0 && pipe2(failures, O_CLOEXEC) == 0;
  int pipe_reason = errno;
  cleanup_fd int read_end = outputs[0], write_end = outputs[1], failure_end = failures[0],
                 failure_fd = failures[1];
  if (!has_pipes)
    return error_set(error, "cannot make a pipe for %s: %s", name, strerror(pipe_reason));

  cleanup_cgroup struct cgroup *cgroup = NULL;
  if (command->custody && command->custody->cgroups &&
      !cgroup_new(command->custody->cgroups, &cgroup, error))
    return false;

  fcntl(read_end, F_SETFL, O_NONBLOCK);
  fcntl(failure_end, F_SETFL, O_NONBLOCK);

  pid_t parent = getpid(), child = fork();
  if (child < 0)
    return error_set(error, "cannot start %s: %s", name, strerror(errno));
  if (child == 0)
    guard_run(command, cgroup, write_end, failure_fd, parent);
  setpgid(child, child);
  close(write_end);
  write_end = -1;

  cleanup_fd int process = pidfd_open(child, 0);
  if (process < 0) {
    int reason = errno;
    kill(-child, SIGKILL);
    waitpid(child, NULL, 0);
    return error_set(error, "cannot watch %s: %s; Linux 5.3 or later can", name, strerror(reason));
  }

  struct command_result result = {0};
  command_wait(command, process, read_end, &result);

  /* Also when it ended by itself, because the processes that it started must end, too. */
  kill(-child, SIGKILL);
  if (cgroup)
    cgroup_kill(cgroup);

  while (waitpid(child, &result.status, 0) < 0 && errno == EINTR)
    continue;

  struct start_failure failure;
  if (read(failure_end, &failure, sizeof failure) == sizeof failure) {
    free(result.output);
    return error_set(error, "%s %s: %s", steps[failure.step], name, strerror(failure.reason));
  }

  result.succeeded = !result.timed_out && !result.stopped && WIFEXITED(result.status) &&
                     WEXITSTATUS(result.status) == 0;
  *ret_result = result;
  return true;
}
