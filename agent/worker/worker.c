/* The worker's loop: reads requests, one JSON object a line, and answers them. */
#include "agent/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "agent/worker/worker_process.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define SPOILED_EXIT 3
#define OOM_SCORE "800"

void worker_status_set(struct worker *worker, enum worker_phase phase, uint64_t config) {
  struct worker_status *status = worker->status;
  if (atomic_load(&status->phase) == (int)phase && atomic_load(&status->config) == config)
    return;
  atomic_store(&status->since_ns, clock_monotonic_ns());
  atomic_store(&status->config, config);
  atomic_store(&status->phase, phase);
}

void worker_turn_take(struct worker *worker, uint64_t config) {
  worker_status_set(worker, WORKER_TIMING, config);
  atomic_store(&worker->status->since_ns, clock_monotonic_ns());
}

bool worker_answer(json_t *taken) {
  cleanup_json json_t *message = taken;
  cleanup_free char *text = json_dumps(message, JSON_COMPACT);
  ALWAYS(text != NULL);
  size_t length = strlen(text);
  text[length] = '\n';
  return fd_write_all(WORKER_SOCKET_FD, text, length + 1);
}

bool worker_answer_error(const struct error *error) {
  return worker_answer(json_pack("{s:s}", "error", error->message));
}

no_return void worker_leave(struct worker *worker) {
  if (worker->problem->is_lost)
    worker_status_set(worker, WORKER_IDLE, WORKER_CONFIG_NONE);
  _exit(SPOILED_EXIT);
}

static bool answer_probe(struct worker *worker, const json_t *request) {
  struct error error;
  json_t *devices = NULL, *absent = NULL;
  (void)worker, (void)request;
  if (!devices_probe(&devices, &absent, &error))
    return worker_answer_error(&error);
  return worker_answer(json_pack("{s:o, s:o}", "devices", devices, "absent", absent));
}

struct looked_device {
  char *device;
  json_t *facts;
};
struct look {
  struct records devices; /* struct looked_device */
};
static const struct field looked_device_fields[] = {
    RECORD_FIELD(TEXT, struct looked_device, device, FIELD_REQUIRED),
    RECORD_FIELD(JSON, struct looked_device, facts, FIELD_OBJECT),
};
static const struct record looked_device_record =
    RECORD(NULL, struct looked_device, looked_device_fields);
static const struct field look_fields[] = {
    RECORD_FIELD(RECORDS, struct look, devices, FIELD_REQUIRED, .of = &looked_device_record),
};
static const struct record look_record = RECORD(NULL, struct look, look_fields);

static bool users_find(const struct look *look, json_t *users, struct error *error) {
  const struct looked_device *devices = look->devices.all;
  array_foreach (listed, devices, look->devices.n) {
    struct device_user user;
    if (!device_user_find(listed->device, listed->facts, &user, error))
      return false;
    if (user.pid)
      json_put(users, listed->device,
               json_sprintf("process %lld%s%s%s", (long long)user.pid, *user.name ? " (" : "",
                            user.name, *user.name ? ")" : ""));
  }
  return true;
}

static bool answer_look(struct worker *worker, const json_t *request) {
  cleanup_json json_t *users = json_object();
  struct look look = {0};
  struct error error;
  (void)worker;
  bool ok =
      record_read(&look_record, request, "", &look, &error) && users_find(&look, users, &error);
  record_release(&look_record, &look);
  return ok ? worker_answer(json_pack("{s:O}", "users", users)) : worker_answer_error(&error);
}

static const struct field requested_config_fields[] = {
    RECORD_FIELD(INTEGER, struct requested_config, config, FIELD_REQUIRED, .least = 0,
                 .most = INT64_MAX),
    RECORD_FIELD(TEXT, struct requested_config, object, FIELD_REQUIRED),
    RECORD_FIELD(CUSTOM, struct requested_config, launch, FIELD_OBJECT,
                 .custom = &launch_spec_custom),
};
const struct record requested_config_record =
    RECORD(NULL, struct requested_config, requested_config_fields);

bool worker_object_place(struct worker *worker, struct bundle_places *places, char **object,
                         struct error *error) {
  cleanup_free char *path = TAKE(*object);
  int bundle_fd = worker->n_fds ? worker->fds[0] : -1;
  return !path || bundle_place(places, worker->bundle, bundle_fd, path, object, error);
}

