/* Measuring: loads and checks the configs of a request, races them, and reports each result as soon
 * as it is known. Memory: see worker_process.h. Threads: one. */
#include <math.h>

#include "agent/measure/check.h"
#include "agent/worker/worker_process.h"
#include "common/measurement/measurement.h"

#define CONFIGS_MAX 4096 /* of one request */
#define ROUNDS_MAX 10000
/* How long the device's state is cached: reading it takes time. */
#define CONDITIONS_NS ((int64_t)1000000000)

_Static_assert(RACE_NO_CONFIG == WORKER_CONFIG_NONE, "the page shows a race's turns");

struct measure_request {
  struct race_limits limits;
  int64_t rounds_min, rounds_max;

  RECORD_ARRAY(struct requested_config, n, configs);
};

#define AT(member) offsetof(struct measure_request, member)
static const struct field measure_fields[] = {
    {"configs", FIELD_RECORDS, AT(n), FIELD_REQUIRED, .most = CONFIGS_MAX,
     .of = &requested_config_record},
    {"rounds_min", FIELD_INTEGER, AT(rounds_min), FIELD_REQUIRED, .least = 1, .most = ROUNDS_MAX},
    {"rounds_max", FIELD_INTEGER, AT(rounds_max), FIELD_REQUIRED, .least = 1, .most = ROUNDS_MAX},
    {"margin", FIELD_NUMBER, AT(limits.margin), .most_number = HUGE_VAL},
    {"precision", FIELD_NUMBER, AT(limits.precision), FIELD_REQUIRED, .most_number = HUGE_VAL},
    {"best_ratio", FIELD_NUMBER, AT(limits.best_ratio), .most_number = HUGE_VAL},
    {"device_us", FIELD_INTEGER, AT(limits.device_us), .least = 1, .most = INT64_MAX},
    {"serial", FIELD_BOOL, AT(limits.is_serial)},
    {"whole", FIELD_BOOL, AT(limits.is_whole)},
};
static const struct record measure_record = RECORD(NULL, struct measure_request, measure_fields);

/* A request that is being answered. */
struct measuring {
  struct worker *worker;
  size_t n; /* configs that are loaded and not known to be wrong */
  struct timed_config *timed;
  struct race race;
  json_t *conditions;    /* of the device and the machine; NULL: not read yet */
  int64_t conditions_ns; /* when they were read */
  int64_t load_ns, check_ns;
  bool is_over_budget;
};

/* How a config without a reference was compared: the default's outputs and the interpreter's. */
static void facts_add(json_t *conditions, enum agreement agreement, enum agreement interpreted) {
  if (agreement != AGREEMENT_NONE)
    json_put(conditions, "agreement", json_string(agreement_name(agreement)));
  if (interpreted != AGREEMENT_NONE)
    json_put(conditions, "interpreted", json_string(agreement_name(interpreted)));
}

/* `loaded`: NULL where the config was not loaded; its facts are kept only where one disagrees. */
static bool answer_failed(uint64_t config, enum outcome outcome, const struct loaded_config *loaded,
                          const char *detail, const struct timed_config *timed) {
  struct measurement measurement;
  measurement_init(&measurement);
  cleanup_json json_t *conditions = NULL;
  if (loaded &&
      (loaded->agreement == AGREEMENT_DISAGREES || loaded->interpreted == AGREEMENT_DISAGREES)) {
    conditions = measurement.conditions = json_object();
    facts_add(conditions, loaded->agreement, loaded->interpreted);
  }
  measurement.config = (int64_t)config;
  measurement.outcome = outcome;
  measurement.detail = (char *)detail;
  measurement.device_us = timed->device_ns / 1000;
  return worker_answer(record_write(&measurement_record, &measurement));
}

/* The conditions of the device, the machine, and the race so far (a new reference). */
static json_t *conditions_now(struct measuring *measuring) {
  const struct worker *worker = measuring->worker;
  const struct device *device = worker->device;
  const struct device_rotation *rotation = &worker->problem->rotation;
  const struct race *race = &measuring->race;

  if (!measuring->conditions || clock_monotonic_ns() - measuring->conditions_ns >= CONDITIONS_NS) {
    json_decref(measuring->conditions);
    json_t *read = measuring->conditions = device->ops->conditions(worker->device);
    measuring->conditions_ns = clock_monotonic_ns();
    json_t *more = json_pack(
        "{s:s, s:O*, s:o*, s:o*}", "sandbox", sandbox_level_name(sandbox_level()), "settings",
        json_array_size(worker->settings) ? worker->settings : NULL, "displacement_bytes",
        rotation->displace || rotation->n_copies > 1
            ? json_integer((json_int_t)device->displacement_bytes)
            : NULL,
        "instruction_flush", rotation->flush_instructions ? json_true() : NULL);
    ALWAYS(more && json_object_update_new(read, more) == 0);
  }

  json_t *conditions = json_copy(measuring->conditions);
  json_t *rounds = json_pack("{s:I, s:I, s:o*}", "rounds", (json_int_t)race->n_rounds,
                             "rounds_rejected", (json_int_t)race->n_rejected, "clock_mhz",
                             race->clock_mhz > 0 ? json_real(race->clock_mhz) : NULL);
  ALWAYS(rounds && json_object_update_new(conditions, rounds) == 0);
  return conditions;
}

