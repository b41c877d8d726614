/* The main thread's loop, which starts workers, and the thread that does the work. `mutex` guards
 * the one request that is open at a time. */
#include "agent/worker/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "agent/worker/scheduling.h"
#include "common/base/file.h"
#include "common/base/glibc.h"
#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/program/options.h"
#include "common/program/sandbox.h"

#define HIGH_FD 16 /* above every file descriptor that a worker is given */

struct spawner {
  int wake_fd;
  struct custody custody;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool ended;
  bool requested, answered;
  bool ok;
  char *const *environment; /* of the request; NULL: nothing to add */
  struct spawned spawned;
  struct error error;
};

bool supervisor_stopped(const struct supervisor *supervisor) {
  return atomic_load(&supervisor->signal) != 0;
}

void spawner_set_custody(struct spawner *spawner, const struct custody *custody) {
  spawner->custody = *custody;
}

const struct custody *spawner_custody(const struct spawner *spawner) { return &spawner->custody; }

static void spawner_wake(struct spawner *spawner) {
  ALWAYS(fd_write_all(spawner->wake_fd, &(uint64_t){1}, sizeof(uint64_t)));
}

/* The added strings come first: of two settings of one name getenv finds the first. The strings are
 * borrowed. */
static char **environment_make(char *const *added) {
  char *const *const parts[] = {added, environ};
  char **environment = NULL;
  size_t n = 0;

  list_foreach (part, parts) {
    for (char *const *string = *part; string && *string; string++) {
      *APPEND(environment, n) = *string;
    }
  }

  *APPEND(environment, n) = NULL;
  return environment;
}

/* File descriptors that a worker inherits; -1: opening it failed. */
struct inherited {
  int socket, page, null, output;
};

/* Between fork and exec of a program with threads: async-signal-safe calls only. */
no_return static void worker_exec(const struct custody *custody, const struct cgroup *cgroup,
                                  const struct inherited *inherited, pid_t parent,
                                  char **environment) {
  static char program[] = "/proc/self/exe", name[] = "wavetune-agent", command[] = "worker";
  char *arguments[] = {name, command, NULL};
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setpgid(0, 0);
  scheduling_begin();

  if ((cgroup && !cgroup_enter(cgroup)) || !custody_become_user(custody))
    _exit(127);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which resets it */
  if (getppid() != parent)
    _exit(127);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

  /* What a kernel prints must neither mix with the program's output nor fill its log. */
  dup2(inherited->null, STDIN_FILENO);
  dup2(inherited->output, STDOUT_FILENO);
  dup2(inherited->output, STDERR_FILENO);
  dup2(inherited->socket, WORKER_SOCKET_FD);
  dup2(inherited->page, WORKER_STATUS_FD);
  close_range(WORKER_STATUS_FD + 1, ~0u, 0);
  execve(program, arguments, environment);
  _exit(127);
}

static void status_unmap(struct worker_status *status) { munmap(status, sizeof *status); }
DEFINE_CLEANUP(struct worker_status *, cleanup_status_unmap, status_unmap)

