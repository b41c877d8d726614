/* The workers of an executor: which one a lease gets, opening the lease in it, and trusting the
 * device. Memory and threads: lease_execution.h. */
#include <errno.h>
#include <math.h>
#include <sys/socket.h>
#include <time.h>

#include "agent/lease/lease_execution.h"

/* a worker may die for a reason of the node's, too: out of memory, a device that resets */
#define OPEN_ATTEMPTS 2
#define SENTINEL_ATTEMPTS 3
/* a driver needs a moment to end what a killed process left running */
#define SENTINEL_WAIT_MS 1000
#define PAUSE_STEP_MS 50

bool execution_stopped(void *context) {
  const struct execution *execution = context;
  return execution->hooks->stopped(execution->hooks->context);
}

static void reference_end(struct executor_worker *worker) {
  if (worker->reference)
    worker_abandon(TAKE(worker->reference));
}

static void worker_end(struct executor_worker *worker) {
  if (worker->client)
    worker_free(worker->client);
  reference_end(worker);
  free(worker->opened);
  free(worker->seen);
  *worker = (struct executor_worker){0};
}

void worker_drop(struct execution *execution) {
  if (execution->worker)
    worker_end(execution->worker);
  execution->worker = NULL;
}

static void workers_end(struct executor *executor) {
  for (size_t i = 0; i < EXECUTOR_WORKERS; i++) {
    if (executor->workers[i].client)
      worker_dismiss(executor->workers[i].client);
  }
  for (size_t i = 0; i < EXECUTOR_WORKERS; i++)
    worker_end(&executor->workers[i]);
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
}

static void helpers_forget(struct executor *executor) {
  for (size_t i = 0; i < HELPER_COUNT; i++)
    free(TAKE(executor->helpers[i].path));
}

void executor_drop_workers(struct executor *executor) {
  workers_end(executor);
  helpers_forget(executor);
}

static bool worker_begin(struct executor *executor, struct executor_worker *worker,
                         struct error *error) {
  int64_t began_ns = clock_monotonic_ns();
  bool began = worker_start(executor->spawner, executor->limits, &worker->client, error);
  executor->spent.start_us += (clock_monotonic_ns() - began_ns) / 1000;
  return began;
}

static json_t *sentinel_request(const struct executor *executor) {
  return json_pack("{s:s, s:s}", "do", "sentinel", "device", executor->device);
}

bool executor_sentinel(struct executor *executor, bool (*stopped)(void *context), void *context,
                       struct error *error) {
  cleanup_json json_t *request = sentinel_request(executor), *answer = NULL;
  struct executor_worker worker = {0};
  struct worker_end end;
  workers_end(executor);
  if (!worker_begin(executor, &worker, error))
    return false;
  worker_ask(worker.client, request);
  enum worker_event event = worker_next(worker.client, stopped, context, NULL, &answer, &end);
  worker_end(&worker);
  bool passed = json_is_true(json_object_get(answer, "passed"));
  const char *reason = json_string_value(json_object_get(answer, "error"));
  if (event != WORKER_ANSWER)
    return error_set(error, "%s does not pass its sentinel: the worker was %s", executor->device,
                     end.detail);
  return passed || error_set(error, "%s does not pass its sentinel: %s", executor->device,
                             reason ? reason : "the worker did not say why");
}

void executor_start_workers(struct executor *executor, size_t n) {
  cleanup_json json_t *request = sentinel_request(executor);
  struct error ignored; /* it is started again when it is needed, and fails again */
  for (size_t i = 0; i < n && i < EXECUTOR_WORKERS; i++) {
    struct executor_worker *worker = &executor->workers[i];
    if (worker->client || !worker_begin(executor, worker, &ignored))
      continue;
    worker_ask(worker->client, request);
    worker->is_starting = true;
  }
}

/* Waits for what the worker was asked. One that died, or whose answer lacks the member, is
 * dropped. */