bool worker_config_prepare(struct worker *worker, struct bundle_places *places, const char *pointer,
                           struct requested_config *config, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!config->launch.cluster) /* absent: one that is read has at least 1 */
    config->launch = launch_spec_default();
  return worker_object_place(worker, places, &config->object, error) ||
         error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "object"));
}

/* False when the supervisor is gone. */
static bool request_answer(struct worker *worker, const char *text, size_t size) {
  static const struct {
    const char *name;
    bool (*function)(struct worker *worker, const json_t *request);
    bool has_members;
  } requests[] = {{"probe", answer_probe, false},
                  {"look", answer_look, true},
                  {"sentinel", worker_answer_sentinel, true},
                  {"reference", worker_answer_reference, true},
                  {"open", worker_answer_open, true},
                  {"measure", worker_answer_measure, true},
                  {"close", worker_answer_close, false}};
  static const char *const no_members[] = {NULL};
  cleanup_json json_t *request = NULL, *bundle = NULL;
  cleanup_free char *name = NULL;
  const char *verb = NULL;
  struct error error;
  if (!json_parse(text, size, &request, &error) ||
      !json_get_string(request, "", "do", JSON_REQUIRED, &verb, &error))
    return worker_answer_error(&error);

  /* Removes the members that every request may have: each function refuses unknown ones. */
  name = xstrdup(verb);
  worker->bundle = bundle = json_incref(json_object_get(request, "bundle"));
  json_object_del(request, "do");
  json_object_del(request, "bundle");

  list_foreach (kind, requests) {
    if (!string_equal(name, kind->name))
      continue;
    bool is_valid = kind->has_members || json_only_members(request, "", no_members, &error);
    bool answered = is_valid ? kind->function(worker, request) : worker_answer_error(&error);
    for (; worker->n_fds; worker->n_fds--)
      close(worker->fds[worker->n_fds - 1]);
    worker_status_set(worker, WORKER_IDLE, WORKER_CONFIG_NONE);
    return answered;
  }

  error_at(&error, "/do",
           "\"%.40s\" is not a request; a worker answers probe, look, sentinel, reference, "
           "open, measure and close",
           name);
  return worker_answer_error(&error);
}

/* The next line, without its end; false when the socket is closed or the line is too long. */
static bool line_read(struct worker *worker, char **ret_line, size_t *ret_size) {
  memmove(worker->line, worker->line + worker->line_end, worker->line_used - worker->line_end);
  worker->line_used -= worker->line_end;
  worker->line_end = 0;

  for (size_t searched = 0;;) {
    char *end = memchr(worker->line + searched, '\n', worker->line_used - searched);
    if (end) {
      worker->line_end = (size_t)(end - worker->line) + 1;
      *ret_line = worker->line;
      *ret_size = worker->line_end - 1;
      return true;
    }
    searched = worker->line_used;
    if (worker->line_used == WORKER_LINE_MAX) {
      log_error("worker: a request is longer than %d bytes", WORKER_LINE_MAX);
      return false;
    }
    ssize_t n = descriptors_receive(WORKER_SOCKET_FD, worker->line + worker->line_used,
                                    WORKER_LINE_MAX - worker->line_used, worker->fds,
                                    WORKER_REQUEST_FDS, &worker->n_fds);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    worker->line_used += (size_t)n;
  }
}

int worker_main(void) {
  struct worker worker = {0};
  struct rlimit limit;

  signal(SIGPIPE, SIG_IGN);

  /* Not done between fork and exec: then the process is hidden like its parent, and root owns its
   * files in /proc. */
  int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    (void)!write(score, OOM_SCORE, sizeof OOM_SCORE - 1);
    close(score);
  }

  /* Each loaded object takes a file descriptor. */
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){limit.rlim_max, limit.rlim_max});

  worker.status =
      mmap(NULL, sizeof *worker.status, PROT_READ | PROT_WRITE, MAP_SHARED, WORKER_STATUS_FD, 0);
  if (worker.status == MAP_FAILED) {
    log_error("worker: fd %d is not a shared page: %s; workers are started by `wavetune-agent run` "
              "and `tune`",
              WORKER_STATUS_FD, strerror(errno));
    return 2;
  }

  worker.line = xmalloc(WORKER_LINE_MAX);
  worker_status_set(&worker, WORKER_IDLE, WORKER_CONFIG_NONE);
  char *line;
  size_t size;

  while (line_read(&worker, &line, &size) && request_answer(&worker, line, size))
    continue;
  worker_release(&worker);
  munmap(worker.status, sizeof *worker.status);
  free(worker.line);
  return 0;
}
