/* The parent's side of a worker. One thread at a time; owns the child until it is reaped. */
#include "agent/worker/worker_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "agent/worker/worker_answers.h"
#include "agent/worker/worker_bundle.h"
#include "common/base/log.h"

#define POLL_MS 50
#define LEAVE_MS 2000 /* a GPU runtime unloads in well under a second */
#define KILL_MS 10000 /* a process that a driver holds does not die at all */
#define EPITAPH_MS 1000
#define PUSH_MS 10000 /* it has nothing else to do than to read */
#define READ_SIZE 65536
#define UNASKED_READS 256
/* of a config that has a limit each: loading, checking, warming up, a last look */
#define PHASES_ONCE 4
#define PRINTED_MAX ((size_t)64 << 10)
#define PRINTED_LINE 16 /* what a line counts for beside its text */

struct worker_client {
  struct spawned process;
  bool is_reaped;
  struct worker_limits limits;
  size_t printed; /* bytes of its output */
  bool is_mute;   /* it has closed that */
  char *out;      /* a request and its newline, not sent from `sent` on */
  size_t out_size, sent;
  int out_fds[WORKER_REQUEST_FDS]; /* they go with the first byte */
  size_t n_out_fds;
  struct worker_answers answers;
  /* What the page said last, and since when by our own clock: a kernel may scribble over the
   * page's. */
  uint64_t seen_config;
  int seen_phase;
  int64_t seen_since_ns, changed_ms;
  int64_t asked_ms,
      whole_ms; /* when it was asked, and what a request may take in all, whatever the page says */
};

bool worker_start(struct spawner *spawner, struct worker_limits limits,
                  struct worker_client **ret_worker, struct error *error) {
  return worker_start_under(spawner, NULL, limits, ret_worker, error);
}

bool worker_start_under(struct spawner *spawner, char *const *environment,
                        struct worker_limits limits, struct worker_client **ret_worker,
                        struct error *error) {
  struct spawned process;
  if (!spawner_spawn(spawner, environment, &process, error))
    return false;
  struct worker_client *worker = xcalloc(1, sizeof *worker);
  worker->process = process;
  worker->limits = limits;
  *ret_worker = worker;
  return true;
}

static void sleep_ms(int64_t ms) {
  struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Reaps the child within timeout_ms. */
static bool worker_reap(struct worker_client *worker, int64_t timeout_ms, int *ret_status) {
  int64_t until_ms = clock_monotonic_ms() + timeout_ms;
  for (;;) {
    pid_t pid = waitpid(worker->process.pid, ret_status, WNOHANG);
    if (pid == worker->process.pid) {
      worker->is_reaped = true;
      return true;
    }
    if (pid < 0 && errno != EINTR)
      die("waitpid: %s", strerror(errno));
    if (clock_monotonic_ms() >= until_ms)
      return false;
    sleep_ms(2);
  }
}

/* The group dies as a whole: a kernel may have started something. It is killed before the leader is
 * reaped, while its number cannot be another's. */
static bool worker_kill(struct worker_client *worker, int *ret_status) {
  kill(-worker->process.pid, SIGKILL);
  kill(worker->process.pid, SIGKILL);
  if (worker->process.cgroup)
    cgroup_kill(worker->process.cgroup);
  if (worker_reap(worker, KILL_MS, ret_status))
    return true;
  log_error(
      "worker: process %d cannot be killed: its device driver holds it; the device needs a reset",
      (int)worker->process.pid);
  return false;
}

/* Whether the child has ended, without reaping it. */
static bool worker_has_ended(const struct worker_client *worker, int64_t timeout_ms) {
  int64_t until_ms = clock_monotonic_ms() + timeout_ms;
  for (;;) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)worker->process.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid)
      return true;
    if (clock_monotonic_ms() >= until_ms)
      return false;
    sleep_ms(2);
  }
}

static int fd_duplicate(int fd) {
  int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0)
    die("cannot duplicate a file descriptor: %s", strerror(errno));
  return duplicate;
}

static void out_fds_close(struct worker_client *worker) {
  for (size_t i = 0; i < worker->n_out_fds; i++)
    close(worker->out_fds[i]);
  worker->n_out_fds = 0;
}