static enum step answer_expect(struct execution *execution, struct executor_worker *worker,
                               const char *member) {
  cleanup_json json_t *answer = NULL;
  struct worker_end end;
  enum worker_event event =
      worker_next(worker->client, execution_stopped, execution, NULL, &answer, &end);
  if (event != WORKER_ANSWER || !json_is_true(json_object_get(answer, member)))
    worker_end(worker);
  return event == WORKER_STOPPED ? STEP_STOPPED : STEP_ON;
}

/* Waits until the worker has opened the device, if it was asked for that. */
static enum step worker_settle(struct execution *execution, struct executor_worker *worker) {
  int64_t began_ns = clock_monotonic_ns();
  if (!worker->is_starting)
    return STEP_ON;
  worker->is_starting = false;
  enum step step = answer_expect(execution, worker, "passed");
  execution->executor->spent.start_us += (clock_monotonic_ns() - began_ns) / 1000;
  return step;
}

enum step workers_settle(struct execution *execution) {
  enum step step = STEP_ON;
  for (size_t i = 0; i < EXECUTOR_WORKERS && step == STEP_ON; i++)
    step = worker_settle(execution, &execution->executor->workers[i]);
  return step;
}

/* Names an object whose bytes have to come with the request. */
static void object_add(json_t *objects, const char *path, const struct digest *digest) {
  char text[DIGEST_TEXT_SIZE];
  ALWAYS(json_object_set_new(objects, path, json_string(digest_format(digest, text))) == 0);
}

static const char *helper_add(json_t *objects, const struct helper_object *helper) {
  if (helper)
    object_add(objects, helper->path, &helper->digest);
  return helper ? helper->path : NULL;
}

static json_t *config_request(const struct work *work, json_t *objects) {
  object_add(objects, work->object->path, &work->object->digest);
  json_t *request =
      json_pack("{s:I, s:s, s:o}", "config", (json_int_t)work->config, "object", work->object->path,
                "launch", launch_spec_to_json(&work->object->launch));
  ALWAYS(request != NULL);
  return request;
}

json_t *open_request(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  json_t *objects = json_object(), *baseline = config_request(&execution->baseline, objects);
  const char *flush = helper_add(objects, execution->helpers[HELPER_INSTRUCTION_FLUSH]);
  const char *fingerprint = helper_add(objects, execution->helpers[HELPER_FINGERPRINT]);
  return json_pack("{s:s, s:s, s:O, s:o, s:O, s:I, s:s, s:b, s:s?, s:s?, s:o, s:o}", "do", "open",
                   "device", execution->executor->device, "kernel", lease->kernel->json, "key",
                   key_to_json(&lease->key), "space", lease->space->json, "seed",
                   (json_int_t)lease->seed, "regime", lease->regime, "reference",
                   execution->reference.path != NULL, "instruction_flush", flush, "fingerprint",
                   fingerprint, "baseline", baseline, "objects", objects);
}

static json_t *reference_request(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  json_t *objects = json_object();
  object_add(objects, execution->reference.path, &execution->reference.digest);
  return json_pack("{s:s, s:O, s:o, s:O, s:I, s:s, s:s, s:I, s:s, s:o}", "do", "reference",
                   "kernel", lease->kernel->json, "key", key_to_json(&lease->key), "space",
                   lease->space->json, "seed", (json_int_t)lease->seed, "gpu_name",
                   execution->executor->gpu_name, "arch", execution->executor->arch, "config",
                   (json_int_t)execution->baseline.config, "reference_object",
                   execution->reference.path, "objects", objects);
}

bool reference_start(struct execution *execution, struct worker_client **ret_reference,
                     int *ret_socket, struct error *error) {
  cleanup_json json_t *request = NULL;
  struct worker_client *reference;
  int ends[2];
  *ret_socket = -1;
  if (!execution->reference.path)
    return true;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return error_set(error, "cannot make a reference's socket: %s", strerror(errno));
  cleanup_fd int ours = ends[0], theirs = ends[1];
  if (!worker_start(execution->executor->spawner, execution->executor->limits, &reference, error))
    return false;
  request = reference_request(execution);
  if (!worker_ask_with(reference, request, theirs, error)) {
    worker_abandon(reference);
    return false;
  }
  worker_push(reference);
  *ret_reference = reference;
  *ret_socket = ours;
  ours = -1;
  return true;
}

