/* The worker: reads requests, one JSON object a line, and answers them. What it says is specified in agent/worker.h.
 *
 * Memory: a worker owns what its requests opened, until the process ends. Threads: one. */
#include "agent/worker.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>

#include "agent/machine_settings.h"
#include "agent/measure/check.h"
#include "agent/measure/rounds.h"
#include "common/file.h"
#include "common/log.h"

#define CONFIGS_MAX 4096 /* of one request */
#define SPOILED_EXIT 3
#define ROUNDS_MAX 10000

struct worker {
  struct worker_status *status;
  char *line; /* WORKER_LINE_MAX bytes, the next of which are unread */
  size_t line_used, line_end;
  /* Set by "open". */
  struct device *device;
  struct kernel *kernel;
  struct key key;
  struct space *space;
  uint64_t seed;
  struct problem *problem;
  struct timed baseline;
  json_t *settings; /* names of those that differ from what they should be */
};

static void status_set(struct worker *worker, enum worker_phase phase, uint64_t config) {
  struct worker_status *status = worker->status;
  if (atomic_load(&status->phase) == (int)phase && atomic_load(&status->config) == config)
    return;
  atomic_store(&status->since_ns, clock_monotonic_ns());
  atomic_store(&status->config, config);
  atomic_store(&status->phase, phase);
}

/* Each turn has a time limit of its own, so it shows also when the same config has the next. */
static void turn_take(void *context, uint64_t config) {
  struct worker *worker = context;
  status_set(worker, WORKER_TIMING, config);
  atomic_store(&worker->status->since_ns, clock_monotonic_ns());
}

/* Takes the answer. */
static bool answer(json_t *taken) {
  cleanup_json json_t *message = taken;
  cleanup_free char *text = json_dumps(message, JSON_COMPACT);
  ALWAYS(text != NULL);
  size_t length = strlen(text);
  text[length] = '\n';
  return fd_write_all(WORKER_SOCKET_FD, text, length + 1);
}

static bool answer_error(const struct error *error) { return answer(json_pack("{s:s}", "error", error->message)); }

/* The device cannot be trusted, whatever was asked of it. */
static bool answer_unfit(const struct error *error) {
  return answer(json_pack("{s:b, s:s}", "passed", 0, "error", error->message));
}

/* Ends what "open" made. */
static void worker_close(struct worker *worker) {
  if (worker->baseline.candidate)
    candidate_free(worker->problem, worker->baseline.candidate);
  timed_release(&worker->baseline);
  worker->baseline = (struct timed){0};
  if (worker->problem)
    problem_free(TAKE(worker->problem));
  if (worker->device)
    device_close(TAKE(worker->device));
  if (worker->space)
    space_free(TAKE(worker->space));
  key_release(&worker->key);
  worker->key = (struct key){0};
  if (worker->kernel)
    kernel_free(TAKE(worker->kernel));
  json_decref(TAKE(worker->settings));
}

/* Ends the process of a device that is out of order, at once: its runtime may hang when it is closed. The page names who
 * ran last, but not who only found the device lost. */
static _Noreturn void worker_leave(struct worker *worker) {
  if (worker->problem->is_lost)
    status_set(worker, WORKER_IDLE, WORKER_CONFIG_NONE);
  _exit(SPOILED_EXIT);
}

/* Names the machine's settings that disturb measurements, for the conditions of all that is measured from here on. */
static void settings_look(struct worker *worker) {
  cleanup_settings_findings struct settings_findings findings = {0};
  machine_settings_check("", &findings);
  worker->settings = settings_findings_differing(&findings);
}

static bool answer_probe(struct worker *worker, const json_t *request) {
  static const char *const members[] = {"do", NULL};
  struct error error;
  json_t *devices = NULL, *absent = NULL;
  (void)worker;
  if (!json_only_members(request, "", members, &error) || !devices_probe(&devices, &absent, &error))
    return answer_error(&error);
  return answer(json_pack("{s:o, s:o}", "devices", devices, "absent", absent));
}