void worker_dismiss(struct worker_client *worker) {
  (void)shutdown(worker->process.socket, SHUT_RDWR);
}

/* Passes on what the worker printed, each line with where it comes from, as far as it is not more
 * than anyone wants to read. The rest is dropped. */
static void output_pass_on(struct worker_client *worker) {
  char bytes[1536]; /* a line of the log has room for them */
  for (ssize_t n; (n = read(worker->process.output, bytes, sizeof bytes - 1)) > 0;) {
    bytes[n] = '\0';
    for (char *nul = bytes; (nul = memchr(nul, '\0', (size_t)(bytes + n - nul)));)
      *nul = ' '; /* or what comes behind it would be lost */
    char *rest = bytes;
    for (char *text; worker->printed < PRINTED_MAX && (text = strsep(&rest, "\n"));) {
      worker->printed += strlen(text) + PRINTED_LINE;
      if (*text)
        log_info("worker: pid=%d %s", (int)worker->process.pid, text);
      if (worker->printed >= PRINTED_MAX)
        log_warning("worker: pid=%d prints too much, the rest is dropped",
                    (int)worker->process.pid);
    }
  }
}

static void worker_release_within(struct worker_client *worker, int64_t leave_ms) {
  int status;
  close(worker->process.socket);
  if (!worker->is_reaped) {
    (void)worker_has_ended(worker, leave_ms);
    (void)worker_kill(worker, &status);
  }
  output_pass_on(worker);
  close(worker->process.output);
  munmap(worker->process.status, sizeof *worker->process.status);
  cgroup_free(worker->process.cgroup);
  out_fds_close(worker);
  free(worker->out);
  worker_answers_release(&worker->answers);
  free(worker);
}

void worker_free(struct worker_client *worker) { worker_release_within(worker, LEAVE_MS); }

void worker_abandon(struct worker_client *worker) { worker_release_within(worker, 0); }

static void page_read(struct worker_client *worker, bool is_new) {
  const struct worker_status *status = worker->process.status;
  uint64_t config = atomic_load(&status->config);
  int phase = atomic_load(&status->phase);
  int64_t since_ns = atomic_load(&status->since_ns);
  if (!is_new && config == worker->seen_config && phase == worker->seen_phase &&
      since_ns == worker->seen_since_ns)
    return;
  worker->seen_config = config;
  worker->seen_phase = phase;
  worker->seen_since_ns = since_ns;
  worker->changed_ms = clock_monotonic_ms();
}

