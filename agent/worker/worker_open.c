/* Opening: the device that a worker trusts, and the problem on it.
 *
 * The device stays open between problems: a context costs more than the measurements of a key.
 * Memory: see worker_process.h. Threads: one. */
#include "agent/measure/problem.h"
#include "agent/node/machine_settings.h"
#include "agent/worker/worker_process.h"
#include "agent/worker/worker_sandbox.h"

/* nobody changes the machine's settings more often */
#define SETTINGS_NS ((int64_t)60 * 1000000000)

/* What opening took. */
struct open_spent {
  int64_t device_ns, inputs_ns, reference_ns, baseline_ns;
};

static bool answer_unfit(const struct error *error) {
  return worker_answer(json_pack("{s:b, s:s}", "passed", 0, "error", error->message));
}

/* Ends what "open" made, and keeps the device. */
static void problem_close(struct worker *worker) {
  if (worker->baseline.candidate)
    candidate_free(worker->problem, worker->baseline.candidate);
  timed_release(&worker->baseline);
  worker->baseline = (struct timed){0};
  if (worker->problem)
    problem_free(TAKE(worker->problem));
  if (worker->space)
    space_free(TAKE(worker->space));
  key_release(&worker->key);
  worker->key = (struct key){0};
  if (worker->kernel)
    kernel_free(TAKE(worker->kernel));
  bundle_places_release(&worker->opened);
}

static void device_drop(struct worker *worker) {
  if (worker->device)
    device_close(TAKE(worker->device));
  free(TAKE(worker->device_name));
  worker->is_trusted = false;
}

void worker_release(struct worker *worker) {
  problem_close(worker);
  device_drop(worker);
  if (worker->sandbox)
    sandbox_free(TAKE(worker->sandbox));
  json_decref(TAKE(worker->settings));
}

/* Names the machine's settings that disturb measurements, for the conditions of all that is
 * measured from here on. */
static void settings_look(struct worker *worker) {
  if (worker->settings && clock_monotonic_ns() - worker->settings_ns < SETTINGS_NS)
    return;
  cleanup_settings_findings struct settings_findings findings = {0};
  machine_settings_check("", &findings);
  json_decref(TAKE(worker->settings));
  worker->settings = settings_findings_differing(&findings);
  worker->settings_ns = clock_monotonic_ns();
}

static bool device_start(struct worker *worker, const char *name, struct error *error) {
  device_drop(worker);
  if (!worker->is_confined && !worker_confine_files(device_is_host(name), &worker->sandbox, error))
    return false;
  worker->is_confined = true;
  if (!device_open(name, &worker->device, error))
    return false;
  worker->device_name = xstrdup(name);
  return true;
}

/* Opens the device unless it is, and lets it pass its sentinel unless it is trusted. Then the
 * worker is confined, and may load what others wrote. */
static bool device_trust(struct worker *worker, const char *name, struct error *error) {
  if (!string_equal(worker->device_name, name) && !device_start(worker, name, error))
    return false;
  if ((!worker->is_trusted && !worker->device->ops->sentinel(worker->device, error)) ||
      (worker->sandbox && !worker_confine_calls(TAKE(worker->sandbox), error))) {
    device_drop(worker);
    return false;
  }
  worker->is_trusted = true;
  return true;
}

bool worker_answer_sentinel(struct worker *worker, const json_t *json) {
  static const char *const members[] = {"do", "device", NULL};
  struct error error;
  const char *device = NULL;
  problem_close(worker);
  if (!json_only_members(json, "", members, &error) ||
      !json_get_string(json, "", "device", JSON_REQUIRED, &device, &error))
    return worker_answer_error(&error);
  worker_status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  worker->is_trusted = false;
  return device_trust(worker, device, &error) ? worker_answer(json_pack("{s:b}", "passed", 1))
                                              : answer_unfit(&error);
}

bool worker_answer_close(struct worker *worker, const json_t *json) {
  static const char *const members[] = {"do", NULL};
  struct error error;
  if (!json_only_members(json, "", members, &error))
    return worker_answer_error(&error);
  problem_close(worker);
  return worker_answer(json_pack("{s:b}", "closed", 1));
}

/* Everything from the trusted device up to the baseline's object: what fails here fails for every
 * config. */
