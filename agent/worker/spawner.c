/* The main thread's loop that starts workers. `mutex` guards the one request that is open at a
 * time. */
#include "agent/worker/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "common/base/file.h"

#define OUT_OF_THE_WAY 16 /* above every file descriptor that a worker is given */

struct spawner {
  int wake_fd, signal_fd;
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

bool spawner_new(struct spawner **ret_spawner, struct error *error) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  struct spawner *spawner = xcalloc(1, sizeof *spawner);
  spawner->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spawner->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  pthread_mutex_init(&spawner->mutex, NULL);
  pthread_cond_init(&spawner->changed, NULL);
  if (spawner->wake_fd < 0 || spawner->signal_fd < 0) {
    error_set(error, "cannot listen for signals: %s", strerror(errno));
    spawner_free(spawner);
    return false;
  }
  *ret_spawner = spawner;
  return true;
}

void spawner_free(struct spawner *spawner) {
  if (spawner->wake_fd >= 0)
    close(spawner->wake_fd);
  if (spawner->signal_fd >= 0)
    close(spawner->signal_fd);
  pthread_mutex_destroy(&spawner->mutex);
  pthread_cond_destroy(&spawner->changed);
  free(spawner);
}

void spawner_set_custody(struct spawner *spawner, const struct custody *custody) {
  spawner->custody = *custody;
}

const struct custody *spawner_custody(const struct spawner *spawner) { return &spawner->custody; }

static void spawner_wake(struct spawner *spawner) {
  ALWAYS(fd_write_all(spawner->wake_fd, &(uint64_t){1}, sizeof(uint64_t)));
}

static size_t strings_count(char *const *strings) {
  size_t n = 0;
  while (strings && strings[n])
    n++;
  return n;
}

/* What is added comes first: of two settings of one name getenv finds the first. The strings are
 * borrowed. */
static char **environment_make(char *const *added) {
  size_t n_added = strings_count(added), n = strings_count(environ), kept = 0;
  char **environment = xcalloc(n_added + n + 1, sizeof *environment);
  for (size_t i = 0; i < n_added; i++)
    environment[kept++] = added[i];
  for (size_t i = 0; i < n; i++)
    environment[kept++] = environ[i];
  return environment;
}

/* Between fork and exec of a program with threads: async-signal-safe calls only. */
no_return static void worker_exec(const struct custody *custody, const struct cgroup *cgroup,
                                  int socket, int page, int null, int output, pid_t parent,
                                  char **environment) {
  static char program[] = "/proc/self/exe", name[] = "wavetune-agent", command[] = "worker";
  char *arguments[] = {name, command, NULL};
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setpgid(0, 0);
  if ((cgroup && !cgroup_enter(cgroup)) || !custody_become_user(custody))
    _exit(127);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user would undo it */
  if (getppid() != parent)
    _exit(127);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  /* What a kernel prints must neither mix with the program's output nor fill its log. */
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  dup2(socket, WORKER_SOCKET_FD);
  dup2(page, WORKER_STATUS_FD);
  close_range(WORKER_STATUS_FD + 1, ~0u, 0);
  execve(program, arguments, environment);
  _exit(127);
}