/* Whether the socket is still open. */
static bool worker_receive(struct worker_client *worker) {
  char *room = worker_answers_room(&worker->answers, READ_SIZE);
  ssize_t n = recv(worker->process.socket, room, READ_SIZE, MSG_DONTWAIT);
  if (n > 0)
    worker->answers.size += (size_t)n;
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void worker_ask(struct worker_client *worker, const json_t *request) {
  struct error error;
  ALWAYS(!json_object_get(request, "objects") && worker_ask_with(worker, request, -1, &error));
}

/* Opening, and the phases of each config and of the baseline, which has a turn beside each. A
 * kernel that writes to the page all the time would have no deadline otherwise. */
static int64_t request_limit_ms(const struct worker_limits *limits, const json_t *request) {
  int64_t n_configs = (int64_t)json_array_size(json_object_get(request, "configs"));
  int64_t rounds = json_integer_value(json_object_get(request, "rounds_max"));
  return limits->open_ms + (n_configs + 1) * (PHASES_ONCE + 2 * rounds) * limits->config_ms;
}

bool worker_ask_with(struct worker_client *worker, const json_t *request, int fd,
                     struct error *error) {
  cleanup_json json_t *whole = json_copy((json_t *)request);
  int bundle_fd = -1;
  ALWAYS(worker->sent == worker->out_size);
  if (!bundle_pack(whole, &bundle_fd, error))
    return false;
  free(worker->out);
  out_fds_close(worker);
  if (bundle_fd >= 0)
    worker->out_fds[worker->n_out_fds++] = bundle_fd;
  if (fd >= 0)
    worker->out_fds[worker->n_out_fds++] = fd_duplicate(fd);
  /* Not canonical: the order of a space's parameters has a meaning. */
  cleanup_free char *text = json_dumps(whole, JSON_COMPACT);
  ALWAYS(text != NULL);
  worker->out = xasprintf("%s\n", text);
  worker->out_size = strlen(worker->out);
  worker->sent = 0;
  /* A line to each config, and one more. What it said unasked is no answer to this. */
  worker->asked_ms = clock_monotonic_ms();
  worker->whole_ms = request_limit_ms(&worker->limits, request);
  for (int i = 0; i < UNASKED_READS && worker_receive(worker) && worker->answers.size; i++)
    worker->answers.size = 0;
  worker_answers_expect(&worker->answers, json_array_size(json_object_get(request, "configs")) + 1);
  page_read(worker, true);
  return true;
}

static const char *phase_verb(int phase) {
  switch (phase) {
  case WORKER_OPENING:
    return "opening";
  case WORKER_LOADING:
    return "loading";
  case WORKER_CHECKING:
    return "checking";
  case WORKER_TIMING:
    return "timing";
  default:
    return "idle";
  }
}

static int64_t phase_limit_ms(const struct worker_client *worker) {
  bool is_config = worker->seen_phase >= WORKER_LOADING && worker->seen_phase <= WORKER_TIMING;
  return is_config ? worker->limits.config_ms : worker->limits.open_ms;
}

/* Who the page names, and for how long it did. */
static struct worker_end end_of_turn(const struct worker_client *worker) {
  return (struct worker_end){.config = worker->seen_config,
                             .turn_us = (clock_monotonic_ms() - worker->changed_ms) * 1000};
}

/* One that may start no more threads, say, waits for them for ever. */
static void append_overstepped(const struct worker_client *worker, struct worker_end *ret_end) {
  const char *why = worker->process.cgroup ? cgroup_overstepped(worker->process.cgroup) : NULL;
  size_t length = strlen(ret_end->detail);
  if (why)
    snprintf(ret_end->detail + length, sizeof ret_end->detail - length, ": %s", why);
}

static void end_describe(const struct worker_client *worker, int status,
                         struct worker_end *ret_end) {
  const char *verb = phase_verb(worker->seen_phase);
  if (WIFSIGNALED(status))
    snprintf(ret_end->detail, sizeof ret_end->detail, "killed by signal %d (%s) while %s",
             WTERMSIG(status), strsignal(WTERMSIG(status)), verb);
  else
    snprintf(ret_end->detail, sizeof ret_end->detail, "the worker exited with code %d while %s",
             WEXITSTATUS(status), verb);
  append_overstepped(worker, ret_end);
}

/* The socket has closed: the child has ended or is about to. */
static enum worker_event worker_crashed(struct worker_client *worker, struct worker_end *ret_end) {
  int status = 0;
  page_read(worker, false);
  *ret_end = end_of_turn(worker);
  bool has_ended = worker_has_ended(worker, LEAVE_MS);
  bool is_dead = worker_kill(worker, &status);
  if (has_ended && is_dead)
    end_describe(worker, status, ret_end);
  else
    snprintf(ret_end->detail, sizeof ret_end->detail, "the worker closed its socket and went on");
  return WORKER_CRASHED;
}

static enum worker_event worker_hung(struct worker_client *worker, struct worker_end *ret_end) {
  int status;
  *ret_end = end_of_turn(worker);
  /* Opening fills the inputs and computes the reference: of a large key that takes long and is
   * nobody's fault. */
  snprintf(ret_end->detail, sizeof ret_end->detail, "killed after %.3g s of %s%s",
           (double)phase_limit_ms(worker) / 1000, phase_verb(worker->seen_phase),
           worker->seen_phase == WORKER_OPENING ? " (--open-timeout)" : "");
  append_overstepped(worker, ret_end);
  (void)worker_kill(worker, &status);
  return WORKER_HUNG;
}

static enum worker_event worker_endless(struct worker_client *worker, struct worker_end *ret_end) {
  int status;
  *ret_end = end_of_turn(worker);
  snprintf(ret_end->detail, sizeof ret_end->detail,
           "killed after %.3g s in all, which is more than all its turns may take",
           (double)worker->whole_ms / 1000);
  append_overstepped(worker, ret_end);
  (void)worker_kill(worker, &status);
  return WORKER_HUNG;
}

static enum worker_event worker_stop(struct worker_client *worker, struct worker_end *ret_end) {
  int status;
  *ret_end = end_of_turn(worker);
  snprintf(ret_end->detail, sizeof ret_end->detail, "stopped");
  (void)worker_kill(worker, &status);
  return WORKER_STOPPED;
}

static enum worker_event worker_babbled(struct worker_client *worker, const char *what,
                                        struct worker_end *ret_end) {
  int status;
  *ret_end = end_of_turn(worker);
  snprintf(ret_end->detail, sizeof ret_end->detail, "the worker's answer is none: %.200s", what);
  (void)worker_kill(worker, &status);
  return WORKER_CRASHED;
}

static void worker_send(struct worker_client *worker) {
  ssize_t n = descriptors_send(worker->process.socket, worker->out + worker->sent,
                               worker->out_size - worker->sent, worker->out_fds, worker->n_out_fds);
  if (n > 0) {
    worker->sent += (size_t)n;
    out_fds_close(worker);
  }
  if (n < 0 && errno != EAGAIN && errno != EINTR)
    worker->sent = worker->out_size; /* nobody reads it; receiving will say why */
}

enum worker_event worker_next(struct worker_client *worker, bool (*stopped)(void *context),
                              void *context, _Atomic uint64_t *current, json_t **ret_answer,
                              struct worker_end *ret_end) {
  for (;;) {
    struct error error;
    enum worker_line line = worker_answers_next(&worker->answers, ret_answer, &error);
    if (line != WORKER_LINE_MISSING)
      page_read(worker, true);
    if (line == WORKER_LINE_WRONG)
      return worker_babbled(worker, error.message, ret_end);
    if (line == WORKER_LINE_WHOLE && worker->sent < worker->out_size) {
      json_decref(TAKE(*ret_answer));
      return worker_babbled(worker, "it answered a request that it had not read", ret_end);
    }
    if (line == WORKER_LINE_WHOLE)
      return WORKER_ANSWER;
    if (stopped && stopped(context))
      return worker_stop(worker, ret_end);
    page_read(worker, false);
    if (current)
      atomic_store(current, worker->seen_config);
    if (clock_monotonic_ms() - worker->changed_ms >= phase_limit_ms(worker))
      return worker_hung(worker, ret_end);
    if (clock_monotonic_ms() - worker->asked_ms >= worker->whole_ms)
      return worker_endless(worker, ret_end);
    bool is_sending = worker->sent < worker->out_size;
    struct pollfd fds[] = {
        {worker->process.socket, (short)(POLLIN | (is_sending ? POLLOUT : 0)), 0},
        {worker->is_mute ? -1 : worker->process.output, POLLIN, 0}};
    if (poll(fds, ARRAY_LENGTH(fds), POLL_MS) <= 0)
      continue;
    if (fds[1].revents)
      output_pass_on(worker);
    worker->is_mute = worker->is_mute || (fds[1].revents & (POLLHUP | POLLERR));
    if (fds[0].revents & POLLOUT)
      worker_send(worker);
    if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) && !worker_receive(worker))
      return worker_crashed(worker, ret_end);
  }
}

void worker_push(struct worker_client *worker) {
  int64_t deadline_ms = clock_monotonic_ms() + PUSH_MS;
  while (worker->sent < worker->out_size && clock_monotonic_ms() < deadline_ms) {
    struct pollfd fd = {.fd = worker->process.socket, .events = POLLOUT};
    if (poll(&fd, 1, POLL_MS) > 0)
      worker_send(worker);
  }
}

static bool deadline_is_over(void *context) {
  return clock_monotonic_ms() >= *(const int64_t *)context;
}

char *worker_epitaph(struct worker_client *worker, bool *ret_has_said) {
  int64_t deadline_ms = clock_monotonic_ms() + EPITAPH_MS;
  cleanup_json json_t *answer = NULL;
  struct worker_end end;
  enum worker_event event =
      worker_next(worker, deadline_is_over, &deadline_ms, NULL, &answer, &end);
  const char *reason = json_string_value(json_object_get(answer, "error"));
  *ret_has_said = event == WORKER_ANSWER && reason;
  return xstrdup(event == WORKER_CRASHED ? end.detail : reason ? reason : "it closed its socket");
}
