/* Looking for others on the devices. */
#include "agent/run/yield.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/commands.h"
#include "agent/worker/worker_client.h"
#include "common/base/log.h"

#define LOOK_MS 2000 /* for one look; a driver that is busy takes milliseconds */
#define NO_REASON "the busy file exists"

struct yield_watch {
  bool looks_at_processes;
  const char *busy_file; /* NULL: none */
  int64_t quiet_ns;
  struct worker_client *looker; /* NULL: it is started by the next look */
  int64_t seen_ms;              /* clock_monotonic_ms of the last look that did not fail */
};

/* The first line of a file, as a text for people; NULL: there is no such file. The caller's. */
static char *line_of(const char *path) {
  char line[YIELD_REASON_SIZE] = "";
  cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    return NULL;

  ssize_t size = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
  line[size > 0 ? size : 0] = '\0';
  line[strcspn(line, "\r\n")] = '\0';
  for (char *at = line; *at; at++)
    if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f)
      *at = '?';
  return xstrdup(*line ? line : NO_REASON);
}

/* Asks a worker which other programs use the devices: *ret_users is an object of texts (new
 * reference). */
static bool users_look(struct agent *agent, json_t **ret_users, struct error *error) {
  struct yield_watch *watch = agent->yield;
  const struct worker_limits limits = {LOOK_MS, LOOK_MS};
  if (!watch->looker && !worker_start(agent->supervisor->spawner, limits, &watch->looker, error))
    return false;

  json_t *devices = json_array();
  cleanup_json json_t *request = json_pack("{s:s, s:o}", "do", "look", "devices", devices);
  array_foreach (thread, agent->threads, agent->n_threads) {
    const struct device_seen *device = thread->device;
    if (!device_is_gpu(device))
      continue;
    json_push(devices, json_pack("{s:s, s:O?}", "device", device->name, "facts",
                                 json_object_get(device->json, "facts")));
  }

  cleanup_json json_t *answer = NULL;
  struct worker_end end;
  worker_request(watch->looker, request);
  enum worker_event event = worker_next(watch->looker, NULL, NULL, NULL, &answer, &end);
  if (event != WORKER_ANSWER) {
    worker_abandon(TAKE(watch->looker));
    return error_set(error, "the process that looks was %s", end.detail);
  }

  const char *reason = json_text(answer, "error");
  json_t *users = json_object_get(answer, "users");
  if (!json_is_object(users))
    return error_set(error, "%s", reason ? reason : "the worker gave no reason");
  *ret_users = json_incref(users);
  return true;
}

/* Notes the result of a look. A device that was just yielded waits for nothing any more. */
static void use_note(struct device_thread *thread, const char *reason, int64_t look_ns) {
  struct agent *agent = thread->agent;
  pthread_mutex_lock(&agent->mutex);
  bool changed = device_use_note(&thread->use, reason, look_ns, agent->yield->quiet_ns);
  bool is_yielded = thread->use.is_yielded;
  if (changed) {
    agent->must_beat = agent->must_renew = true;
    pthread_cond_broadcast(&agent->changed);
  }
  pthread_mutex_unlock(&agent->mutex);

  if (!changed)
    return;
  if (is_yielded)
    http_client_cancel(thread->client);
  if (is_yielded)
    log_info("device: %s is given back: %s", thread->device->name, reason);
  else
    log_info("device: %s has been free for %lld s; it works again", thread->device->name,
             (long long)option_integer(agent->options, "free-seconds"));
}

/* One look at all devices. False: the processes could not be seen. */
static bool look(struct agent *agent, struct error *error) {
  struct yield_watch *watch = agent->yield;
  int64_t look_ns = clock_monotonic_ns();
  cleanup_json json_t *users = NULL;
  bool is_seen = !watch->looks_at_processes || users_look(agent, &users, error);
  if (is_seen)
    watch->seen_ms = clock_monotonic_ms();
  bool is_blind = !is_seen && clock_monotonic_ms() - watch->seen_ms >= YIELD_BLIND_MS;

  array_foreach (thread, agent->threads, agent->n_threads) {
    bool is_gpu = device_is_gpu(thread->device);
    struct stat status;
    const char *user = json_text(users, thread->device->name);
    bool is_folder =
        watch->busy_file && stat(watch->busy_file, &status) == 0 && S_ISDIR(status.st_mode);
    cleanup_free char *busy = is_folder ? xasprintf("%s/%s", watch->busy_file, thread->device->name)
                              : watch->busy_file ? xstrdup(watch->busy_file)
                                                 : NULL;
    cleanup_free char *reason = busy ? line_of(busy) : NULL;
    if (!reason && user)
      reason = xasprintf("%.100s uses it", user);
    if (!reason && is_blind && is_gpu)
      reason = xstrdup("the processes that use it cannot be seen");
    if (reason || is_seen || !is_gpu)
      use_note(thread, reason, look_ns);
  }
  return is_seen;
}

