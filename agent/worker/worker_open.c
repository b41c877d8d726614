/* Opens the device and has it pass its sentinel, opens the problem on it, and serves a reference.
 *
 * The device stays open between problems: a context costs more than the measurements of a key.
 * Threads: one; a team of threads computes the elements of a reference. */
#include "agent/measure/check.h"
#include "agent/node/machine_settings.h"
#include "agent/worker/worker_process.h"
#include "common/base/file.h"
#include "common/kernel/kernel_case.h"
#include "common/node/environment.h"
#include "common/regime/regime.h"

#define BLOB_BYTES_MAX ((size_t)256 << 20)
#define SETTINGS_NS ((int64_t)60 * 1000000000) /* how long the machine's settings are cached */

/* "open" and "reference". */
struct open_request {
  json_t *kernel, *key, *space;
  json_t *of_key; /* the case of a captured kernel; NULL: none */
  json_t *blobs;  /* digest → path of the bytes that it passes; NULL: none */
  int64_t seed;

  /* Of "open". */
  char *device;
  enum regime regime;
  bool has_reference; /* its socket is the last of the worker's descriptors */
  struct requested_config baseline;
  char *instruction_flush, *fingerprint; /* objects; NULL: none */
  char *expected;                        /* the path of expected values; NULL: none */

  /* Of "reference". */
  char *gpu_name, *arch, *reference_object;
  int64_t config;
};

#define OPEN_FIELD(type, member, ...) RECORD_FIELD(type, struct open_request, member, __VA_ARGS__)
#define PROBLEM_FIELDS                                                                             \
  OPEN_FIELD(JSON, kernel, FIELD_REQUIRED | FIELD_OBJECT),                                         \
      OPEN_FIELD(JSON, key, FIELD_REQUIRED | FIELD_OBJECT),                                        \
      OPEN_FIELD(JSON, space, FIELD_REQUIRED | FIELD_OBJECT),                                      \
      {"case", FIELD_JSON, offsetof(struct open_request, of_key), FIELD_OBJECT},                   \
      OPEN_FIELD(JSON, blobs, FIELD_OBJECT),                                                       \
      OPEN_FIELD(INTEGER, seed, FIELD_REQUIRED, .least = INT64_MIN, .most = INT64_MAX)

static const struct field open_fields[] = {
    PROBLEM_FIELDS,
    OPEN_FIELD(TEXT, device, FIELD_REQUIRED),
    OPEN_FIELD(ENUM, regime, FIELD_REQUIRED, .names = regime_names),
    {"reference", FIELD_BOOL, offsetof(struct open_request, has_reference)},
    OPEN_FIELD(RECORD, baseline, FIELD_REQUIRED, .of = &requested_config_record),
    OPEN_FIELD(TEXT, instruction_flush),
    OPEN_FIELD(TEXT, fingerprint),
    OPEN_FIELD(TEXT, expected),
};
static const struct field reference_fields[] = {
    PROBLEM_FIELDS,
    OPEN_FIELD(TEXT, gpu_name, FIELD_REQUIRED),
    OPEN_FIELD(TEXT, arch, FIELD_REQUIRED),
    OPEN_FIELD(INTEGER, config, FIELD_REQUIRED, .least = 0, .most = INT64_MAX),
    OPEN_FIELD(TEXT, reference_object, FIELD_REQUIRED),
};
static const struct record open_record = RECORD(NULL, struct open_request, open_fields);
static const struct record reference_record = RECORD(NULL, struct open_request, reference_fields);

/* The times of opening. */
struct open_spent {
  int64_t device_ns, inputs_ns, reference_ns, baseline_ns;
};

static bool answer_unfit(const struct error *error) {
  return worker_answer(json_pack("{s:b, s:s}", "passed", 0, "error", error->message));
}