static bool page_make(int *ret_fd, struct worker_status **ret_status, struct error *error) {
  cleanup_fd int fd = memfd_create("wavetune-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  /* A worker that made it shorter would kill this process when it looks at it. */
  if (fd < 0 || ftruncate(fd, sizeof(struct worker_status)) < 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    return error_set(error, "cannot make a worker's status page: %s", strerror(errno));
  struct worker_status *status =
      mmap(NULL, sizeof *status, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (status == MAP_FAILED)
    return error_set(error, "cannot map a worker's status page: %s", strerror(errno));
  atomic_store(&status->config, WORKER_CONFIG_NONE);
  atomic_store(&status->phase, WORKER_IDLE);
  atomic_store(&status->since_ns, clock_monotonic_ns());
  *ret_status = status;
  *ret_fd = fd;
  fd = -1;
  return true;
}

static bool spawn(const struct custody *custody, char *const *added, struct spawned *ret,
                  struct error *error) {
  int ends[2];
  cleanup_cgroup struct cgroup *cgroup = NULL;
  if (custody->cgroups && !cgroup_new(custody->cgroups, &cgroup, error))
    return false;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return error_set(error, "cannot make a worker's socket: %s", strerror(errno));
  cleanup_fd int ours = ends[0], theirs = ends[1], page = -1;
  struct worker_status *status = NULL;
  if (!page_make(&page, &status, error))
    return false;
  int outputs[2] = {-1, -1};
  if (pipe2(outputs, O_CLOEXEC) < 0) {
    munmap(status, sizeof *status);
    return error_set(error, "cannot make a pipe for a worker: %s", strerror(errno));
  }
  cleanup_fd int output = outputs[0], output_end = outputs[1];
  fcntl(output, F_SETFL, O_NONBLOCK);
  cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  cleanup_fd int socket_high = fcntl(theirs, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  cleanup_fd int page_high = fcntl(page, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  cleanup_free char **environment = environment_make(added);
  cleanup_fd int output_high = fcntl(output_end, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  pid_t parent = getpid();
  bool has_files = null >= 0 && socket_high >= 0 && page_high >= 0 && output_high >= 0;
  pid_t pid = has_files ? fork() : -1;
  if (pid == 0)
    worker_exec(custody, cgroup, socket_high, page_high, null, output_high, parent, environment);
  if (pid < 0) {
    munmap(status, sizeof *status);
    return error_set(error, "cannot start a worker: %s", strerror(errno));
  }
  setpgid(pid, pid); /* here too, so that the group is there before we may have to kill it */
  *ret = (struct spawned){
      .pid = pid, .socket = ours, .output = output, .status = status, .cgroup = TAKE(cgroup)};
  ours = output = -1;
  return true;
}

static void serve_request(struct spawner *spawner) {
  pthread_mutex_lock(&spawner->mutex);
  if (spawner->requested && !spawner->answered) {
    spawner->ok =
        spawn(&spawner->custody, spawner->environment, &spawner->spawned, &spawner->error);
    spawner->answered = true;
    pthread_cond_broadcast(&spawner->changed);
  }
  pthread_mutex_unlock(&spawner->mutex);
}

static bool is_ended(struct spawner *spawner) {
  pthread_mutex_lock(&spawner->mutex);
  bool ended = spawner->ended;
  pthread_mutex_unlock(&spawner->mutex);
  return ended;
}

void spawner_serve(struct spawner *spawner, void (*signalled)(void *context, int number),
                   void *context) {
  struct pollfd fds[] = {{.fd = spawner->wake_fd, .events = POLLIN},
                         {.fd = spawner->signal_fd, .events = POLLIN}};
  while (!is_ended(spawner)) {
    if (poll(fds, ARRAY_LENGTH(fds), -1) < 0 && errno != EINTR)
      die("poll: %s", strerror(errno));
    uint64_t count;
    (void)!read(spawner->wake_fd, &count, sizeof count);
    struct signalfd_siginfo info;
    while (read(spawner->signal_fd, &info, sizeof info) == sizeof info)
      signalled(context, (int)info.ssi_signo);
    serve_request(spawner);
  }
}

void spawner_end(struct spawner *spawner) {
  pthread_mutex_lock(&spawner->mutex);
  spawner->ended = true;
  pthread_cond_broadcast(&spawner->changed);
  pthread_mutex_unlock(&spawner->mutex);
  spawner_wake(spawner);
}

bool spawner_spawn(struct spawner *spawner, char *const *environment, struct spawned *ret_spawned,
                   struct error *error) {
  pthread_mutex_lock(&spawner->mutex);
  while (spawner->requested && !spawner->ended) /* another thread's turn */
    pthread_cond_wait(&spawner->changed, &spawner->mutex);
  bool ok = false;
  if (!spawner->ended) {
    spawner->requested = true;
    spawner->answered = false;
    spawner->environment = environment;
    spawner_wake(spawner);
    while (!spawner->answered && !spawner->ended)
      pthread_cond_wait(&spawner->changed, &spawner->mutex);
    ok = spawner->answered && spawner->ok;
    if (ok)
      *ret_spawned = spawner->spawned;
    else if (spawner->answered)
      *error = spawner->error;
    else
      error_set(error, "no worker is started any more: the agent ends");
    spawner->requested = false;
    pthread_cond_broadcast(&spawner->changed);
  } else {
    error_set(error, "no worker is started any more: the agent ends");
  }
  pthread_mutex_unlock(&spawner->mutex);
  return ok;
}