static bool problem_open(struct worker *worker, const struct open_request *open,
                         struct open_spent *spent, struct error *error) {
  struct reference *reference = NULL;
  if (!kernel_parse(open->kernel, &worker->kernel, error) ||
      !key_parse(open->key, (const char *const *)worker->kernel->key_names,
                 worker->kernel->n_key_names, &worker->key, error) ||
      !space_parse(open->space, &worker->space, error) ||
      !kernel_accepts(worker->kernel, &worker->key, worker->space, error))
    return false;
  if (open->baseline.config >= worker->space->raw_count)
    return error_at(
        error, "/baseline/config", "config %llu is outside of the space, which has %llu points",
        (unsigned long long)open->baseline.config, (unsigned long long)worker->space->raw_count);
  if (open->has_reference && worker->n_fds == 0)
    return error_at(error, "/reference", "there is no socket to a reference");
  if (open->has_reference)
    reference = reference_connect(worker->fds[--worker->n_fds]);
  struct problem_options options = {
      .baseline = open->baseline.config,
      .seed = (uint64_t)open->seed,
      .is_cold = string_equal(open->regime, "cold"),
      .rotation_bytes_max = ROTATION_BYTES_MAX,
      .instruction_flush = open->instruction_flush,
      .fingerprint = open->fingerprint,
  };
  worker->seed = options.seed;
  int64_t start = clock_monotonic_ns();
  bool ok = problem_new(worker->device, worker->kernel, &worker->key, worker->space, reference,
                        &options, &worker->problem, error);
  if (ok) {
    spent->reference_ns = worker->problem->reference_ns;
    spent->inputs_ns = clock_monotonic_ns() - start - spent->reference_ns;
  }
  return ok;
}

enum outcome worker_load(struct worker *worker, const struct requested_config *config,
                         struct timed *timed, struct error *error) {
  int64_t start = clock_monotonic_ns();
  worker_status_set(worker, WORKER_LOADING, config->config);
  enum outcome outcome = candidate_load(worker->problem, config->config, config->object,
                                        &config->launch, &timed->candidate, error);
  timed->device_ns += clock_monotonic_ns() - start;
  return outcome;
}

enum outcome worker_check(struct worker *worker, struct timed *timed, struct error *error) {
  int64_t start = clock_monotonic_ns();
  worker_status_set(worker, WORKER_CHECKING, timed->candidate->config);
  enum outcome outcome = candidate_check(worker->problem, timed->candidate, error);
  timed->device_ns += clock_monotonic_ns() - start;
  return outcome;
}

static enum outcome baseline_open(struct worker *worker, const struct open_request *open,
                                  struct open_spent *spent, struct error *error) {
  int64_t start = clock_monotonic_ns();
  enum outcome outcome = worker_load(worker, &open->baseline, &worker->baseline, error);
  if (outcome == OUTCOME_CORRECT)
    outcome = worker_check(worker, &worker->baseline, error);
  if (outcome == OUTCOME_CORRECT) {
    worker_turn_take(worker, open->baseline.config);
    if (!timed_warm_up(worker->problem, &worker->baseline, WARM_UP_BASELINE_US, 0, error)) {
      problem_ask_device(worker->problem, true);
      outcome = OUTCOME_RUNTIME;
    }
  }
  spent->baseline_ns = clock_monotonic_ns() - start;
  return outcome;
}

static bool answer_opened(const struct open_spent *spent) {
  return worker_answer(json_pack("{s:b, s:{s:I, s:I, s:I, s:I}}", "opened", 1, "spent", "device_us",
                                 (json_int_t)(spent->device_ns / 1000), "inputs_us",
                                 (json_int_t)(spent->inputs_ns / 1000), "reference_us",
                                 (json_int_t)(spent->reference_ns / 1000), "baseline_us",
                                 (json_int_t)(spent->baseline_ns / 1000)));
}

/* What failed may have been the device's doing: it has to pass its sentinel before it is opened
 * again. */
static bool open_and_answer(struct worker *worker, const struct open_request *open) {
  struct error error = {0};
  struct open_spent spent = {0};
  int64_t start = clock_monotonic_ns();
  if (!device_trust(worker, open->device, &error))
    return answer_unfit(&error);
  settings_look(worker);
  spent.device_ns = clock_monotonic_ns() - start;
  if (!problem_open(worker, open, &spent, &error)) {
    worker->is_trusted = false;
    problem_close(worker);
    return worker_answer_error(&error);
  }
  enum outcome outcome = baseline_open(worker, open, &spent, &error);
  if (problem_reference_is_lost(worker->problem)) {
    worker->is_trusted = false;
    problem_close(worker);
    return worker_answer(json_pack("{s:s}", "reference", "lost"));
  }
  if (outcome == OUTCOME_CORRECT)
    return answer_opened(&spent);
  if (worker->problem->is_lost)
    worker_leave(worker);
  bool answered = worker_answer(
      json_pack("{s:s, s:s}", "outcome", outcome_name(outcome), "detail", error.message));
  if (worker->problem->is_spoiled)
    worker_leave(worker);
  worker->is_trusted = false;
  problem_close(worker);
  return answered;
}

bool worker_answer_open(struct worker *worker, const json_t *json) {
  struct open_request open;
  struct error error = {0};
  problem_close(worker);
  bool is_read = open_request_read(worker, json, &open, &error);
  worker_status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  bool answered = is_read ? open_and_answer(worker, &open) : worker_answer_error(&error);
  open_request_release(&open);
  return answered;
}
