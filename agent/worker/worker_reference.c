/* The process of a reference: loads it, fills what it is called with, and serves elements until its
 * socket closes. Memory: freed with the process. Threads: one, with a team for many elements. */
#include "agent/worker/worker_process.h"
#include "agent/worker/worker_sandbox.h"

struct reference_request {
  json_t *kernel, *key, *space;
  const char *gpu_name, *arch, *object;
  int64_t seed, config;
};

static bool request_read(const json_t *json, struct reference_request *request,
                         struct error *error) {
  static const char *const members[] = {
      "do",     "kernel",           "key",    "space", "seed", "gpu_name", "arch",
      "config", "reference_object", "bundle", NULL};
  return json_only_members(json, "", members, error) &&
         json_get_object(json, "", "kernel", JSON_REQUIRED, &request->kernel, error) &&
         json_get_object(json, "", "key", JSON_REQUIRED, &request->key, error) &&
         json_get_object(json, "", "space", JSON_REQUIRED, &request->space, error) &&
         json_get_string(json, "", "gpu_name", JSON_REQUIRED, &request->gpu_name, error) &&
         json_get_string(json, "", "arch", JSON_REQUIRED, &request->arch, error) &&
         json_get_integer(json, "", "seed", JSON_REQUIRED, INT64_MIN, INT64_MAX, &request->seed,
                          error) &&
         json_get_integer(json, "", "config", JSON_REQUIRED, 0, INT64_MAX, &request->config,
                          error) &&
         json_get_string(json, "", "reference_object", JSON_REQUIRED, &request->object, error);
}

static bool host_make(struct worker *worker, const struct reference_request *request,
                      struct reference_host **ret_host, struct error *error) {
  if (!kernel_parse(request->kernel, &worker->kernel, error) ||
      !key_parse(request->key, (const char *const *)worker->kernel->key_names,
                 worker->kernel->n_key_names, &worker->key, error) ||
      !space_parse(request->space, &worker->space, error) ||
      !kernel_accepts(worker->kernel, &worker->key, worker->space, error))
    return false;
  if ((uint64_t)request->config >= worker->space->raw_count)
    return error_at(error, "/config", "config %lld is outside of the space",
                    (long long)request->config);
  struct reference_setup setup = {.kernel = worker->kernel,
                                  .space = worker->space,
                                  .facts = {&worker->key, request->gpu_name, request->arch},
                                  .config = (uint64_t)request->config,
                                  .seed = (uint64_t)request->seed};
  return reference_host_new(&setup, ret_host, error);
}

static bool confine(struct error *error) {
  struct sandbox *sandbox;
  return worker_confine_files(true, &sandbox, error) && worker_confine_calls(sandbox, error);
}

bool worker_answer_reference(struct worker *worker, const json_t *json) {
  struct reference_request request;
  struct reference_host *host;
  struct reference *reference;
  struct error error;
  worker_status_set(worker, WORKER_OPENING, WORKER_CONFIG_NONE);
  if (worker->n_fds < 2)
    return worker_answer_error(
        (error_set(&error, "a reference is given its object and a socket"), &error));
  if (!request_read(json, &request, &error) || !host_make(worker, &request, &host, &error) ||
      !confine(&error))
    return worker_answer_error(&error);
  cleanup_free char *object = NULL;
  if (!bundle_place(&worker->opened, json, worker->fds[0], request.object, &object, &error) ||
      !reference_load(object, &reference, &error))
    return worker_answer_error(&error);
  reference_serve(reference, host, worker->fds[1]);
  return false;
}