/* Frees what "open" made, and keeps the device. */
static void problem_close(struct worker *worker) {
  if (worker->baseline.loaded)
    config_unload(worker->problem, worker->baseline.loaded);
  timed_release(&worker->baseline);
  worker->baseline = (struct timed_config){0};
  DISCARD(worker->problem, problem_free);
  DISCARD(worker->space, space_free);
  key_release(&worker->key);
  worker->key = (struct key){0};
  DISCARD(worker->kernel, kernel_free);
  array_foreach (blob, worker->blobs, worker->n_blobs)
    free(*blob);
  worker->n_blobs = 0;
  DISCARD(worker->expected, expected_free);
  bundle_places_release(&worker->opened);
}

static void device_drop(struct worker *worker) {
  DISCARD(worker->device, device_close);
  free(TAKE(worker->device_name));
  worker->is_trusted = false;
}

void worker_release(struct worker *worker) {
  problem_close(worker);
  device_drop(worker);
  DISCARD(worker->sandbox, sandbox_free);
  json_decref(TAKE(worker->settings));
}

/* Opens the device unless it is open, and runs its sentinel unless it is trusted. After this the
 * worker is confined, and may load untrusted code. */
static bool device_trust(struct worker *worker, const char *name, struct error *error) {
  if (!string_equal(worker->device_name, name)) {
    device_drop(worker);
    if (!worker->is_confined &&
        !worker_confine_files(device_is_host(name), &worker->sandbox, error))
      return false;
    worker->is_confined = true;
    if (!device_open(name, &worker->device, error))
      return false;
    worker->device_name = xstrdup(name);
  }

  if ((!worker->is_trusted && !worker->device->ops->sentinel(worker->device, error)) ||
      (worker->sandbox && !worker_confine_calls(TAKE(worker->sandbox), error))) {
    device_drop(worker);
    return false;
  }

  worker->is_trusted = true;
  return true;
}

bool worker_answer_sentinel(struct worker *worker, const json_t *json) {
  static const char *const members[] = {"device", NULL};
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
  (void)json;
  problem_close(worker);
  return worker_answer(json_pack("{s:b}", "closed", 1));
}

/* Reads the bytes that the request's case passes in a buffer. */
static bool blob_take(struct worker *worker, const struct open_request *request,
                      struct argument *argument, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  const char *sent = json_text(request->blobs, digest_format(argument_blob(argument), text));
  cleanup_free char *path = sent ? xstrdup(sent) : NULL;
  char *bytes = NULL;
  size_t size;
  if (!path)
    return error_set(error, "the contents of \"%s\" did not come with the request", argument->name);
  if (!worker_object_place(worker, &worker->opened, &path, error) ||
      !file_read(path, BLOB_BYTES_MAX, &bytes, &size, error))
    return false;
  worker->blobs[worker->n_blobs++] = bytes;
  argument->fill.bytes = bytes;
  return argument_blob_check(argument, size, error);
}

/* Reads the values of Triton's interpreter, which came with the request as the path in it. */
static bool expected_take(struct worker *worker, struct open_request *open, struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!open->expected)
    return true;
  if (!open->of_key)
    return error_at(error, "/expected", "only a captured kernel has expected values");
  return worker_object_place(worker, &worker->opened, &open->expected, error) &&
         file_read(open->expected, EXPECTED_SIZE_MAX, &bytes, &size, error) &&
         expected_parse(bytes, size, worker->kernel, &worker->expected, error);
}

/* Gives a captured kernel the case of the request. */
static bool case_take(struct worker *worker, const struct open_request *request,
                      struct error *error) {
  struct kernel *of_key;
  if (!worker->kernel->is_captured)
    return !request->of_key || error_at(error, "/case", "only a captured kernel has a case");
  if (!request->of_key)
    return error_at(error, "/case", "a captured kernel comes with the case of its key");
  if (!kernel_of_case(worker->kernel, request->of_key, &of_key, error))
    return error_pointer_prefix(error, "/case");
  kernel_free(worker->kernel);
  worker->kernel = of_key;

  array_foreach (argument, of_key->arguments, of_key->n_arguments)
    if (argument_blob(argument) && !blob_take(worker, request, argument, error))
      return false;
  return true;
}

