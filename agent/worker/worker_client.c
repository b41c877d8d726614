/* The supervisor's side of a worker. */
#include "agent/worker/worker_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/worker/worker_bundle.h"
#include "common/base/log.h"

#define POLL_MS 50
#define LEAVE_MS 2000 /* a GPU runtime unloads in well under a second */
#define KILL_MS 10000 /* a process that its driver blocks does not die at all */
#define DEATH_REASON_MS 1000
#define FLUSH_MS 10000 /* a worker that serves a reference only reads */
#define READ_SIZE 65536
#define STALE_READS 256
/* Phases of a config, each with its own limit: loading, checking, warming up, a last check. */
#define PHASES_ONCE 4
#define PRINTED_MAX ((size_t)64 << 10)
#define PRINTED_LINE 16 /* bytes that are counted for each line, in addition to its text */

struct worker_client {
  struct spawned process;
  bool is_reaped;
  struct worker_limits limits;
  size_t printed; /* bytes of its output */
  bool is_mute;   /* its output is closed */
  char *out;      /* a request and its newline */
  size_t out_size, sent;
  int out_fds[WORKER_REQUEST_FDS]; /* sent with the first byte */
  size_t n_out_fds;
  struct worker_answers answers;

  /* The page as it was read last, and when it changed by this process's clock: a kernel may write
   * to the page. */
  uint64_t seen_config;
  int seen_phase;
  int64_t seen_since_ns, changed_ms;
  int64_t requested_ms; /* when the request was made */
  int64_t whole_ms;     /* limit of the whole request, independent of the page */
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

/* Whether the child has ended, or does so within timeout_ms. It is not reaped. */
static bool worker_has_ended(const struct worker_client *worker, int64_t timeout_ms) {
  for (int64_t until_ms = clock_monotonic_ms() + timeout_ms;; usleep(2000)) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)worker->process.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid)
      return true;
    if (clock_monotonic_ms() >= until_ms)
      return false;
  }
}

void worker_strike(struct worker_client *worker) {
  if (!worker->is_reaped)
    kill(-worker->process.pid, SIGKILL);
}

/* Kills the whole group, because a kernel may have started processes, before the leader is reaped:
 * until then no other process can have its id. */
static bool worker_kill(struct worker_client *worker, int *ret_status) {
  pid_t pid = worker->process.pid;
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
  if (worker->process.cgroup)
    cgroup_kill(worker->process.cgroup);
  if (!worker_has_ended(worker, KILL_MS)) {
    log_error(
        "worker: process %d cannot be killed: its device driver blocks it; the device needs a "
        "reset",
        (int)pid);
    return false;
  }

  while (waitpid(pid, ret_status, 0) < 0)
    if (errno != EINTR)
      die("waitpid: %s", strerror(errno));

  worker->is_reaped = true;
  return true;
}

static void out_fds_close(struct worker_client *worker) {
  array_foreach (fd, worker->out_fds, worker->n_out_fds)
    close(*fd);
  worker->n_out_fds = 0;
}

void worker_dismiss(struct worker_client *worker) {
  (void)shutdown(worker->process.socket, SHUT_RDWR);
}

