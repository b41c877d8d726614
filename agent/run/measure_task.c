/* The runner of measure tasks: gets the kernel's sources or its build, checks signatures, and
 * executes the lease. */
#include <time.h>

#include "agent/compile/sources.h"
#include "agent/run/task.h"
#include "common/base/log.h"
#include "common/cache/signatures.h"

static bool granted_is_ours(void *context, uint64_t config) {
  const struct granted *granted = context;
  return held_has(granted->thread->agent->held, granted->task->lease, granted->task->epoch, config);
}

/* The code of a final is stored: the measurement names it. The poster uploads it, because here the
 * device would wait. */
static bool granted_measured(void *context, const struct lease *lease,
                             const struct measurement *measurement,
                             const struct lease_object *object) {
  struct granted *granted = context;
  bool is_kept = lease->stage == STAGE_FINAL && measurement->outcome == OUTCOME_CORRECT && object;
  json_t *json = measurement_to_json(lease, measurement, is_kept ? &object->digest : NULL);
  granted->n_measured++;
  return granted_report(granted, "measurement", json, is_kept ? object->path : NULL);
}

static bool blob_read(void *context, const struct source *source, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/blobs/%s", digest_format(&source->digest, digest));
  cleanup_free char *what = xasprintf("the kernel's file %s", source->path);
  return granted_download(context, path, what, ret_bytes, ret_size, error);
}

/* Gets the objects of a lease whose kernel was built ahead. The build is cached for the next lease
 * of the same job. */
static bool lease_objects_get(struct granted *granted, struct lease *lease, struct error *error) {
  struct device_thread *thread = granted->thread;
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE];
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!thread->build || !digest_equal(&thread->build_digest, &lease->build)) {
    cleanup_free char *path =
        xasprintf("/v1/kernels/%s/builds/%s", digest_format(&lease->kernel->hash, kernel),
                  digest_format(&lease->build, build));
    json_t *json;
    if (!granted_download(granted, path, "the kernel's build", &bytes, &size, error) ||
        !json_parse(bytes, size, &json, error))
      return false;
    json_decref(thread->build);
    thread->build = json;
    thread->build_digest = json_digest(json);
    if (!digest_equal(&thread->build_digest, &lease->build))
      return error_set(error, "the server sent another build in answer to GET %s", path);
  }

  size_t n = (size_t)config_ranges_count(&lease->configs);
  cleanup_free uint64_t *configs = xcalloc(n + 1, sizeof *configs);
  struct build_request request = {
      .kernel = lease->kernel,
      .key = &lease->key,
      .space = lease->space,
      .gpu_name = thread->executor.gpu_name,
      .arch = thread->executor.arch,
      .configs = configs,
  };

  array_foreach (range, lease->configs.ranges, lease->configs.n)
    for (uint64_t k = 0; k < range->count; k++)
      configs[request.n++] = range->first + k;
  configs[request.n++] = lease->baseline;
  cleanup_free char *folder = xasprintf("%s/objects", thread->agent->state);
  struct source_reader reader = {blob_read, granted};

  return build_objects_prepare(folder, thread->build, &request, &reader, &lease->objects, error);
}

/* A lease of a captured kernel without the reference, which its hash does not cover, so that nobody
 * signed it: configs are compared with the default instead. A new reference. */
static json_t *lease_of_signed_members(const json_t *json) {
  cleanup_json json_t *manifest = json_copy(json_object_get(json, "manifest"));
  json_t *lease = json_copy((json_t *)json);
  if (json_object_get(manifest, "cases")) {
    json_object_del(manifest, "reference");
    json_object_set(lease, "manifest", manifest);
  }
  return lease;
}

/* Whether keys that this agent trusts signed what the lease compiles and loads. The server is not
 * trusted: the hash was computed here from the manifest that came with the lease, and names every
 * source and the reference by its digest (but for lease_of_signed_members); the build's digest is
 * compared with its bytes before they are read. So this is checked before anything else is fetched.
 */
static bool lease_is_signed(const json_t *json, const struct trusted_keys *keys,
                            struct lease *lease, struct error *error) {
  struct signed_code kernel = {.kernel = lease->kernel->hash};
  struct signed_code build = {
      .kernel = lease->kernel->hash, .is_build = true, .build = lease->build};
  struct code_signature by;
  int64_t now_s = time(NULL);
  if (!code_signature_find(&kernel, json_object_get(json, "signatures"), keys, now_s, &by, error))
    return false;

  lease->kernel_key = by.key;
  if (lease->has_build) {
    if (!code_signature_find(&build, json_object_get(json, "build_signatures"), keys, now_s, &by,
                             error))
      return false;
    lease->build_key = by.key;
  }

  lease->is_signed = true;
  return true;
}

static bool lease_prepare(struct granted *granted, const json_t *json, struct lease *ret,
                          struct error *error) {
  struct device_thread *thread = granted->thread;
  const struct trusted_keys *trusted = &thread->agent->trusted;
  struct source_reader reader = {blob_read, granted};
  cleanup_free char *root = xasprintf("%s/kernels", thread->agent->state);
  int64_t began_ms = clock_monotonic_ms();
  cleanup_json json_t *read =
      trusted->n ? lease_of_signed_members(json) : json_incref((json_t *)json);
  bool ok = lease_read(read, thread->executor.is_gpu, ret, error);
  granted->is_unreadable = !ok;
  if (ok && trusted->n)
    ok = (lease_is_signed(json, trusted, ret, error) || error_become(error, ERROR_UNTRUSTED)) &&
         kernel_space_is_plain(ret->kernel, ret->space, error);

  /* Workers start while the sources are fetched and compiled, but not for a lease that cannot be
   * read or is not signed. With four workers to each device the first job was screened after 4.2 s
   * on a host of four H200s, and after 1.6 s with one of them: finals can run on any device. */
  size_t devices = thread->agent->n_threads;
  if (ok && thread->executor.is_gpu)
    executor_start_workers(&thread->executor, (EXECUTOR_WORKERS + devices - 1) / devices);
  ok = ok && sources_prepare(root, ret->kernel, &reader, &ret->sources, error) &&
       (!ret->has_build || lease_objects_get(granted, ret, error));
  thread->preparing_ms += clock_monotonic_ms() - began_ms;
  return ok;
}

enum lease_end measure_run(struct granted *granted, const json_t *json, struct error *error) {
  __attribute__((cleanup(lease_release))) struct lease lease = {0};
  struct executor *executor = &granted->thread->executor;
  struct lease_hooks hooks = {.context = granted,
                              .measured = granted_measured,
                              .stopped = granted_stopped,
                              .is_ours = granted_is_ours};

  if (!lease_prepare(granted, json, &lease, error))
    return LEASE_FAILED;

  log_info("lease: began lease=%s epoch=%lld job=%s kernel=%s stage=%s configs=%llu device=%s",
           lease.id, (long long)lease.epoch, lease.job, lease.kernel->name, stage_name(lease.stage),
           (unsigned long long)config_ranges_count(&lease.configs), executor->device);
  return lease_execute(executor, &lease, &hooks, error);
}