/* Opens the device and lets it pass its sentinel. */
static bool device_trust(struct worker *worker, const char *name, struct error *error) {
  return device_open(name, &worker->device, error) && worker->device->ops->sentinel(worker->device, error);
}

static bool answer_sentinel(struct worker *worker, const json_t *request) {
  static const char *const members[] = {"do", "device", NULL};
  struct error error;
  const char *device = NULL;
  worker_close(worker);
  if (!json_only_members(request, "", members, &error) ||
      !json_get_string(request, "", "device", JSON_REQUIRED, &device, &error))
    return answer_error(&error);
  status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  bool passed = device_trust(worker, device, &error);
  bool answered = passed ? answer(json_pack("{s:b}", "passed", 1)) : answer_unfit(&error);
  worker_close(worker);
  return answered;
}

struct open_request {
  const char *device, *regime, *reference, *baseline_object;
  json_t *kernel, *key, *space;
  int64_t seed, baseline;
  struct launch_spec launch;
};

/* The member "launch" of a config at `pointer`; one that is absent says nothing. */
static bool launch_read(const json_t *config, const char *pointer, struct launch_spec *ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_t *launch = NULL;
  if (!json_get_object(config, pointer, "launch", JSON_OPTIONAL, &launch, error))
    return false;
  *ret = launch_spec_default();
  return !launch || launch_spec_from_json(launch, ret, error) ||
         error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "launch"));
}

static bool open_request_read(const json_t *request, struct open_request *open, struct error *error) {
  static const char *const members[] = {"do",   "device", "kernel",    "key",      "space",
                                        "seed", "regime", "reference", "baseline", NULL};
  static const char *const baseline_members[] = {"config", "object", "launch", NULL};
  json_t *baseline = NULL;
  if (!json_only_members(request, "", members, error) ||
      !json_get_string(request, "", "device", JSON_REQUIRED, &open->device, error) ||
      !json_get_object(request, "", "kernel", JSON_REQUIRED, &open->kernel, error) ||
      !json_get_object(request, "", "key", JSON_REQUIRED, &open->key, error) ||
      !json_get_object(request, "", "space", JSON_REQUIRED, &open->space, error) ||
      !json_get_integer(request, "", "seed", JSON_REQUIRED, INT64_MIN, INT64_MAX, &open->seed, error) ||
      !json_get_string(request, "", "regime", JSON_REQUIRED, &open->regime, error) ||
      !json_get_string(request, "", "reference", JSON_OPTIONAL, &open->reference, error) ||
      !json_get_object(request, "", "baseline", JSON_REQUIRED, &baseline, error) ||
      !json_only_members(baseline, "/baseline", baseline_members, error) ||
      !json_get_integer(baseline, "/baseline", "config", JSON_REQUIRED, 0, INT64_MAX, &open->baseline, error) ||
      !json_get_string(baseline, "/baseline", "object", JSON_REQUIRED, &open->baseline_object, error))
    return false;
  if (!string_equal(open->regime, "cold") && !string_equal(open->regime, "warm"))
    return error_at(error, "/regime", "the regime must be \"cold\" or \"warm\", not \"%s\"", open->regime);
  return launch_read(baseline, "/baseline", &open->launch, error);
}

/* Everything from the trusted device up to the baseline's object: what fails here fails for every config. */
static bool problem_open(struct worker *worker, const struct open_request *open, struct error *error) {
  struct reference *reference = NULL;
  if (!kernel_parse(open->kernel, &worker->kernel, error) ||
      !key_parse(open->key, (const char *const *)worker->kernel->key_names, worker->kernel->n_key_names, &worker->key,
                 error) ||
      !space_parse(open->space, &worker->space, error) ||
      !kernel_accepts(worker->kernel, &worker->key, worker->space, error))
    return false;
  if ((uint64_t)open->baseline >= worker->space->raw_count)
    return error_at(error, "/baseline/config", "config %lld is outside of the space, which has %llu points",
                    (long long)open->baseline, (unsigned long long)worker->space->raw_count);
  if (open->reference && !reference_load(open->reference, &reference, error))
    return false;
  struct problem_options options = {
      .baseline = (uint64_t)open->baseline,
      .seed = (uint64_t)open->seed,
      .is_cold = string_equal(open->regime, "cold"),
      .rotation_bytes_max = ROTATION_BYTES_MAX,
  };
  worker->seed = options.seed;
  return problem_new(worker->device, worker->kernel, &worker->key, worker->space, reference, &options, &worker->problem,
                     error);
}

