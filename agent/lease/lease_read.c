/* Reading a granted lease. The lease owns its parts; any thread. */
#include "agent/lease/lease_read.h"

#include <math.h>

#define ID_MAX 20 /* digits of a 64-bit integer */

bool lease_terms_read(const json_t *json, struct lease_terms *ret, struct error *error) {
  struct lease_terms terms;
  if (!json_get_string(json, "", "lease", JSON_REQUIRED, &terms.id, error) ||
      !json_get_integer(json, "", "epoch", JSON_REQUIRED, 0, INT64_MAX, &terms.epoch, error) ||
      !json_get_integer(json, "", "expires_in_ms", JSON_REQUIRED, 1, LEASE_MS_MAX, &terms.expires_in_ms, error) ||
      !json_get_integer(json, "", "renew_every_ms", JSON_REQUIRED, 1, LEASE_MS_MAX, &terms.renew_every_ms, error))
    return false;
  /* It becomes a part of paths. */
  size_t length = strspn(terms.id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  if (length == 0 || length > LEASE_ID_LENGTH_MAX || terms.id[length] || terms.id[0] == '.')
    return error_at(error, "/lease", "the lease's id is not 1 to %d of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"",
                    LEASE_ID_LENGTH_MAX);
  *ret = terms;
  return true;
}

bool language_fits(enum language language, bool is_gpu, struct error *error) {
  if (is_gpu == (language != LANGUAGE_C))
    return true;
  return error_set(error, "kernels in %s run on %s, and this device is %s", language_name(language),
                   is_gpu ? "the CPU" : "GPUs", is_gpu ? "a GPU" : "the CPU");
}

/* A triton kernel is run from a build; the other languages are compiled here. */
static bool build_fits(const struct lease *lease, struct error *error) {
  const char *language = language_name(lease->kernel->language);
  if (lease->kernel->language == LANGUAGE_TRITON)
    return lease->has_build ||
           error_at(error, "/build", "a kernel in %s needs a build, and the lease names none", language);
  return !lease->has_build || error_at(error, "/build", "a kernel in %s has no builds: agents compile it", language);
}

static bool kernel_read(const json_t *json, bool is_gpu, struct lease *lease, struct error *error) {
  json_t *manifest = NULL, *key = NULL, *space = NULL;
  struct digest hash;
  if (!json_get_digest(json, "", "kernel", JSON_REQUIRED, &hash, error) ||
      !json_get_object(json, "", "manifest", JSON_REQUIRED, &manifest, error) ||
      !json_get_object(json, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_object(json, "", "space", JSON_REQUIRED, &space, error))
    return false;
  if (!kernel_parse(manifest, &lease->kernel, error))
    return error_pointer_prefix(error, "/manifest");
  if (!language_fits(lease->kernel->language, is_gpu, error))
    return error_pointer_prefix(error, "/manifest/language");
  if (!build_fits(lease, error))
    return false;
  if (!digest_equal(&hash, &lease->kernel->hash))
    return error_at(error, "/manifest", "the manifest is not the kernel's: its digest differs");
  if (!key_parse(key, (const char *const *)lease->kernel->key_names, lease->kernel->n_key_names, &lease->key, error))
    return error_pointer_prefix(error, "/key");
  if (!space_parse(space, &lease->space, error))
    return error_pointer_prefix(error, "/space");
  return kernel_accepts(lease->kernel, &lease->key, lease->space, error);
}

static bool configs_read(const json_t *json, struct lease *lease, struct error *error) {
  json_t *configs = NULL;
  int64_t baseline;
  uint64_t raw_count = lease->space->raw_count;
  if (!json_get_array(json, "", "configs", JSON_REQUIRED, &configs, error) ||
      !json_get_integer(json, "", "baseline", JSON_REQUIRED, 0, INT64_MAX, &baseline, error))
    return false;
  if (!config_ranges_from_json(configs, &lease->configs, error))
    return error_pointer_prefix(error, "/configs");
  for (size_t i = 0; i < lease->configs.n; i++) {
    const struct config_range *range = &lease->configs.ranges[i];
    if (range->first >= raw_count || range->count > raw_count - range->first)
      return error_at(error, "/configs", "the space has %llu points and no config %llu", (unsigned long long)raw_count,
                      (unsigned long long)(range->first + range->count - 1));
  }
  if (lease->configs.n == 0)
    return error_at(error, "/configs", "a lease has at least one config");
  if (config_ranges_count(&lease->configs) > LEASE_CONFIGS_MAX)
    return error_at(error, "/configs", "a lease of more than %u configs", LEASE_CONFIGS_MAX);
  if ((uint64_t)baseline >= raw_count)
    return error_at(error, "/baseline", "the space has %llu points and no config %lld", (unsigned long long)raw_count,
                    (long long)baseline);
  lease->baseline = (uint64_t)baseline;
  return true;
}

/* Ordinals that the lease does not have are no error: a hint. */
static bool likely_read(const json_t *json, struct lease *lease, struct error *error) {
  char at[JSON_POINTER_SIZE];
  json_t *likely = NULL, *item;
  size_t i;
  if (!json_get_array(json, "", "likely", JSON_OPTIONAL, &likely, error))
    return false;
  if (json_array_size(likely) > LEASE_CONFIGS_MAX)
    return error_at(error, "/likely", "more than %u likely configs", LEASE_CONFIGS_MAX);
  lease->likely = xcalloc(json_array_size(likely) + 1, sizeof *lease->likely);
  json_array_foreach (likely, i, item) {
    if (!json_is_integer(item) || json_integer_value(item) < 0)
      return error_at(error, json_pointer_index(at, sizeof at, "/likely", i), "a config's ordinal is an integer >= 0");
    lease->likely[lease->n_likely++] = (uint64_t)json_integer_value(item);
  }
  return true;
}

/* What other leases of the job have learned and spent. */
static bool progress_read(const json_t *json, struct lease *lease, struct error *error) {
  int64_t left_us = INT64_MAX, budget_us = INT64_MAX;
  if (!likely_read(json, lease, error) ||
      !json_get_number(json, "", "best_ratio", JSON_OPTIONAL, &lease->best_ratio, error) ||
      !json_get_integer(json, "", "device_us", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &left_us, error) ||
      !json_get_integer(json, "", "budget_us", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &budget_us, error))
    return false;
  lease->device_us = left_us == INT64_MAX ? 0 : left_us > 0 ? left_us : 1; /* one round, to hand it back in order */
  lease->budget_us = budget_us == INT64_MAX ? 0 : budget_us > 0 ? budget_us : 1;
  return (isfinite(lease->best_ratio) && lease->best_ratio >= 0) ||
         error_at(error, "/best_ratio", "a ratio of times is finite and above 0");
}

static bool lease_fill(const json_t *json, bool is_gpu, struct lease *lease, struct error *error) {
  const char *id, *job, *stage, *regime = "cold";
  int64_t seed;
  if (!json_get_string(json, "", "lease", JSON_REQUIRED, &id, error) ||
      !json_get_string(json, "", "job", JSON_REQUIRED, &job, error) ||
      !json_get_string(json, "", "stage", JSON_REQUIRED, &stage, error) ||
      !json_get_string(json, "", "regime", JSON_OPTIONAL, &regime, error) ||
      !json_get_digest(json, "", "build", JSON_OPTIONAL, &lease->build, error) ||
      !json_get_integer(json, "", "epoch", JSON_REQUIRED, 0, INT64_MAX, &lease->epoch, error) ||
      !json_get_integer(json, "", "round", JSON_REQUIRED, 0, INT32_MAX, &lease->round, error) ||
      !json_get_integer(json, "", "process", JSON_REQUIRED, 0, INT32_MAX, &lease->process, error) ||
      !json_get_integer(json, "", "seed", JSON_REQUIRED, INT64_MIN, INT64_MAX, &seed, error))
    return false;
  lease->id = xstrdup(id);
  lease->job = xstrdup(job);
  lease->regime = xstrdup(regime);
  lease->seed = (uint64_t)seed;
  lease->has_build = json_is_string(json_object_get(json, "build"));
  if (!string_equal(regime, "cold") && !string_equal(regime, "warm"))
    return error_at(error, "/regime", "this agent knows no regime \"%.40s\"", regime);
  if (!stage_parse(stage, &lease->stage))
    return error_at(error, "/stage", "this agent knows no stage \"%.40s\"", stage);
  return kernel_read(json, is_gpu, lease, error) && configs_read(json, lease, error) &&
         progress_read(json, lease, error);
}

bool lease_read(const json_t *json, bool is_gpu, struct lease *ret, struct error *error) {
  struct lease lease = {0};
  if (!lease_fill(json, is_gpu, &lease, error)) {
    lease_release(&lease);
    return error_prefix(error, "the lease cannot be executed: ");
  }
  *ret = lease;
  return true;
}