/* Parses the kernel, key and space of a request, whose config must be in the space. */
static bool problem_parse(struct worker *worker, const struct open_request *request, int64_t config,
                          const char *config_pointer, struct error *error) {
  if (!kernel_parse(request->kernel, &worker->kernel, error) ||
      !key_parse(request->key, (const char *const *)worker->kernel->key_names,
                 worker->kernel->n_key_names, &worker->key, error) ||
      !space_parse(request->space, &worker->space, error) ||
      !kernel_accepts(worker->kernel, &worker->key, worker->space, error) ||
      !case_take(worker, request, error))
    return false;

  worker->seed = (uint64_t)request->seed;
  return (uint64_t)config < worker->space->raw_count ||
         error_at(error, config_pointer,
                  "config %lld is outside of the space, which has %llu points", (long long)config,
                  (unsigned long long)worker->space->raw_count);
}

/* Opens everything but the baseline: after a failure here no config can be measured. */
static bool problem_open(struct worker *worker, struct open_request *open, struct open_spent *spent,
                         struct error *error) {
  if (!problem_parse(worker, open, open->baseline.config, "/baseline/config", error) ||
      !expected_take(worker, open, error))
    return false;
  if (open->has_reference && worker->n_fds == 0)
    return error_at(error, "/reference", "there is no socket to a reference");

  struct problem_setup setup = {
      .device = worker->device,
      .kernel = worker->kernel,
      .key = &worker->key,
      .space = worker->space,
      .reference = open->has_reference ? reference_connect(worker->fds[--worker->n_fds]) : NULL,
      .expected = worker->expected,
      .baseline = (uint64_t)open->baseline.config,
      .seed = worker->seed,
      .regime = open->regime,
      .rotation_bytes_max = ROTATION_BYTES_MAX,
      .instruction_flush = open->instruction_flush,
      .fingerprint = open->fingerprint,
  };
  int64_t start = clock_monotonic_ns();
  if (!problem_new(&setup, &worker->problem, error))
    return false;

  spent->reference_ns = worker->problem->reference_ns;
  spent->inputs_ns = clock_monotonic_ns() - start - spent->reference_ns;
  return true;
}

enum outcome worker_load(struct worker *worker, const struct requested_config *config,
                         struct timed_config *timed, struct error *error) {
  uint64_t ordinal = (uint64_t)config->config;
  int64_t start = clock_monotonic_ns();
  worker_status_set(worker, WORKER_LOADING, ordinal);
  enum outcome outcome =
      config_load(worker->problem, ordinal, config->object, &config->launch, &timed->loaded, error);
  timed->device_ns += clock_monotonic_ns() - start;
  return outcome;
}

enum outcome worker_check(struct worker *worker, struct timed_config *timed, struct error *error) {
  int64_t start = clock_monotonic_ns();
  worker_status_set(worker, WORKER_CHECKING, timed->loaded->config);
  enum outcome outcome = config_check(worker->problem, timed->loaded, error);
  timed->device_ns += clock_monotonic_ns() - start;
  return outcome;
}

static enum outcome baseline_open(struct worker *worker, const struct requested_config *baseline,
                                  struct error *error) {
  enum outcome outcome = worker_load(worker, baseline, &worker->baseline, error);
  if (outcome == OUTCOME_CORRECT)
    outcome = worker_check(worker, &worker->baseline, error);
  if (outcome != OUTCOME_CORRECT)
    return outcome;
  worker_turn_take(worker, (uint64_t)baseline->config);
  if (timed_warm_up(worker->problem, &worker->baseline, WARM_UP_BASELINE_US, 0, error))
    return OUTCOME_CORRECT;
  problem_check_device(worker->problem, true);
  return OUTCOME_RUNTIME;
}