/* Reports a config whose sampling has ended. */
static bool answer_timed(void *context, struct timed_config *timed) {
  struct measuring *measuring = context;
  const struct loaded_config *loaded = timed->loaded;
  const struct problem *problem = measuring->worker->problem;

  if (timed->end == RACE_END_FAILED) {
    measuring->worker->is_trusted = false;
    return answer_failed(loaded->config, OUTCOME_RUNTIME, NULL, timed->error.message, timed);
  }

  if (!timed->n)
    return true;

  struct measurement measurement;
  measurement_init(&measurement);
  measurement.config = (int64_t)loaded->config;
  measurement.outcome = OUTCOME_CORRECT;
  measurement.timer = (char *)measuring->worker->device->ops->timer;
  measurement.samples_us = (struct numbers){timed->n, timed->samples_us};
  measurement.baseline_us = (struct numbers){timed->n, timed->baseline_us};
  measurement.end = (char *)race_end_name(timed->end);
  if (measuring->race.clock_mhz > 0)
    measurement.clock_mhz = round(measuring->race.clock_mhz);
  measurement.device_us = timed->device_ns / 1000;
  measurement.occupancy = loaded->plan.occupancy;
  measurement.lds_bytes = loaded->plan.lds_bytes;
  cleanup_json json_t *conditions = measurement.conditions = conditions_now(measuring);
  if (loaded->agreement != AGREEMENT_NONE) {
    facts_add(conditions, loaded->agreement, loaded->interpreted);
    json_put(conditions, "agreement_sets", json_integer((json_int_t)problem->n_sets));
    if (loaded->is_summed)
      json_put(conditions, "agreement_summed", json_true());
    if (loaded->is_drawn)
      json_put(conditions, "agreement_drawn", json_true());
    if (problem->is_noisy)
      json_put(conditions, "agreement_noise", json_true());
  }
  const json_t *temperature_c = json_object_get(conditions, "temperature_c");
  if (json_is_number(temperature_c))
    measurement.temperature_c = json_number_value(temperature_c);
  measurement_trim(&measurement);
  return worker_answer(record_write(&measurement_record, &measurement));
}

static int64_t spent_us(const struct measuring *measuring) {
  return (measuring->load_ns + measuring->check_ns) / 1000;
}

/* Loads and checks one config. A correct one is kept; a failure is reported, unless the device was
 * lost before. */
static bool config_try(struct measuring *measuring, const struct requested_config *config) {
  struct worker *worker = measuring->worker;
  struct timed_config *timed = &measuring->timed[measuring->n];
  struct error error = {0};

  *timed = (struct timed_config){0};
  enum outcome outcome = worker_load(worker, config, timed, &error);
  int64_t loaded_ns = timed->device_ns;
  if (outcome == OUTCOME_CORRECT)
    outcome = worker_check(worker, timed, &error);
  measuring->load_ns += loaded_ns;
  measuring->check_ns += timed->device_ns - loaded_ns;
  if (outcome == OUTCOME_CORRECT) {
    measuring->n++;
    return true;
  }

  if (problem_reference_is_lost(worker->problem))
    worker->problem->is_spoiled = worker->problem->is_lost =
        true; /* nothing can be compared without the reference */
  worker->is_trusted &= outcome != OUTCOME_RUNTIME;
  if (worker->problem->is_lost)
    return true;
  bool answered =
      answer_failed((uint64_t)config->config, outcome, timed->loaded, error.message, timed);
  if (timed->loaded && !worker->problem->is_spoiled)
    config_unload(worker->problem, TAKE(timed->loaded));
  return answered;
}

/* Reports the configs that a last check of the inputs found wrong, and moves the others to the
 * front. */
static bool configs_settle(struct measuring *measuring) {
  struct problem *problem = measuring->worker->problem;
  int64_t start = clock_monotonic_ns();
  struct error error;
  size_t kept = 0;
  bool answered = true;

  worker_status_set(measuring->worker, WORKER_CHECKING, WORKER_CONFIG_NONE);
  if (!problem_inputs_check(problem, &error)) {
    problem->is_spoiled = problem->is_lost = true; /* no config is known to be the cause */
    return true;
  }

  measuring->check_ns += clock_monotonic_ns() - start;
  array_foreach (timed, measuring->timed, measuring->n) {
    struct loaded_config *loaded = timed->loaded;
    if (loaded->outcome == OUTCOME_CORRECT) {
      measuring->timed[kept++] = *timed;
      continue;
    }
    answered = answered &&
               answer_failed(loaded->config, loaded->outcome, loaded, loaded->error.message, timed);
    config_unload(problem, loaded);
  }

  measuring->n = kept;
  return answered;
}