/* Loads, checks and, when it is right, leaves the candidate in `timed`. */
static enum outcome timed_load(struct worker *worker, uint64_t config, const char *object,
                               const struct launch_spec *launch, struct timed *timed, struct error *error) {
  status_set(worker, WORKER_LOADING, config);
  int64_t start = clock_monotonic_ns();
  enum outcome outcome = candidate_load(worker->problem, config, object, launch, &timed->candidate, error);
  if (outcome == OUTCOME_CORRECT) {
    status_set(worker, WORKER_CHECKING, config);
    outcome = candidate_check(worker->problem, timed->candidate, error);
  }
  timed->device_ns += clock_monotonic_ns() - start;
  return outcome;
}

static bool answer_opened(struct worker *worker, const struct open_request *open) {
  struct error error = {0};
  if (!device_trust(worker, open->device, &error)) {
    bool answered = answer_unfit(&error);
    worker_close(worker);
    return answered;
  }
  if (!problem_open(worker, open, &error)) {
    worker_close(worker);
    return answer_error(&error);
  }
  enum outcome outcome =
      timed_load(worker, (uint64_t)open->baseline, open->baseline_object, &open->launch, &worker->baseline, &error);
  if (outcome == OUTCOME_CORRECT) {
    status_set(worker, WORKER_TIMING, (uint64_t)open->baseline);
    if (!timed_warm_up(worker->problem, &worker->baseline, WARM_UP_BASELINE_US, &error)) {
      problem_ask_device(worker->problem, true);
      outcome = OUTCOME_RUNTIME;
    }
  }
  if (outcome == OUTCOME_CORRECT)
    return answer(json_pack("{s:b}", "opened", 1));
  if (worker->problem->is_lost)
    worker_leave(worker);
  bool answered = answer(json_pack("{s:s, s:s}", "outcome", outcome_name(outcome), "detail", error.message));
  if (worker->problem->is_spoiled)
    worker_leave(worker);
  worker_close(worker);
  return answered;
}

static bool answer_open(struct worker *worker, const json_t *request) {
  struct open_request open = {.launch = launch_spec_default()};
  struct error error = {0};
  worker_close(worker);
  if (!open_request_read(request, &open, &error))
    return answer_error(&error);
  status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  bool answered = answer_opened(worker, &open);
  settings_look(worker);
  launch_spec_release(&open.launch);
  return answered;
}

static json_t *numbers_to_json(const double *numbers, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(array, json_real(numbers[i])) == 0);
  return array;
}

static bool answer_failed(uint64_t config, enum outcome outcome, const char *detail, const struct timed *timed) {
  return answer(json_pack("{s:I, s:s, s:s, s:I}", "config", (json_int_t)config, "outcome", outcome_name(outcome),
                          "detail", detail, "device_us", (json_int_t)(timed->device_ns / 1000)));
}

static json_t *known_integer(int64_t value) { return value == CODE_UNKNOWN ? json_null() : json_integer(value); }