static bool spawn(const struct custody *custody, char *const *added, struct spawned *ret,
                  struct error *error) {
  cleanup_cgroup struct cgroup *cgroup = NULL;
  if (custody->cgroups && !cgroup_new(custody->cgroups, &cgroup, error))
    return false;

  int ends[2] = {-1, -1}, outputs[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return error_set(error, "cannot make a worker's socket: %s", strerror(errno));

  cleanup_fd int ours = ends[0], theirs = ends[1];
  if (pipe2(outputs, O_CLOEXEC) < 0)
    return error_set(error, "cannot make a pipe for a worker: %s", strerror(errno));

  cleanup_fd int output = outputs[0], output_end = outputs[1];
  fcntl(output, F_SETFL, O_NONBLOCK);

  /* Sealed: a worker that made the page shorter would kill this process when it reads it. */
  cleanup_fd int page = memfd_create("wavetune-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (page < 0 || ftruncate(page, sizeof(struct worker_status)) < 0 ||
      fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    return error_set(error, "cannot make a worker's status page: %s", strerror(errno));

  void *mapping =
      mmap(NULL, sizeof(struct worker_status), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  if (mapping == MAP_FAILED)
    return error_set(error, "cannot map a worker's status page: %s", strerror(errno));

  struct worker_status *status __attribute__((cleanup(cleanup_status_unmap))) = mapping;
  atomic_store(&status->config, WORKER_CONFIG_NONE);
  atomic_store(&status->phase, WORKER_IDLE);
  atomic_store(&status->since_ns, clock_monotonic_ns());

  /* High numbers, so that dup2 in the child overwrites none of them. */
  cleanup_free char **environment = environment_make(added);
  cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  cleanup_fd int socket_high = fcntl(theirs, F_DUPFD_CLOEXEC, HIGH_FD);
  cleanup_fd int page_high = fcntl(page, F_DUPFD_CLOEXEC, HIGH_FD);
  cleanup_fd int output_high = fcntl(output_end, F_DUPFD_CLOEXEC, HIGH_FD);
  struct inherited inherited = {socket_high, page_high, null, output_high};
  bool has_files = null >= 0 && socket_high >= 0 && page_high >= 0 && output_high >= 0;
  (void)scheduling_check(NULL);
  pid_t parent = getpid(), pid = has_files ? fork() : -1;
  if (pid == 0)
    worker_exec(custody, cgroup, &inherited, parent, environment);
  if (pid < 0)
    return error_set(error, "cannot start a worker: %s", strerror(errno));

  setpgid(pid, pid); /* here too: the group must exist before it is killed */
  *ret = (struct spawned){pid, ours, output, TAKE(status), TAKE(cgroup)};
  ours = output = -1;
  return true;
}

bool spawner_spawn(struct spawner *spawner, char *const *environment, struct spawned *ret_spawned,
                   struct error *error) {
  HOLD(&spawner->mutex);
  while (spawner->requested && !spawner->ended) /* another thread's request */
    pthread_cond_wait(&spawner->changed, &spawner->mutex);
  if (!spawner->ended) {
    spawner->requested = true;
    spawner->answered = false;
    spawner->environment = environment;
    spawner_wake(spawner);
    while (!spawner->answered && !spawner->ended)
      pthread_cond_wait(&spawner->changed, &spawner->mutex);
    spawner->requested = false;
    pthread_cond_broadcast(&spawner->changed);
    if (spawner->answered && !spawner->ok)
      *error = spawner->error;
    if (spawner->answered && spawner->ok)
      *ret_spawned = spawner->spawned;
    if (spawner->answered)
      return spawner->ok;
  }

  return error_set(error, "no worker is started any more: the agent is ending");
}

static void *work_run(void *context) {
  struct supervisor *supervisor = context;
  struct spawner *spawner = supervisor->spawner;

  supervisor->code = supervisor->work(supervisor, supervisor->context);
  pthread_mutex_lock(&spawner->mutex);
  spawner->ended = true;
  pthread_cond_broadcast(&spawner->changed);
  pthread_mutex_unlock(&spawner->mutex);
  spawner_wake(spawner);
  return NULL;
}

/* Starts workers on request, and handles signals, until the work has ended. */
static void serve(struct supervisor *supervisor, int signal_fd) {
  struct spawner *spawner = supervisor->spawner;
  struct pollfd fds[] = {{.fd = spawner->wake_fd, .events = POLLIN},
                         {.fd = signal_fd, .events = POLLIN}};
  bool ended = false;

  while (!ended) {
    if (poll(fds, ARRAY_LENGTH(fds), -1) < 0 && errno != EINTR)
      die("poll: %s", strerror(errno));
    uint64_t count;
    (void)!read(spawner->wake_fd, &count, sizeof count);
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == sizeof info) {
      if (supervisor_stopped(supervisor))
        _exit(128 + (int)info.ssi_signo);
      atomic_store(&supervisor->signal, (int)info.ssi_signo);
      if (supervisor->stop)
        supervisor->stop(supervisor->context);
    }

    HOLD(&spawner->mutex);
    if (spawner->requested && !spawner->answered) {
      spawner->ok =
          spawn(&spawner->custody, spawner->environment, &spawner->spawned, &spawner->error);
      spawner->answered = true;
      pthread_cond_broadcast(&spawner->changed);
    }
    ended = spawner->ended;
  }
}

int supervise(struct supervisor *supervisor) {
  struct spawner spawner = {.wake_fd = -1};
  pthread_t thread;
  sigset_t signals;

  signal(SIGPIPE, SIG_IGN);
  scheduling_remember();

  /* Workers run untrusted code as the same user. A command that needs the token has read it. */
  free(environment_take("WAVETUNE_TOKEN"));
  process_hide();

  /* Blocked before any other thread is started, for all of them. */
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  cleanup_fd int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK),
                 wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0 || signal_fd < 0) {
    log_error("cannot listen for signals: %s", strerror(errno));
    return EXIT_INTERNAL;
  }

  spawner.wake_fd = wake_fd;
  pthread_mutex_init(&spawner.mutex, NULL);
  pthread_cond_init(&spawner.changed, NULL);
  supervisor->spawner = &spawner;
  if (pthread_create(&thread, NULL, work_run, supervisor) != 0)
    die("cannot start a thread");
  serve(supervisor, signal_fd);
  pthread_join(thread, NULL);
  pthread_mutex_destroy(&spawner.mutex);
  pthread_cond_destroy(&spawner.changed);
  return supervisor->code;
}
