/* Reading what a worker is asked. Memory: a request borrows from its JSON but for launches and the
 * list of configs, which its release frees. Threads: pure functions. */
#include <math.h>

#include "agent/worker/worker_process.h"

#define CONFIGS_MAX 4096 /* of one request */
#define ROUNDS_MAX 10000

/* What objects are taken from and put into. */
struct objects {
  const json_t *request;
  int bundle_fd;
  struct bundle_places *places;
};

static struct objects objects_of(const struct worker *worker, const json_t *request,
                                 struct bundle_places *places) {
  return (struct objects){request, worker->n_fds ? worker->fds[0] : -1, places};
}

/* NULL where there is no path. */
static bool object_place(const struct objects *objects, const char *path, char **ret_place,
                         struct error *error) {
  *ret_place = NULL;
  return !path || bundle_place(objects->places, objects->request, objects->bundle_fd, path,
                               ret_place, error);
}

/* A config at `pointer`; a launch that is absent says nothing. */
static bool config_read(const struct objects *objects, const json_t *json, const char *pointer,
                        int64_t max, struct requested_config *config, struct error *error) {
  static const char *const members[] = {"config", "object", "launch", NULL};
  char at[JSON_POINTER_SIZE];
  const char *object = NULL;
  json_t *launch = NULL;
  int64_t ordinal;
  if (!json_only_members(json, pointer, members, error) ||
      !json_get_integer(json, pointer, "config", JSON_REQUIRED, 0, max, &ordinal, error) ||
      !json_get_string(json, pointer, "object", JSON_REQUIRED, &object, error) ||
      !json_get_object(json, pointer, "launch", JSON_OPTIONAL, &launch, error))
    return false;
  config->config = (uint64_t)ordinal;
  config->launch = launch_spec_default();
  if (launch && !launch_spec_from_json(launch, &config->launch, error))
    return error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "launch"));
  return object_place(objects, object, &config->object, error) ||
         error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "object"));
}

bool open_request_read(struct worker *worker, const json_t *json, struct open_request *request,
                       struct error *error) {
  static const char *const members[] = {
      "do",          "device", "kernel",    "key",      "space",
      "seed",        "regime", "reference", "baseline", "instruction_flush",
      "fingerprint", "bundle", NULL};
  struct objects objects = objects_of(worker, json, &worker->opened);
  const char *instruction_flush = NULL, *fingerprint = NULL;
  json_t *baseline = NULL;
  *request = (struct open_request){.baseline.launch = launch_spec_default()};
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "device", JSON_REQUIRED, &request->device, error) ||
      !json_get_object(json, "", "kernel", JSON_REQUIRED, &request->kernel, error) ||
      !json_get_object(json, "", "key", JSON_REQUIRED, &request->key, error) ||
      !json_get_object(json, "", "space", JSON_REQUIRED, &request->space, error) ||
      !json_get_integer(json, "", "seed", JSON_REQUIRED, INT64_MIN, INT64_MAX, &request->seed,
                        error) ||
      !json_get_string(json, "", "regime", JSON_REQUIRED, &request->regime, error) ||
      !json_get_bool(json, "", "reference", JSON_OPTIONAL, &request->has_reference, error) ||
      !json_get_string(json, "", "instruction_flush", JSON_OPTIONAL, &instruction_flush, error) ||
      !json_get_string(json, "", "fingerprint", JSON_OPTIONAL, &fingerprint, error) ||
      !json_get_object(json, "", "baseline", JSON_REQUIRED, &baseline, error))
    return false;
  if (!string_equal(request->regime, "cold") && !string_equal(request->regime, "warm"))
    return error_at(error, "/regime", "the regime must be \"cold\" or \"warm\", not \"%s\"",
                    request->regime);
  return object_place(&objects, instruction_flush, &request->instruction_flush, error) &&
         object_place(&objects, fingerprint, &request->fingerprint, error) &&
         config_read(&objects, baseline, "/baseline", INT64_MAX, &request->baseline, error);
}

static void config_release(struct requested_config *config) {
  launch_spec_release(&config->launch);
  free(config->object);
}

void open_request_release(struct open_request *request) {
  config_release(&request->baseline);
  free(request->instruction_flush);
  free(request->fingerprint);
}

/* A number that is not below zero; absent, *ret stays. */
static bool size_read(const json_t *json, const char *name, enum json_presence presence,
                      double *ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  double number = *ret;
  if (!json_get_number(json, "", name, presence, &number, error))
    return false;
  if (number < 0)
    return error_at(error, json_pointer_member(at, sizeof at, "", name),
                    "\"%s\" must not be below 0, and is %g", name, number);
  *ret = number;
  return true;
}

static bool limits_read(const json_t *json, struct race_limits *limits, struct error *error) {
  int64_t rounds_min, rounds_max;
  *limits = (struct race_limits){.margin = INFINITY};
  if (!json_get_integer(json, "", "rounds_min", JSON_REQUIRED, 1, ROUNDS_MAX, &rounds_min, error) ||
      !json_get_integer(json, "", "rounds_max", JSON_REQUIRED, rounds_min, ROUNDS_MAX, &rounds_max,
                        error) ||
      !size_read(json, "margin", JSON_OPTIONAL, &limits->margin, error) ||
      !size_read(json, "precision", JSON_REQUIRED, &limits->precision, error) ||
      !size_read(json, "best_ratio", JSON_OPTIONAL, &limits->best_ratio, error) ||
      !json_get_integer(json, "", "device_us", JSON_OPTIONAL, 1, INT64_MAX, &limits->device_us,
                        error) ||
      !json_get_bool(json, "", "serial", JSON_OPTIONAL, &limits->is_serial, error) ||
      !json_get_bool(json, "", "whole", JSON_OPTIONAL, &limits->is_whole, error))
    return false;
  limits->rounds_min = (size_t)rounds_min;
  limits->rounds_max = (size_t)rounds_max;
  return true;
}

bool measure_request_read(struct worker *worker, const json_t *json,
                          struct measure_request *request, struct error *error) {
  static const char *const members[] = {"do",     "configs",   "rounds_min", "rounds_max",
                                        "margin", "precision", "device_us",  "best_ratio",
                                        "serial", "whole",     "bundle",     NULL};
  struct objects objects = objects_of(worker, json, &worker->measured);
  json_t *array = NULL, *item;
  size_t i;
  if (!worker->problem)
    return error_set(error, "nothing is open; send \"open\" first");
  if (!json_only_members(json, "", members, error) || !limits_read(json, &request->limits, error) ||
      !json_get_array(json, "", "configs", JSON_REQUIRED, &array, error))
    return false;
  if (json_array_size(array) > CONFIGS_MAX)
    return error_at(error, "/configs", "at most %d configs can be measured at once", CONFIGS_MAX);
  request->configs = xcalloc(json_array_size(array), sizeof *request->configs);
  json_array_foreach (array, i, item) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/configs", i);
    request->n++;
    if (!config_read(&objects, item, at, (int64_t)(worker->space->raw_count - 1),
                     &request->configs[i], error))
      return false;
  }
  return true;
}

void measure_request_release(struct measure_request *request) {
  for (size_t i = 0; i < request->n; i++)
    config_release(&request->configs[i]);
  free(request->configs);
}