static bool answer_timed(struct worker *worker, const struct timed *timed, json_t *conditions) {
  if (timed->failed)
    return answer_failed(timed->candidate->config, OUTCOME_RUNTIME, timed->error.message, timed);
  double clock_mhz = worker->device->ops->clock_mhz(worker->device);
  const struct launch_plan *plan = &timed->candidate->plan;
  return answer(json_pack("{s:I, s:s, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:O}", "config",
                          (json_int_t)timed->candidate->config, "outcome", outcome_name(OUTCOME_CORRECT), "timer",
                          worker->device->ops->timer, "samples_us", numbers_to_json(timed->samples_us, timed->n),
                          "baseline_us", numbers_to_json(timed->baseline_us, timed->n), "clock_mhz",
                          clock_mhz > 0 ? json_integer(llround(clock_mhz)) : json_null(), "device_us",
                          (json_int_t)(timed->device_ns / 1000), "occupancy", known_integer(plan->occupancy),
                          "lds_bytes", known_integer(plan->lds_bytes), "conditions", conditions));
}

struct measured_config {
  uint64_t config;
  const char *object;
  struct launch_spec launch;
};

struct measure_request {
  int64_t rounds;
  size_t n;
  struct measured_config *configs;
};

static void measure_request_release(struct measure_request *request) {
  for (size_t i = 0; i < request->n; i++)
    launch_spec_release(&request->configs[i].launch);
  free(request->configs);
}

static bool measure_request_read(const struct worker *worker, const json_t *json, struct measure_request *request,
                                 struct error *error) {
  static const char *const members[] = {"do", "rounds", "configs", NULL};
  static const char *const config_members[] = {"config", "object", "launch", NULL};
  json_t *array = NULL, *item;
  size_t i;
  if (!worker->problem)
    return error_set(error, "nothing is open; send \"open\" first");
  if (!json_only_members(json, "", members, error) ||
      !json_get_integer(json, "", "rounds", JSON_REQUIRED, 1, ROUNDS_MAX, &request->rounds, error) ||
      !json_get_array(json, "", "configs", JSON_REQUIRED, &array, error))
    return false;
  if (json_array_size(array) > CONFIGS_MAX)
    return error_at(error, "/configs", "at most %d configs can be measured at once", CONFIGS_MAX);
  request->configs = xcalloc(json_array_size(array), sizeof *request->configs);
  json_array_foreach (array, i, item) {
    char at[JSON_POINTER_SIZE];
    struct measured_config *config = &request->configs[i];
    int64_t ordinal;
    json_pointer_index(at, sizeof at, "/configs", i);
    if (!json_only_members(item, at, config_members, error) ||
        !json_get_integer(item, at, "config", JSON_REQUIRED, 0, (int64_t)(worker->space->raw_count - 1), &ordinal,
                          error) ||
        !json_get_string(item, at, "object", JSON_REQUIRED, &config->object, error) ||
        !launch_read(item, at, &config->launch, error))
      return false;
    config->config = (uint64_t)ordinal;
    request->n++;
  }
  return true;
}

/* Loads and checks the configs: those that are right lie in front of `timed`, the others are answered. Ends with one
 * that spoils the problem; one that finds the device lost has no answer. */
static bool configs_load(struct worker *worker, const struct measure_request *request, struct timed *timed,
                         size_t *ret_n_right) {
  size_t n_right = 0;
  bool answered = true;
  for (size_t i = 0; i < request->n && answered && !worker->problem->is_spoiled; i++) {
    const struct measured_config *config = &request->configs[i];
    struct timed *next = &timed[n_right];
    struct error error = {0};
    *next = (struct timed){0};
    enum outcome outcome = timed_load(worker, config->config, config->object, &config->launch, next, &error);
    if (outcome == OUTCOME_CORRECT) {
      n_right++;
      continue;
    }
    if (worker->problem->is_lost)
      break;
    if (next->candidate && !worker->problem->is_spoiled)
      candidate_free(worker->problem, TAKE(next->candidate));
    answered = answer_failed(config->config, outcome, error.message, next);
  }
  *ret_n_right = n_right;
  return answered;
}