/* Logs each line that the worker printed, up to PRINTED_MAX bytes in all. */
static void output_log(struct worker_client *worker) {
  char bytes[1536]; /* a line of the log has room for them */
  for (ssize_t n; (n = read(worker->process.output, bytes, sizeof bytes - 1)) > 0;) {
    bytes[n] = '\0';
    for (char *nul = bytes; (nul = memchr(nul, '\0', (size_t)(bytes + n - nul)));)
      *nul = ' '; /* else the text after it would be lost */

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

  output_log(worker);
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

void worker_request(struct worker_client *worker, const json_t *request) {
  struct error error;
  ALWAYS(!json_object_get(request, "objects") && worker_request_with(worker, request, -1, &error));
}

bool worker_request_with(struct worker_client *worker, const json_t *request, int fd,
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
  if (fd >= 0) {
    int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0)
      die("cannot duplicate a file descriptor: %s", strerror(errno));
    worker->out_fds[worker->n_out_fds++] = duplicate;
  }

  /* Not canonical: the order of a space's parameters has a meaning. */
  cleanup_free char *text = json_dumps(whole, JSON_COMPACT);
  ALWAYS(text != NULL);
  worker->out = xasprintf("%s\n", text);
  worker->out_size = strlen(worker->out);
  worker->sent = 0;

  /* Opening, the phases of each config and of the baseline, and for each turn of a config one of
   * the baseline. Without this limit a kernel that keeps writing to the page would have no
   * deadline. */
  size_t n_configs = json_array_size(json_object_get(request, "configs"));
  int64_t rounds = json_integer_value(json_object_get(request, "rounds_max"));
  worker->requested_ms = clock_monotonic_ms();
  worker->whole_ms = worker->limits.open_ms + ((int64_t)n_configs + 1) *
                                                  (PHASES_ONCE + 2 * rounds) *
                                                  worker->limits.config_ms;

  /* Lines that were sent before do not answer this request, which may have one for each config and
   * one more. */
  for (int i = 0; i < STALE_READS && worker_receive(worker) && worker->answers.size; i++)
    worker->answers.size = 0;
  worker_answers_expect(&worker->answers, n_configs + 1);
  page_read(worker, true);
  return true;
}

static const char *phase_verb(const struct worker_client *worker) {
  static const char *const verbs[] = {"idle", "opening", "loading", "checking", "timing"};
  size_t phase = (size_t)worker->seen_phase;
  return verbs[phase < ARRAY_LENGTH(verbs) ? phase : 0];
}

static int64_t phase_limit_ms(const struct worker_client *worker) {
  bool is_config = worker->seen_phase >= WORKER_LOADING && worker->seen_phase <= WORKER_TIMING;
  return is_config ? worker->limits.config_ms : worker->limits.open_ms;
}

/* Fills *ret_end: the config on the page, since when, and why the worker ended: the reason, and the
 * limit of its cgroup that it exceeded (a process that cannot start more threads may wait for them
 * forever). */
static void printf_like(3, 4) end_describe(const struct worker_client *worker,
                                           struct worker_end *ret_end, const char *format, ...) {
  const char *exceeded = worker->process.cgroup ? cgroup_overstepped(worker->process.cgroup) : NULL;
  va_list arguments;
  *ret_end = (struct worker_end){.config = worker->seen_config,
                                 .turn_us = (clock_monotonic_ms() - worker->changed_ms) * 1000};
  va_start(arguments, format);
  vsnprintf(ret_end->detail, sizeof ret_end->detail, format, arguments);
  va_end(arguments);
  size_t length = strlen(ret_end->detail);
  if (exceeded)
    snprintf(ret_end->detail + length, sizeof ret_end->detail - length, ": %s", exceeded);
}

/* The socket has closed: the child has ended or is about to. */
static enum worker_event worker_crashed(struct worker_client *worker, struct worker_end *ret_end) {
  int status = 0;
  page_read(worker, false);
  int64_t turn_us = (clock_monotonic_ms() - worker->changed_ms) * 1000;
  bool has_ended = worker_has_ended(worker, LEAVE_MS), is_dead = worker_kill(worker, &status);
  if (!has_ended || !is_dead)
    end_describe(worker, ret_end, "the worker closed its socket and did not exit");
  else if (WIFSIGNALED(status))
    end_describe(worker, ret_end, "killed by signal %d (%s) while %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), phase_verb(worker));
  else
    end_describe(worker, ret_end, "the worker exited with code %d while %s", WEXITSTATUS(status),
                 phase_verb(worker));
  ret_end->turn_us = turn_us;
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
    worker->sent = worker->out_size; /* the worker does not read; worker_receive finds out why */
}

enum worker_event worker_next(struct worker_client *worker, bool (*stopped)(void *context),
                              void *context, _Atomic uint64_t *current, json_t **ret_answer,
                              struct worker_end *ret_end) {
  enum worker_event event;
  int status;

  for (;;) {
    struct error error;
    enum worker_line line = worker_answers_next(&worker->answers, ret_answer, &error);
    if (line != WORKER_LINE_MISSING)
      page_read(worker, true);
    if (line == WORKER_LINE_WHOLE && worker->sent == worker->out_size)
      return WORKER_ANSWER;
    if (line == WORKER_LINE_WHOLE) {
      json_decref(TAKE(*ret_answer));
      error_set(&error, "it answered before it had read the request");
    }
    if (line != WORKER_LINE_MISSING) {
      end_describe(worker, ret_end, "the worker's answer is invalid: %.200s", error.message);
      event = WORKER_CRASHED;
      break;
    }
    if (stopped && stopped(context)) {
      end_describe(worker, ret_end, "stopped");
      event = WORKER_STOPPED;
      break;
    }

    page_read(worker, false);
    if (current)
      atomic_store(current, worker->seen_config);
    if (clock_monotonic_ms() - worker->changed_ms >= phase_limit_ms(worker)) {
      /* Opening fills the inputs and computes the reference, which takes long for a large key. */
      end_describe(worker, ret_end, "killed after %.3g s of %s%s",
                   (double)phase_limit_ms(worker) / 1000, phase_verb(worker),
                   worker->seen_phase == WORKER_OPENING ? " (--open-timeout)" : "");
      event = WORKER_HUNG;
      break;
    }
    if (clock_monotonic_ms() - worker->requested_ms >= worker->whole_ms) {
      end_describe(worker, ret_end,
                   "killed after %.3g s in all, the sum of the limits of its turns",
                   (double)worker->whole_ms / 1000);
      event = WORKER_HUNG;
      break;
    }

    bool is_sending = worker->sent < worker->out_size;
    struct pollfd fds[] = {
        {worker->process.socket, (short)(POLLIN | (is_sending ? POLLOUT : 0)), 0},
        {worker->is_mute ? -1 : worker->process.output, POLLIN, 0}};
    if (poll(fds, ARRAY_LENGTH(fds), POLL_MS) <= 0)
      continue;

    if (fds[1].revents)
      output_log(worker);
    worker->is_mute = worker->is_mute || (fds[1].revents & (POLLHUP | POLLERR));
    if (fds[0].revents & POLLOUT)
      worker_send(worker);
    if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) && !worker_receive(worker))
      return worker_crashed(worker, ret_end);
  }

  (void)worker_kill(worker, &status);
  return event;
}