json_t *measure_request(const struct race_request *request) {
  const struct race_terms *terms = request->terms;
  int64_t rounds_min =
      terms->rounds_min < terms->rounds_max ? terms->rounds_min : terms->rounds_max;
  json_t *configs = json_array(), *objects = json_object();
  for (size_t i = 0; i < request->n; i++)
    ALWAYS(json_array_append_new(configs, config_request(request->works[i], objects)) == 0);
  json_t *json = json_pack(
      "{s:s, s:o, s:I, s:I, s:o, s:f, s:o, s:o, s:b, s:b, s:o}", "do", "measure", "configs",
      configs, "rounds_min", (json_int_t)rounds_min, "rounds_max", (json_int_t)terms->rounds_max,
      "margin", isfinite(terms->margin) ? json_real(terms->margin) : json_null(), "precision",
      terms->precision, "device_us",
      request->device_us > 0 ? json_integer(request->device_us) : json_null(), "best_ratio",
      request->best_ratio > 0 ? json_real(request->best_ratio) : json_null(), "serial",
      request->is_serial, "whole", request->is_whole, "objects", objects);
  ALWAYS(json != NULL);
  return json;
}

/* What `open` was answered. The baseline that worked in an earlier worker of this lease is not to
 * blame any more. */
static enum step open_answered(struct execution *execution, const json_t *answer) {
  if (json_is_true(json_object_get(answer, "opened"))) {
    execution->baseline_worked = true;
    return STEP_ON;
  }
  const char *detail = json_string_value(json_object_get(answer, "detail"));
  const char *reason = json_string_value(json_object_get(answer, "error"));
  enum outcome outcome;
  bool is_baseline = outcome_parse(json_string_value(json_object_get(answer, "outcome")), &outcome);
  if (is_baseline && detail && !execution->baseline_worked)
    return end_with_baseline(execution, outcome, detail);
  const char *what = reason ? reason : detail ? detail : "the worker did not say why";
  error_set(execution->error, "%s cannot measure %s: %s", execution->executor->device,
            execution->lease->kernel->name, what);
  return STEP_FAILED;
}

static enum step device_unfit(struct execution *execution, const char *reason) {
  execution->executor->is_suspect = true;
  error_set(
      execution->error,
      "%s is not trusted any more, nothing is measured on it before it passes its sentinel: %s",
      execution->executor->device, reason);
  return STEP_FAILED;
}

/* Workers died while they opened the lease. On a GPU, when it was no config's turn, the device may
 * be the reason. */
static enum step open_died(struct execution *execution, enum worker_event event,
                           const struct worker_end *end) {
  struct executor *executor = execution->executor;
  struct error reason;
  if (executor->is_gpu && (execution->baseline_worked || end->config == WORKER_CONFIG_NONE) &&
      !executor_sentinel(executor, execution_stopped, execution, &reason))
    return execution_stopped(execution) ? STEP_STOPPED : device_unfit(execution, reason.message);
  if (!execution->baseline_worked)
    return end_with_baseline(execution, end_outcome(event), end->detail);
  error_set(execution->error,
            "%s does not work any more, though it did at the start of the lease: a worker was %s",
            executor->device, end->detail);
  return STEP_FAILED;
}

/* Waits, unless the lease is stopped meanwhile. */
static enum step pause_ms(struct execution *execution, int64_t ms) {
  struct timespec step = {.tv_nsec = PAUSE_STEP_MS * 1000000};
  for (int64_t until_ms = clock_monotonic_ms() + ms; clock_monotonic_ms() < until_ms;) {
    if (execution_stopped(execution))
      return STEP_STOPPED;
    nanosleep(&step, NULL);
  }
  return STEP_ON;
}

/* Jobs are told apart by 64 bits of a digest. */
static uint64_t job_hash(const struct lease *lease) {
  struct digest digest = digest_of(lease->job, strlen(lease->job));
  uint64_t hash;
  memcpy(&hash, digest.bytes, sizeof hash);
  return hash;
}