/* Answers for what the rounds gave. Of a problem that was spoiled nothing counts but who failed. */
static bool answer_rounds(struct worker *worker, const struct timed *timed, size_t n) {
  cleanup_json json_t *conditions =
      worker->problem->is_spoiled ? NULL : worker->device->ops->conditions(worker->device);
  if (conditions && json_array_size(worker->settings))
    ALWAYS(json_object_set(conditions, "settings", worker->settings) == 0);
  bool answered = true;
  for (size_t i = 0; i < n && answered; i++) {
    if (timed[i].failed || !worker->problem->is_spoiled)
      answered = answer_timed(worker, &timed[i], conditions);
  }
  return answered;
}

static bool request_measure(struct worker *worker, const struct measure_request *request) {
  size_t n_right = 0;
  cleanup_free struct timed *timed = xcalloc(request->n + 1, sizeof *timed);
  bool answered = configs_load(worker, request, timed, &n_right);
  /* Another process of the campaign has another seed; within this one every request has an order of its own. */
  uint64_t seed = worker->seed ^ (request->n ? request->configs[0].config * 0x9e3779b97f4a7c15u : 0);
  bool goes_on = answered && n_right && !worker->problem->is_spoiled;
  if (goes_on)
    rounds_run(worker->problem, &worker->baseline, timed, n_right, (size_t)request->rounds, seed,
               &(struct turn){turn_take, worker});
  answered = answered && (!goes_on || answer_rounds(worker, timed, n_right));
  if (worker->problem->is_spoiled)
    worker_leave(worker);
  for (size_t i = 0; i < n_right; i++) {
    candidate_free(worker->problem, timed[i].candidate);
    timed_release(&timed[i]);
  }
  return answered && answer(json_pack("{s:b}", "done", 1));
}

static bool answer_measure(struct worker *worker, const json_t *json) {
  struct measure_request request = {0};
  struct error error = {0};
  bool is_read = measure_request_read(worker, json, &request, &error);
  bool answered = is_read ? request_measure(worker, &request) : answer_error(&error);
  measure_request_release(&request);
  return answered;
}

/* False when the supervisor is gone. */
static bool request_answer(struct worker *worker, const char *text, size_t size) {
  static const struct {
    const char *name;
    bool (*function)(struct worker *worker, const json_t *request);
  } requests[] = {
      {"probe", answer_probe}, {"sentinel", answer_sentinel}, {"open", answer_open}, {"measure", answer_measure}};
  cleanup_json json_t *request = NULL;
  const char *name = NULL;
  struct error error;
  if (!json_parse(text, size, &request, &error) || !json_get_string(request, "", "do", JSON_REQUIRED, &name, &error))
    return answer_error(&error);
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
    if (!string_equal(name, requests[i].name))
      continue;
    bool answered = requests[i].function(worker, request);
    status_set(worker, WORKER_IDLE, WORKER_CONFIG_NONE);
    return answered;
  }
  error_at(&error, "/do", "\"%.40s\" is nothing that a worker does; it can probe, sentinel, open and measure", name);
  return answer_error(&error);
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
    ssize_t n = read(WORKER_SOCKET_FD, worker->line + worker->line_used, WORKER_LINE_MAX - worker->line_used);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    worker->line_used += (size_t)n;
  }
}

int worker_main(void) {
  signal(SIGPIPE, SIG_IGN);
  struct worker worker = {0};
  worker.status = mmap(NULL, sizeof *worker.status, PROT_READ | PROT_WRITE, MAP_SHARED, WORKER_STATUS_FD, 0);
  if (worker.status == MAP_FAILED) {
    log_error("worker: fd %d is not a shared page: %s; workers are started by `wavetune-agent run` and `tune`",
              WORKER_STATUS_FD, strerror(errno));
    return 2;
  }
  worker.line = xmalloc(WORKER_LINE_MAX);
  status_set(&worker, WORKER_IDLE, WORKER_CONFIG_NONE);
  char *line;
  size_t size;
  while (line_read(&worker, &line, &size) && request_answer(&worker, line, size))
    continue;
  worker_close(&worker);
  munmap(worker.status, sizeof *worker.status);
  free(worker.line);
  return 0;
}
