/* What an execution asks of its workers, and starting the process of a reference. */
#include <errno.h>
#include <math.h>
#include <sys/socket.h>

#include "agent/lease/lease_execution.h"

bool execution_stopped(void *context) {
  const struct execution *execution = context;
  return execution->hooks->stopped(execution->hooks->context);
}

/* Adds an object whose bytes must be sent with the request. */
static void object_add(json_t *objects, const char *path, const struct digest *digest) {
  json_put(objects, path, json_digest_text(digest));
}

static json_t *config_request(const struct lease_config *config, json_t *objects) {
  const struct lease_object *object = config->object;
  object_add(objects, object->path, &object->digest);
  json_t *request = json_pack("{s:I, s:s, s:o}", "config", (json_int_t)config->ordinal, "object",
                              object->path, "launch", launch_spec_to_json(&object->launch));
  ALWAYS(request != NULL);
  return request;
}

/* Adds the case of a captured kernel and the paths of the bytes that it passes. */
static void case_add(json_t *request, const struct lease *lease) {
  const struct build_objects *build = lease->objects;
  json_t *blobs = json_object();
  for (size_t i = 0; build && i < build->n_blobs; i++) {
    const struct case_blob *blob = &build->blobs[i];
    char text[DIGEST_TEXT_SIZE];
    json_put(blobs, digest_format(&blob->digest, text), json_string(blob->path));
    object_add(json_object_get(request, "objects"), blob->path, &blob->digest);
  }
  if (build && build->of_key)
    json_put(request, "case", json_incref(build->of_key));
  if (build && build->n_blobs)
    json_put(request, "blobs", json_incref(blobs));
  json_decref(blobs);
}

json_t *open_request(const struct execution *execution) {
  const struct lease *lease = execution->lease;
  const char *paths[HELPER_COUNT] = {NULL};
  json_t *objects = json_object(), *baseline = config_request(&execution->baseline, objects);

  for (size_t i = 0; i < HELPER_COUNT; i++) {
    const struct helper_object *helper = execution->helpers[i];
    if (!helper)
      continue;
    object_add(objects, helper->path, &helper->digest);
    paths[i] = helper->path;
  }

  json_t *request = json_pack(
      "{s:s, s:s, s:O, s:o, s:O, s:I, s:s, s:b, s:s?, s:s?, s:o, s:o}", "do", "open", "device",
      execution->executor->device, "kernel", lease->kernel->json, "key", key_to_json(&lease->key),
      "space", lease->space->json, "seed", (json_int_t)lease->seed, "regime",
      regime_name(lease->regime), "reference", execution->reference.path != NULL,
      "instruction_flush", paths[HELPER_INSTRUCTION_FLUSH], "fingerprint",
      paths[HELPER_FINGERPRINT], "baseline", baseline, "objects", objects);
  ALWAYS(request != NULL);
  case_add(request, lease);
  const struct case_blob *expected = lease->objects ? &lease->objects->expected : NULL;
  if (expected && expected->path) {
    json_put(request, "expected", json_string(expected->path));
    object_add(objects, expected->path, &expected->digest);
  }
  return request;
}

bool reference_start(struct execution *execution, struct worker_client **ret_reference,
                     int *ret_socket, struct error *error) {
  const struct lease *lease = execution->lease;
  const struct executor *executor = execution->executor;
  struct worker_client *reference;
  int ends[2];
  *ret_socket = -1;
  if (!execution->reference.path)
    return true;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return error_set(error, "cannot make a reference's socket: %s", strerror(errno));

  cleanup_fd int ours = ends[0], theirs = ends[1];
  if (!worker_start(executor->spawner, executor->limits, &reference, error))
    return false;

  json_t *objects = json_object();
  object_add(objects, execution->reference.path, &execution->reference.digest);
  cleanup_json json_t *request =
      json_pack("{s:s, s:O, s:o, s:O, s:I, s:s, s:s, s:I, s:s, s:o}", "do", "reference", "kernel",
                lease->kernel->json, "key", key_to_json(&lease->key), "space", lease->space->json,
                "seed", (json_int_t)lease->seed, "gpu_name", executor->gpu_name, "arch",
                executor->arch, "config", (json_int_t)execution->baseline.ordinal,
                "reference_object", execution->reference.path, "objects", objects);
  ALWAYS(request != NULL);
  case_add(request, lease);
  if (!worker_request_with(reference, request, theirs, error)) {
    worker_abandon(reference);
    return false;
  }

  worker_flush(reference);
  *ret_reference = reference;
  *ret_socket = ours;
  ours = -1;
  return true;
}

json_t *measure_request(const struct race_batch *batch, int64_t device_us, double best_ratio) {
  const struct race_terms *terms = batch->terms;
  int64_t rounds_max = terms->rounds_max,
          rounds_min = terms->rounds_min < rounds_max ? terms->rounds_min : rounds_max;
  json_t *configs = json_array(), *objects = json_object();

  array_foreach (config, batch->configs, batch->n)
    json_push(configs, config_request(*config, objects));
  json_t *json = json_pack(
      "{s:s, s:o, s:I, s:I, s:o, s:f, s:o, s:o, s:b, s:b, s:o}", "do", "measure", "configs",
      configs, "rounds_min", (json_int_t)rounds_min, "rounds_max", (json_int_t)rounds_max, "margin",
      isfinite(terms->margin) ? json_real(terms->margin) : json_null(), "precision",
      terms->precision, "device_us", device_us > 0 ? json_integer(device_us) : json_null(),
      "best_ratio", best_ratio > 0 ? json_real(best_ratio) : json_null(), "serial",
      batch->is_serial, "whole", batch->is_final, "objects", objects);
  ALWAYS(json != NULL);

  return json;
}
