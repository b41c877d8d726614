/* Commands: fork, limits, exec, and a poll over the output, the process and a stop signal.
 *
 * Memory: see command.h. Threads: any. Between fork and exec only async-signal-safe functions are called, because other
 * threads may hold any lock. */
#include "common/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

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
  return error_set(error, "there is no `%s` in $PATH; install a C compiler (Debian: apt install gcc libc6-dev)",
                   program);
}

static void limit_set(int resource, uint64_t value) { setrlimit(resource, &(struct rlimit){value, value}); }

no_return static void program_exec(const struct command *command) {
  limit_set(RLIMIT_CPU, command->cpu_seconds_max);
  limit_set(RLIMIT_AS, command->memory_bytes_max);
  limit_set(RLIMIT_FSIZE, command->file_bytes_max);
  limit_set(RLIMIT_CORE, 0);
  signal(SIGTERM, SIG_DFL);
  if (!command->folder || chdir(command->folder) == 0)
    execve(command->arguments[0], command->arguments, command->environment);
  static const char message[] = "cannot run the compiler\n";
  ssize_t written = write(2, message, sizeof message - 1);
  (void)written;
  _exit(127);
}

static void group_kill(int number) {
  (void)number;
  kill(0, SIGKILL);
}

/* The child: leads the group that the program and all that it starts belong to, and ends as the program does. A signal
 * at our death would reach the program alone, and a compiler's own children would go on: this one hears it and takes
 * the group along. */
no_return static void guard_run(const struct command *command, int output_fd, pid_t parent) {
  sigset_t none;
  int status = 0;
  setpgid(0, 0);
  signal(SIGTERM, group_kill);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  int null_fd = open("/dev/null", O_RDONLY);
  if (getppid() != parent || null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(output_fd, 1) < 0 || dup2(output_fd, 2) < 0)
    _exit(127);
  close_range(3, ~0u, 0);
  pid_t program = _Fork();
  if (program == 0)
    program_exec(command);
  while (program > 0 && waitpid(program, &status, 0) < 0 && errno == EINTR)
    continue;
  if (program < 0 || !WIFSIGNALED(status))
    _exit(program < 0 ? 127 : WEXITSTATUS(status));
  limit_set(RLIMIT_CORE, 0);
  signal(WTERMSIG(status), SIG_DFL);
  kill(getpid(), WTERMSIG(status));
  _exit(127);
}

/* Reads what is there; false at the end of the output. */
static bool output_read(int fd, char *output, size_t *length, size_t output_max) {
  char chunk[4096];
  ssize_t n = read(fd, chunk, sizeof chunk);
  if (n < 0)
    return errno == EINTR || errno == EAGAIN;
  size_t kept = output_max - *length < (size_t)n ? output_max - *length : (size_t)n;
  memcpy(output + *length, chunk, kept);
  *length += kept;
  return n > 0;
}

bool command_run(const struct command *command, struct command_result *ret_result, struct error *error) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) < 0)
    return error_set(error, "cannot make a pipe for %s: %s", command->arguments[0], strerror(errno));
  cleanup_fd int read_end = pipes[0];
  cleanup_fd int write_end = pipes[1];
  fcntl(read_end, F_SETFL, O_NONBLOCK);
  pid_t parent = getpid(), child = fork();
  if (child < 0)
    return error_set(error, "cannot start %s: %s", command->arguments[0], strerror(errno));
  if (child == 0)
    guard_run(command, write_end, parent);
  setpgid(child, child);
  close(write_end);
  write_end = -1;
  cleanup_fd int process = pidfd_open(child, 0);
  if (process < 0) {
    int reason = errno;
    kill(-child, SIGKILL);
    waitpid(child, NULL, 0);
    return error_set(error, "cannot watch %s: %s; Linux 5.3 or later can", command->arguments[0], strerror(reason));
  }
  struct command_result result = {.output = xmalloc(command->output_max + 1)};
  size_t length = 0;
  int64_t deadline = clock_monotonic_ms() + command->timeout_ms;
  bool open = true;
  while (!result.timed_out && !result.stopped) {
    int64_t left = deadline - clock_monotonic_ms();
    struct pollfd polled[] = {{process, POLLIN, 0}, {open ? read_end : -1, POLLIN, 0}, {command->stop_fd, POLLIN, 0}};
    int ready = left > 0 ? poll(polled, ARRAY_LENGTH(polled), (int)(left < 60000 ? left : 60000)) : 0;
    if (ready < 0 && errno != EINTR)
      break;
    if (ready > 0 && polled[1].revents)
      open = output_read(read_end, result.output, &length, command->output_max);
    else if (ready > 0 && polled[0].revents)
      break;
    else if (ready > 0 && polled[2].revents)
      result.stopped = true;
    else if (left <= 0)
      result.timed_out = true;
  }
  /* Whatever it started goes with it, also when it ended by itself. */
  kill(-child, SIGKILL);
  while (waitpid(child, &result.status, 0) < 0 && errno == EINTR)
    continue;
  result.output[length] = '\0';
  result.succeeded =
      !result.timed_out && !result.stopped && WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0;
  *ret_result = result;
  return true;
}