static bool worker_has_seen(const struct executor_worker *worker, uint64_t job) {
  for (size_t i = 0; i < worker->n_seen; i++) {
    if (worker->seen[i] == job)
      return true;
  }
  return false;
}

static void seen_add(struct executor_worker *worker, uint64_t job) {
  if (worker_has_seen(worker, job))
    return;
  GROW(worker->seen, worker->n_seen, worker->seen_capacity);
  worker->seen[worker->n_seen++] = job;
}

static bool is_used_up(const struct executor *executor, const struct executor_worker *worker) {
  return worker->configs >= executor->configs_per_worker || worker->n_seen >= EXECUTOR_SEEN_MAX;
}

/* On the CPU a kernel is code in the worker's process: what it leaves there is another kernel's no
 * business. */
static bool is_anothers(const struct execution *execution, const struct executor_worker *worker) {
  return !execution->executor->is_gpu && worker->n_seen > 0 &&
         !digest_equal(&worker->kernel, &execution->lease->kernel->hash);
}

/* Where the same is open, else the worker of the screens. */
static struct executor_worker *worker_for_screen(struct executor *executor, const char *open_text) {
  for (size_t i = 0; i < EXECUTOR_WORKERS; i++) {
    if (executor->workers[i].opened && string_equal(executor->workers[i].opened, open_text))
      return &executor->workers[i];
  }
  return &executor->workers[0];
}

static bool is_fresh_for(const struct executor *executor, const struct executor_worker *worker,
                         uint64_t job) {
  return worker->client && !is_used_up(executor, worker) && !worker_has_seen(worker, job);
}

/* One that lives and has not seen the job, that of the screens (of other jobs, then) last; else a
 * place for a new one: an empty one, else of who was used longest ago. */
static struct executor_worker *worker_for_final(struct executor *executor, uint64_t job) {
  struct executor_worker *empty = NULL, *oldest = NULL;
  for (size_t i = 1; i < EXECUTOR_WORKERS; i++) {
    struct executor_worker *worker = &executor->workers[i];
    if (is_fresh_for(executor, worker, job))
      return worker;
    if (!worker->client && !empty)
      empty = worker;
    if (worker->client && (!oldest || worker->used_ns < oldest->used_ns))
      oldest = worker;
  }
  if (is_fresh_for(executor, &executor->workers[0], job))
    return &executor->workers[0];
  if (empty)
    return empty;
  worker_end(oldest);
  return oldest;
}

/* What another worker has open would take the device's memory. */
static enum step others_close(struct execution *execution, const struct executor_worker *chosen) {
  cleanup_json json_t *request = json_pack("{s:s}", "do", "close");
  enum step step = STEP_ON;
  for (size_t i = 0; i < EXECUTOR_WORKERS && step == STEP_ON; i++) {
    struct executor_worker *worker = &execution->executor->workers[i];
    if (worker == chosen || !worker->opened)
      continue;
    free(TAKE(worker->opened));
    worker_ask(worker->client, request);
    step = answer_expect(execution, worker, "closed");
    reference_end(worker);
  }
  return step;
}

/* An attempt to open the kernel, which began then. What a process takes to open the device is no
 * job's: it serves many. Where there is no answer, nothing says how much that was. */
static void open_spent_add(struct executor *executor, int64_t began_ns, const json_t *answer) {
  int64_t device_us = answer_spent_us(answer, "device_us");
  int64_t opening_us = (clock_monotonic_ns() - began_ns) / 1000 - device_us;
  executor->opening_us += opening_us > 0 ? opening_us : 1;
  executor->spent.start_us += device_us;
  executor->spent.reference_us += answer_spent_us(answer, "reference_us");
  executor->spent.inputs_us += answer_spent_us(answer, "inputs_us");
  executor->spent.baseline_us += answer_spent_us(answer, "baseline_us");
}

/* The process of the reference ended while the lease was opened. What it says itself is no fault of
 * its: it cannot be loaded, or there is no memory for its inputs. */