static void turn_take(void *context, uint64_t config) {
  const struct measuring *measuring = context;
  worker_turn_take(measuring->worker, config);
}

static bool configs_measure(struct measuring *measuring, const struct measure_request *request) {
  struct worker *worker = measuring->worker;
  struct problem *problem = worker->problem;
  struct race *race = &measuring->race;
  struct race_limits limits = request->limits;
  bool answered = true;

  /* Loads configs until the problem is spoiled or, where not all must be measured, half of the
   * budget is spent: the other half is for timing those that are loaded. */
  for (size_t i = 0; i < request->n && answered && !problem->is_spoiled; i++) {
    measuring->is_over_budget = limits.device_us && !limits.is_whole &&
                                spent_us(measuring) >= limits.device_us - limits.device_us / 2;
    if (measuring->is_over_budget)
      break;
    answered = config_try(measuring, &request->configs[i]);
  }

  if (answered && measuring->n && !problem->is_spoiled)
    answered = configs_settle(measuring);
  if (answered && !problem->is_spoiled && *problem->baseline_wrong.message)
    return worker_answer(json_pack("{s:s}", "baseline_wrong", problem->baseline_wrong.message));

  if (answered && measuring->n && !problem->is_spoiled) {
    /* The seed differs between the processes of a campaign; the first config makes it differ
     * between the requests of one process. */
    uint64_t seed = worker->seed ^ ((uint64_t)request->configs[0].config * 0x9e3779b97f4a7c15u);
    if (limits.device_us) {
      int64_t left_us = limits.device_us - spent_us(measuring);
      limits.device_us = left_us > 0 ? left_us : 1;
    }
    race_run(&(struct race_setup){.problem = problem,
                                  .baseline = &worker->baseline,
                                  .configs = measuring->timed,
                                  .n = measuring->n,
                                  .limits = &limits,
                                  .seed = seed,
                                  .listener = {measuring, turn_take, answer_timed}},
             race);
    measuring->is_over_budget |= race->is_over_budget;
  }

  if (problem->is_spoiled)
    worker_leave(worker);
  return answered &&
         worker_answer(json_pack("{s:b, s:b, s:{s:I, s:I, s:I, s:I}}", "done", 1, "over_budget",
                                 measuring->is_over_budget, "spent", "load_us",
                                 (json_int_t)(measuring->load_ns / 1000), "check_us",
                                 (json_int_t)(measuring->check_ns / 1000), "warm_up_us",
                                 (json_int_t)(race->warm_up_ns / 1000), "timing_us",
                                 (json_int_t)((race->device_ns - race->warm_up_ns) / 1000)));
}

static bool request_read(struct worker *worker, const json_t *json, struct measure_request *request,
                         struct error *error) {
  if (!worker->problem)
    return error_set(error, "nothing is open; send \"open\" first");
  if (!record_read(&measure_record, json, "", request, error))
    return false;
  if (request->rounds_max < request->rounds_min)
    return error_at(error, "/rounds_max", "\"rounds_max\" must not be below \"rounds_min\"");

  request->limits.rounds_min = (size_t)request->rounds_min;
  request->limits.rounds_max = (size_t)request->rounds_max;

  for (size_t i = 0; i < request->n; i++) {
    struct requested_config *config = &request->configs[i];
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/configs", i);
    if ((uint64_t)config->config >= worker->space->raw_count)
      return error_at(error, at, "config %lld is outside of the space", (long long)config->config);
    if (!worker_config_prepare(worker, &worker->measured, at, config, error))
      return false;
  }

  return true;
}

bool worker_answer_measure(struct worker *worker, const json_t *json) {
  struct measure_request request;
  struct measuring measuring = {.worker = worker};
  struct error error = {0};

  record_init(&measure_record, &request);
  request.limits = (struct race_limits){.margin = INFINITY};
  bool answered;
  if (request_read(worker, json, &request, &error)) {
    measuring.timed = xcalloc(request.n + 1, sizeof *measuring.timed);
    answered = configs_measure(&measuring, &request);
  } else {
    answered = worker_answer_error(&error);
  }

  array_foreach (timed, measuring.timed, measuring.n) {
    config_unload(worker->problem, timed->loaded);
    timed_release(timed);
  }

  free(measuring.timed);
  json_decref(measuring.conditions);
  record_release(&measure_record, &request);
  bundle_places_release(&worker->measured);
  return answered;
}
