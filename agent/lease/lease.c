/* Reading a granted lease, and releasing it. */
#include "agent/lease/lease.h"

#include <math.h>

#include "common/lease/lease_grant.h"
#include "common/node/environment.h"

void lease_release(struct lease *lease) {
  free(lease->id);
  free(lease->job);
  cleanup_kernel_free(&lease->kernel);
  free(lease->sources);
  key_release(&lease->key);
  cleanup_space_free(&lease->space);
  config_ranges_release(&lease->configs);
  free(lease->warm_starts);
  DISCARD(lease->objects, build_objects_free);
  *lease = (struct lease){0};
}

bool language_fits(enum language language, bool is_gpu, struct error *error) {
  if (is_gpu == (language != LANGUAGE_C))
    return true;
  return error_set(error, "kernels in %s run on %s, and this device is %s", language_name(language),
                   is_gpu ? "the CPU" : "GPUs", is_gpu ? "a GPU" : "the CPU");
}

static bool kernel_read(const struct lease_grant *grant, bool is_gpu, struct lease *lease,
                        struct error *error) {
  if (!kernel_parse(grant->manifest, &lease->kernel, error))
    return error_pointer_prefix(error, "/manifest");

  const struct kernel *kernel = lease->kernel;
  bool needs_build = kernel->language == LANGUAGE_TRITON; /* other languages are compiled here */
  if (!language_fits(kernel->language, is_gpu, error))
    return error_pointer_prefix(error, "/manifest/language");
  if (needs_build && !lease->has_build)
    return error_at(error, "/build", "a kernel in %s needs a build, and the lease names none",
                    language_name(kernel->language));
  if (!needs_build && lease->has_build)
    return error_at(error, "/build", "a kernel in %s has no builds: agents compile it",
                    language_name(kernel->language));
  if (!digest_equal(&grant->kernel, &kernel->hash))
    return error_at(error, "/manifest", "the manifest is not the kernel's: its digest differs");
  if (!key_parse(grant->key, (const char *const *)kernel->key_names, kernel->n_key_names,
                 &lease->key, error))
    return error_pointer_prefix(error, "/key");
  if (!space_parse(grant->space, &lease->space, error))
    return error_pointer_prefix(error, "/space");
  return kernel_accepts(kernel, &lease->key, lease->space, error);
}

static bool configs_check(const struct lease *lease, struct error *error) {
  uint64_t raw_count = lease->space->raw_count;
  array_foreach (range, lease->configs.ranges, lease->configs.n) {
    if (range->first >= raw_count || range->count > raw_count - range->first)
      return error_at(error, "/configs", "the space has %llu points and no config %llu",
                      (unsigned long long)raw_count,
                      (unsigned long long)(range->first + range->count - 1));
  }

  if (lease->configs.n == 0)
    return error_at(error, "/configs", "a lease has at least one config");
  if (config_ranges_count(&lease->configs) > LEASE_CONFIGS_MAX)
    return error_at(error, "/configs", "a lease has at most %u configs", LEASE_CONFIGS_MAX);
  if (lease->baseline >= raw_count)
    return error_at(error, "/baseline", "the space has %llu points and no config %llu",
                    (unsigned long long)raw_count, (unsigned long long)lease->baseline);
  return true;
}

static bool warm_starts_read(const json_t *likely, struct lease *lease, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const json_t *item;
  size_t i;
  if (likely && !json_is_array(likely))
    return error_at(error, "/likely", "\"likely\" must be an array");
  if (json_array_size(likely) > LEASE_CONFIGS_MAX)
    return error_at(error, "/likely", "more than %u likely configs", LEASE_CONFIGS_MAX);

  lease->warm_starts = xcalloc(json_array_size(likely) + 1, sizeof *lease->warm_starts);
  json_array_foreach (likely, i, item) {
    if (!json_is_integer(item) || json_integer_value(item) < 0)
      return error_at(error, json_pointer_index(at, sizeof at, "/likely", i),
                      "a config's ordinal is an integer >= 0");
    lease->warm_starts[lease->n_warm_starts++] = (uint64_t)json_integer_value(item);
  }

  return true;
}

/* 0: no bound. A bound that is spent becomes 1 us: the lease ends in order, after one round. */
static int64_t bound_of(int64_t us) { return us == FIELD_NONE ? 0 : us > 0 ? us : 1; }

static bool lease_fill(struct lease_grant *grant, bool is_gpu, struct lease *lease,
                       struct error *error) {
  lease->id = TAKE(grant->task.lease);
  lease->job = xasprintf("%lld", (long long)grant->job);
  lease->epoch = grant->task.epoch;
  lease->stage = grant->stage;
  lease->round = grant->round;
  lease->process = grant->process;
  lease->seed = (uint64_t)grant->seed;
  lease->regime = grant->regime;
  lease->build = grant->build;
  lease->has_build = !digest_is_none(&grant->build);
  lease->baseline = (uint64_t)grant->baseline;
  lease->configs = grant->configs;
  grant->configs = (struct config_ranges){0};
  lease->device_us = bound_of(grant->device_us);
  lease->budget_us = bound_of(grant->budget_us);
  lease->best_ratio = isnan(grant->best_ratio) ? 0 : grant->best_ratio;
  if (!isfinite(lease->best_ratio) || lease->best_ratio < 0)
    return error_at(error, "/best_ratio", "a ratio of times is finite and above 0");

  return kernel_read(grant, is_gpu, lease, error) && configs_check(lease, error) &&
         warm_starts_read(grant->likely, lease, error);
}

bool lease_read(const json_t *json, bool is_gpu, struct lease *ret, struct error *error) {
  struct lease lease = {0};
  struct lease_grant grant;
  record_init(&lease_grant_record, &grant);
  grant.regime = REGIME_IMPLIED; /* of servers that do not state it */
  bool ok = record_read_answer(&lease_grant_record, json, "", &grant, error) &&
            lease_fill(&grant, is_gpu, &lease, error);
  record_release(&lease_grant_record, &grant);
  if (!ok) {
    lease_release(&lease);
    return error_prefix(error, "the lease cannot be executed: ");
  }

  *ret = lease;
  return true;
}