static enum step reference_lost(struct execution *execution, struct executor_worker *worker,
                                bool is_last) {
  bool has_said;
  cleanup_free char *reason = worker_epitaph(worker->reference, &has_said);
  reference_end(worker);
  if (!has_said && !is_last)
    return STEP_ON;
  if (!has_said && !execution->baseline_worked) {
    cleanup_free char *detail = xasprintf("the reference: %s", reason);
    return end_with_baseline(execution, OUTCOME_RUNTIME, detail);
  }
  error_set(execution->error, "%s cannot measure %s: %s%s", execution->executor->device,
            execution->lease->kernel->name, has_said ? "" : "the reference: ", reason);
  return STEP_FAILED;
}

/* Opens the lease in execution->worker, which is started when it is not there. */
static enum step worker_open(struct execution *execution, const json_t *request, const char *text,
                             uint64_t job) {
  struct executor_worker *worker = execution->worker;
  for (int deaths = 0, refusals = 0, losses = 0;;) {
    if (worker_settle(execution, worker) != STEP_ON)
      return STEP_STOPPED;
    if (!worker->client && !worker_begin(execution->executor, worker, execution->error))
      return STEP_FAILED;
    bool is_new = worker->n_seen == 0; /* another job may have left something in an older one */
    cleanup_json json_t *answer = NULL;
    cleanup_fd int socket = -1;
    reference_end(worker);
    if (!reference_start(execution, &worker->reference, &socket, execution->error))
      return STEP_FAILED;
    struct worker_end end;
    seen_add(worker, job);
    worker->kernel = execution->lease->kernel->hash;
    free(TAKE(worker->opened));
    int64_t began_ns = clock_monotonic_ns();
    if (!worker_ask_with(worker->client, request, socket, execution->error)) {
      helpers_forget(
          execution
              ->executor); /* one of them may be what was changed: the pool looks at it again */
      return STEP_FAILED;
    }
    enum worker_event event =
        worker_next(worker->client, execution_stopped, execution, NULL, &answer, &end);
    bool is_refused = json_is_false(json_object_get(answer, "passed"));
    if (!is_refused) /* the device did not come so far */
      open_spent_add(execution->executor, began_ns, answer);
    if (json_object_get(answer, "reference") && worker->reference) {
      enum step step = reference_lost(execution, worker, ++losses == OPEN_ATTEMPTS);
      if (step != STEP_ON)
        return step;
      continue;
    }
    if (event == WORKER_ANSWER && !is_refused) {
      enum step step = open_answered(execution, answer);
      if (step == STEP_ON)
        worker->opened = xstrdup(text);
      worker->used_ns = clock_monotonic_ns();
      return step;
    }
    worker_end(worker);
    if (event == WORKER_STOPPED)
      return STEP_STOPPED;
    deaths += event != WORKER_ANSWER && is_new;
    if (event != WORKER_ANSWER && deaths == OPEN_ATTEMPTS)
      return open_died(execution, event, &end);
    const char *reason = json_string_value(json_object_get(answer, "error"));
    if (is_refused && ++refusals == SENTINEL_ATTEMPTS)
      return device_unfit(execution, reason ? reason : "the worker did not say why");
    if (is_refused && pause_ms(execution, refusals * SENTINEL_WAIT_MS) != STEP_ON)
      return STEP_STOPPED;
  }
}

enum step worker_ready(struct execution *execution, bool fresh) {
  struct executor *executor = execution->executor;
  cleanup_json json_t *request = open_request(execution);
  cleanup_free char *text = json_dumps(request, JSON_COMPACT);
  uint64_t job = job_hash(execution->lease);
  struct executor_worker *worker =
      fresh ? worker_for_final(executor, job) : worker_for_screen(executor, text);
  execution->worker = worker;
  if (worker->client && (is_used_up(executor, worker) || is_anothers(execution, worker)))
    worker_end(worker);
  if (!fresh && worker->opened && string_equal(worker->opened, text)) {
    execution->baseline_worked = true;
    worker->used_ns = clock_monotonic_ns();
    return STEP_ON;
  }
  enum step step = others_close(execution, worker);
  return step == STEP_ON ? worker_open(execution, request, text, job) : step;
}