/* After a failure, which the device may have caused, the sentinel runs before the next opening. */
static bool open_and_answer(struct worker *worker, struct open_request *open) {
  struct error error = {0};
  struct open_spent spent = {0};
  int64_t start = clock_monotonic_ns();

  if (!device_trust(worker, open->device, &error))
    return answer_unfit(&error);

  /* The machine's settings are stored in the conditions of every measurement. */
  if (!worker->settings || clock_monotonic_ns() - worker->settings_ns >= SETTINGS_NS) {
    cleanup_settings_findings struct settings_findings findings = {0};
    machine_settings_check("", &findings);
    json_decref(worker->settings);
    worker->settings = settings_findings_differing(&findings);
    worker->settings_ns = clock_monotonic_ns();
  }

  spent.device_ns = clock_monotonic_ns() - start;
  if (!problem_open(worker, open, &spent, &error)) {
    worker->is_trusted = false;
    problem_close(worker);
    return worker_answer_error(&error);
  }

  start = clock_monotonic_ns();
  enum outcome outcome = baseline_open(worker, &open->baseline, &error);
  spent.baseline_ns = clock_monotonic_ns() - start;
  bool is_reference_lost = problem_reference_is_lost(worker->problem);
  bool is_misinterpreted =
      worker->baseline.loaded && worker->baseline.loaded->interpreted == AGREEMENT_DISAGREES;
  if (outcome == OUTCOME_CORRECT && !is_reference_lost)
    return worker_answer(json_pack("{s:b, s:{s:I, s:I, s:I, s:I}}", "opened", 1, "spent",
                                   "device_us", (json_int_t)(spent.device_ns / 1000), "inputs_us",
                                   (json_int_t)(spent.inputs_ns / 1000), "reference_us",
                                   (json_int_t)(spent.reference_ns / 1000), "baseline_us",
                                   (json_int_t)(spent.baseline_ns / 1000)));
  if (!is_reference_lost && worker->problem->is_lost)
    worker_leave(worker);
  bool answered = worker_answer(
      is_reference_lost ? json_pack("{s:s}", "reference", "lost")
                        : json_pack("{s:s, s:s, s:b}", "outcome", outcome_name(outcome), "detail",
                                    error.message, "misinterpreted", is_misinterpreted));
  if (!is_reference_lost && worker->problem->is_spoiled)
    worker_leave(worker);
  worker->is_trusted = false;
  problem_close(worker);
  return answered;
}

bool worker_answer_open(struct worker *worker, const json_t *json) {
  struct open_request open;
  struct error error = {0};

  problem_close(worker);
  record_init(&open_record, &open);
  bool is_read =
      record_read(&open_record, json, "", &open, &error) &&
      worker_object_place(worker, &worker->opened, &open.instruction_flush, &error) &&
      worker_object_place(worker, &worker->opened, &open.fingerprint, &error) &&
      worker_config_prepare(worker, &worker->opened, "/baseline", &open.baseline, &error);
  worker_status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  bool answered = is_read ? open_and_answer(worker, &open) : worker_answer_error(&error);
  record_release(&open_record, &open);
  return answered;
}

/* The request lives as long as the process. */
bool worker_answer_reference(struct worker *worker, const json_t *json) {
  struct open_request request;
  struct reference_host *host;
  struct reference *reference;
  struct sandbox *sandbox;
  struct error error;

  worker_status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  record_init(&reference_record, &request);
  if (worker->n_fds < 2)
    return worker_answer_error(
        (error_set(&error, "\"reference\" comes with a bundle and a socket"), &error));
  if (!record_read(&reference_record, json, "", &request, &error) ||
      !problem_parse(worker, &request, request.config, "/config", &error) ||
      !reference_host_new(
          &(struct reference_setup){.kernel = worker->kernel,
                                    .space = worker->space,
                                    .facts = {&worker->key, request.gpu_name, request.arch},
                                    .config = (uint64_t)request.config,
                                    .seed = worker->seed},
          &host, &error) ||
      !worker_confine_files(true, &sandbox, &error) || !worker_confine_calls(sandbox, &error) ||
      !worker_object_place(worker, &worker->opened, &request.reference_object, &error) ||
      !reference_load(request.reference_object, &reference, &error))
    return worker_answer_error(&error);

  reference_serve(reference, host, worker->fds[1]);
  return false;
}