bool yield_prepare(struct agent *agent, struct error *error) {
  bool looks = option_flag(agent->options, "yield-when-busy");
  const char *busy_file = option_text(agent->options, "busy-file");
  bool sees_processes = false;
  if (!looks && !busy_file)
    return true;

  array_foreach (thread, agent->threads, agent->n_threads)
    sees_processes = sees_processes || device_is_gpu(thread->device);
  if (looks && !sees_processes && !busy_file)
    return error_set(error, "--yield-when-busy sees other processes on GPUs only, and this agent "
                            "uses none; give --busy-file");

  agent->yield = xcalloc(1, sizeof *agent->yield);
  *agent->yield = (struct yield_watch){
      .looks_at_processes = looks && sees_processes,
      .busy_file = busy_file,
      .quiet_ns = option_integer(agent->options, "free-seconds") * INT64_C(1000000000),
      .seen_ms = clock_monotonic_ms(),
  };
  return look(agent, error) || error_prefix(error, "--yield-when-busy: ");
}

void yield_release(struct agent *agent) {
  if (agent->yield && agent->yield->looker)
    worker_abandon(agent->yield->looker);
  free(TAKE(agent->yield));
}

void *yield_run(void *context) {
  struct agent *agent = context;
  bool was_seen = true;
  MAGIC_CHECK(agent, AGENT_MAGIC);

  while (!agent_flag(agent, &agent->is_measured)) {
    struct error error;
    bool is_seen = look(agent, &error);
    if (!is_seen && was_seen)
      log_warning("devices: other processes cannot be seen: %s", error.message);
    was_seen = is_seen;
    agent_wait(agent, YIELD_LOOK_MS, &agent->must_look);
  }
  return NULL;
}

bool device_is_yielded(struct device_thread *thread) {
  HOLD(&thread->agent->mutex);
  return thread->use.n_yields != thread->n_yields_served;
}

bool device_settle(struct device_thread *thread) {
  HOLD(&thread->agent->mutex);
  if (!thread->use.is_yielded)
    thread->n_yields_served = thread->use.n_yields;
  return !thread->use.is_yielded;
}

int64_t device_clean_ns(struct device_thread *thread) {
  struct agent *agent = thread->agent;
  if (!agent->yield)
    return INT64_MAX;
  HOLD(&agent->mutex);
  return thread->use.n_yields == thread->n_yields_served ? thread->use.clean_ns : 0;
}

void device_wait(struct device_thread *thread, int64_t timeout_ms) {
  struct agent *agent = thread->agent;
  struct timespec end = time_in(timeout_ms);
  HOLD(&agent->mutex);
  while (!agent->stopping && thread->use.n_yields == thread->n_yields_served &&
         pthread_cond_timedwait(&agent->changed, &agent->mutex, &end) == 0)
    continue;
}

char *device_yield_reason(struct device_thread *thread) {
  HOLD(&thread->agent->mutex);
  return xstrdup(thread->use.reason);
}

void yield_state(struct agent *agent, struct heartbeat *heartbeat) {
  if (!agent->yield)
    return;
  struct heartbeat_yield *all = xcalloc(agent->n_threads + 1, sizeof *all);
  size_t n = 0;
  int64_t now_ns = clock_monotonic_ns();
  HOLD(&agent->mutex);
  array_foreach (thread, agent->threads, agent->n_threads) {
    if (thread->use.is_yielded)
      all[n++] =
          (struct heartbeat_yield){xstrdup(thread->device->name), xstrdup(thread->use.reason),
                                   (now_ns - thread->use.since_ns) / 1000000};
  }
  heartbeat->yielded = (struct records){n, all};
}