void worker_flush(struct worker_client *worker) {
  int64_t deadline_ms = clock_monotonic_ms() + FLUSH_MS;
  while (worker->sent < worker->out_size && clock_monotonic_ms() < deadline_ms) {
    struct pollfd fd = {.fd = worker->process.socket, .events = POLLOUT};
    if (poll(&fd, 1, POLL_MS) > 0)
      worker_send(worker);
  }
}

static bool deadline_is_over(void *context) {
  return clock_monotonic_ms() >= *(const int64_t *)context;
}

char *worker_death_reason(struct worker_client *worker, bool *ret_has_stated) {
  int64_t deadline_ms = clock_monotonic_ms() + DEATH_REASON_MS;
  cleanup_json json_t *answer = NULL;
  struct worker_end end;
  enum worker_event event =
      worker_next(worker, deadline_is_over, &deadline_ms, NULL, &answer, &end);
  const char *reason = json_text(answer, "error");
  *ret_has_stated = event == WORKER_ANSWER && reason;
  return xstrdup(event == WORKER_CRASHED ? end.detail : reason ? reason : "it closed its socket");
}

void worker_answers_release(struct worker_answers *answers) { free(answers->bytes); }

void worker_answers_expect(struct worker_answers *answers, size_t lines) {
  answers->size = answers->scanned = 0;
  answers->left = lines;
}

char *worker_answers_room(struct worker_answers *answers, size_t size) {
  if (answers->capacity - answers->size < size) {
    answers->capacity = answers->capacity * 2 + size;
    answers->bytes = xreallocarray(answers->bytes, answers->capacity, 1);
  }
  return answers->bytes + answers->size;
}

enum worker_line worker_answers_next(struct worker_answers *answers, json_t **ret_answer,
                                     struct error *error) {
  const char *newline =
      answers->size > answers->scanned
          ? memchr(answers->bytes + answers->scanned, '\n', answers->size - answers->scanned)
          : NULL;
  answers->scanned = newline ? 0 : answers->size;
  if (!newline && answers->size <= WORKER_LINE_MAX)
    return WORKER_LINE_MISSING;
  if (!newline) {
    error_set(error, "a line without an end");
    return WORKER_LINE_WRONG;
  }

  size_t length = (size_t)(newline - answers->bytes);
  cleanup_json json_t *answer = NULL;
  if (answers->left == 0) {
    error_set(error, "more lines than its request allows");
    return WORKER_LINE_WRONG;
  }

  if (!json_parse(answers->bytes, length, &answer, error))
    return WORKER_LINE_WRONG;
  if (!json_is_object(answer)) {
    error_set(error, "not an object");
    return WORKER_LINE_WRONG;
  }

  answers->left--;
  answers->size -= length + 1;
  memmove(answers->bytes, newline + 1, answers->size);
  *ret_answer = TAKE(answer);
  return WORKER_LINE_WHOLE;
}
