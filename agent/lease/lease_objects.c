/* Where a lease's objects come from: the compile pool, ahead of the measurement, or the build it
 * names. Memory and threads: lease_execution.h. */
#include "agent/lease/lease_execution.h"
#include "agent/measure/launch.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/code/occupancy.h"

#define COMPILE_POLL_MS 50

/* A device as far as a plan reads it. */
static struct device device_facts(const struct executor *executor,
                                  const struct gpu_target *target) {
  return (struct device){.arch = (char *)executor->arch,
                         .compute_units = executor->compute_units,
                         .warp_size = target->warp_size};
}

static bool is_planned(const struct execution *execution, const struct work *work,
                       const struct device *device, struct launch_plan *ret_plan) {
  const struct lease *lease = execution->lease;
  struct scope scope = {0};
  struct error ignored;
  return lease->kernel->language != LANGUAGE_C && key_scope_add(&lease->key, &scope, &ignored) &&
         scope_add(&scope, "gpu_name", value_string(execution->executor->gpu_name), &ignored) &&
         scope_add(&scope, "arch", value_string(device->arch), &ignored) &&
         space_scope_add(lease->space, work->config, &scope, &ignored) &&
         launch_plan_make(device, lease->kernel, &work->object->launch, &scope, ret_plan,
                          &ignored) == OUTCOME_CORRECT;
}

/* What speaks for a config before it ever ran. */
static void facts_learn(const struct execution *execution, struct work *work) {
  const struct launch_spec *launch = &work->object->launch;
  const struct code_resources *resources = &launch->resources;
  const struct gpu_target *target = gpu_target_find(execution->executor->arch);
  struct error ignored;
  if (!work->object->is_ok)
    return;
  work->spills = code_resources_spills(resources);
  if (!target)
    return;
  struct device device = device_facts(execution->executor, target);
  struct launch_plan plan = {.geometry = {.block = {(uint32_t)launch->threads, 1, 1},
                                          .shared_bytes = (uint32_t)launch->shared_bytes}};
  if (is_planned(execution, work, &device, &plan))
    work->utilization = launch_utilization(&device, &plan);
  const uint32_t *block = plan.geometry.block;
  struct workgroup workgroup = {
      .threads = (int64_t)block[0] * block[1] * block[2],
      .registers = resources->vgprs > 0 ? resources->vgprs : 0,
      .lds_bytes =
          plan.geometry.shared_bytes + (resources->lds_bytes > 0 ? resources->lds_bytes : 0),
  };
  if (workgroup.threads > 0 && workgroup_fits(target, &workgroup, &ignored))
    work->occupancy = (int64_t)occupancy_of(target, &workgroup).waves_per_eu;
}

int works_compare(const void *a, const void *b) {
  const struct work *one = *(struct work *const *)a, *other = *(struct work *const *)b;
  bool spills = !one->is_likely && one->spills > 0,
       other_spills = !other->is_likely && other->spills > 0;
  if (one->is_likely != other->is_likely)
    return one->is_likely ? -1 : 1;
  if (spills != other_spills)
    return spills ? 1 : -1;
  if (!one->is_likely && one->occupancy != other->occupancy)
    return one->occupancy > other->occupancy ? -1 : 1;
  if (!one->is_likely && one->utilization != other->utilization)
    return one->utilization > other->utilization ? -1 : 1;
  return one->place < other->place ? -1 : 1;
}

static struct work *work_find(const struct execution *execution, uint64_t config) {
  size_t low = 0, high = execution->n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (execution->works[middle].config < config)
      low = middle + 1;
    else
      high = middle;
  }
  return low < execution->n && execution->works[low].config == config ? &execution->works[low]
                                                                      : NULL;
}

static void places_set(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++)
    execution->order[i]->place = i;
}

/* Neighbours in the space are alike: in their own order, whole batches would be good or bad. */
static void order_shuffle(struct execution *execution, size_t from) {
  struct rng rng = rng_seeded(execution->lease->seed);
  for (size_t i = execution->n; i > from + 1; i--) {
    size_t other = from + (size_t)rng_below(&rng, i - from);
    struct work *work = execution->order[i - 1];
    execution->order[i - 1] = execution->order[other];
    execution->order[other] = work;
  }
}

static void order_make(struct execution *execution) {
  const struct lease *lease = execution->lease;
  size_t n = 0;
  for (size_t i = 0; i < lease->n_likely; i++) {
    struct work *work = work_find(execution, lease->likely[i]);
    if (!work || work->is_likely)
      continue;
    work->is_likely = true;
    execution->order[n++] = work;
  }
  size_t n_likely = n;
  for (size_t i = 0; i < execution->n; i++) {
    if (!execution->works[i].is_likely)
      execution->order[n++] = &execution->works[i];
  }
  order_shuffle(execution, n_likely);
  places_set(execution);
}

/* A build's objects are all known before the first is tried. */
static void build_order(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    struct work *work = &execution->works[i];
    work->object = build_objects_find(execution->lease->objects, work->config);
    facts_learn(execution, work);
  }
  qsort(execution->order, execution->n, sizeof *execution->order, works_compare);
  places_set(execution);
}

void execution_list(struct execution *execution) {
  const struct config_ranges *ranges = &execution->lease->configs;
  execution->n = (size_t)config_ranges_count(ranges);
  execution->works = xcalloc(execution->n + 1, sizeof *execution->works);
  execution->order = xcalloc(execution->n + 1, sizeof *execution->order);
  execution->baseline.config = execution->lease->baseline;
  size_t at = 0;
  for (size_t i = 0; i < ranges->n; i++) {
    for (uint64_t j = 0; j < ranges->ranges[i].count; j++)
      execution->works[at++].config = ranges->ranges[i].first + j;
  }
  order_make(execution);
  if (execution->lease->objects)
    build_order(execution);
}

void execution_release(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    struct work *work = execution->order[i];
    if (i < execution->n_submitted && !work->object)
      compile_pool_drop(execution->executor->pool, work->ticket);
    lease_object_release(&work->compiled);
    json_decref(work->answer);
  }
  free(execution->works);
  free(execution->order);
  lease_object_release(&execution->baseline.compiled);
  lease_object_release(&execution->reference);
}

static uint64_t compile_submit(struct execution *execution, uint64_t config, bool is_reference) {
  const struct lease *lease = execution->lease;
  struct compile_request request = {
      .kernel = lease->kernel,
      .key = &lease->key,
      .space = lease->space,
      .config = config,
      .is_reference = is_reference,
      .sources = lease->sources,
      .gpu_name = execution->executor->gpu_name,
      .arch = execution->executor->arch,
  };
  return compile_pool_submit(execution->executor->pool, &request);
}

/* Takes what the result owns. */
static struct lease_object object_of_compile(struct compile_result *result) {
  struct lease_object object = {
      .is_ok = result->ok,
      .path = TAKE(result->object),
      .digest = result->digest,
      .launch = launch_spec_default(),
      .outcome = result->error.kind == ERROR_DEADLINE ? OUTCOME_TIMEOUT : OUTCOME_COMPILE,
      .detail = result->ok ? NULL : xstrdup(result->error.message),
      .compile_ms = result->compile_ms,
  };
  object.launch.resources = result->ok ? result->resources : code_resources_unknown;
  return object;
}

/* Waits for a compile, unless the lease is stopped meanwhile; the ticket is given back in any
 * case. */
static enum step compile_wait(struct execution *execution, uint64_t ticket,
                              struct lease_object *ret_object) {
  struct compile_pool *pool = execution->executor->pool;
  while (!compile_pool_is_done(pool, ticket, COMPILE_POLL_MS)) {
    if (execution_stopped(execution)) {
      compile_pool_drop(pool, ticket);
      return STEP_STOPPED;
    }
  }
  struct compile_result result = compile_pool_wait(pool, ticket);
  enum step step = STEP_ON;
  if (!result.ok && result.error.kind == ERROR_UNAVAILABLE) {
    *execution->error = result.error;
    error_prefix(execution->error, "cannot compile %s here: ", execution->lease->kernel->name);
    step = STEP_FAILED;
  } else {
    *ret_object = object_of_compile(&result);
  }
  compile_result_release(&result);
  return step;
}

static enum step work_take(struct execution *execution, struct work *work) {
  work->object = &work->compiled;
  if (!execution->lease->objects)
    return compile_wait(execution, work->ticket, &work->compiled);
  work->object = build_objects_find(execution->lease->objects, work->config);
  return STEP_ON;
}

static void works_submit(struct execution *execution, size_t until) {
  for (; execution->n_submitted < until; execution->n_submitted++) {
    struct work *next = execution->order[execution->n_submitted];
    next->ticket = compile_submit(execution, next->config, false);
  }
}

enum step object_take(struct execution *execution, struct work *work) {
  size_t ahead = work->place + 1 + (size_t)execution->executor->compile_window;
  if (work->object)
    return STEP_ON;
  works_submit(execution,
               ahead < execution->n && !execution->executor->compiles_first ? ahead : execution->n);
  enum step step = work_take(execution, work);
  if (step == STEP_ON)
    facts_learn(execution, work);
  return step;
}

bool object_is_there(struct execution *execution, const struct work *work) {
  return work->object || (work->place < execution->n_submitted &&
                          compile_pool_is_done(execution->executor->pool, work->ticket, 0));
}

enum step object_take_all(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    enum step step =
        execution_stopped(execution) ? STEP_STOPPED : object_take(execution, execution->order[i]);
    if (step != STEP_ON)
      return step;
  }
  return STEP_ON;
}

/* The object is asked for again when the pool's folder was pruned, and with each lease where it
 * could not be had: what fails for good costs no second compile (pool.c). */
static void helper_take(struct execution *execution, enum helper_kernel helper) {
  struct executor *executor = execution->executor;
  struct helper_object *object = &executor->helpers[helper];
  struct error error;
  if (!object->path || access(object->path, R_OK) < 0) {
    free(TAKE(object->path));
    bool is_had = helper_kernel_object(executor->pool, helper, executor->arch, object, &error);
    if (!is_had && !executor->is_helper_missed[helper])
      log_warning("lease: %s", error.message);
    executor->is_helper_missed[helper] = !is_had;
  }
  execution->helpers[helper] = object->path ? object : NULL;
}

/* Without the flush a cold measurement finds its code in the instruction caches; its conditions say
 * so. */
static void helpers_take(struct execution *execution) {
  if (!execution->executor->is_gpu)
    return;
  helper_take(execution, HELPER_FINGERPRINT);
  if (string_equal(execution->lease->regime, "cold"))
    helper_take(execution, HELPER_INSTRUCTION_FLUSH);
}

enum step object_take_baseline(struct execution *execution) {
  bool has_reference = execution->lease->kernel->reference.source.path != NULL;
  struct work *baseline = &execution->baseline;
  if (!execution->lease->objects)
    baseline->ticket = compile_submit(execution, baseline->config, false);
  uint64_t reference = has_reference ? compile_submit(execution, 0, true) : 0;
  enum step step = work_take(execution, baseline);
  if (has_reference && step == STEP_ON)
    step = compile_wait(execution, reference, &execution->reference);
  else if (has_reference)
    compile_pool_drop(execution->executor->pool, reference);
  if (step != STEP_ON)
    return step;
  helpers_take(execution);
  if (!baseline->object->is_ok)
    return end_with_baseline(execution, baseline->object->outcome, baseline->object->detail);
  if (has_reference && !execution->reference.is_ok) {
    cleanup_free char *detail =
        xasprintf("the reference does not compile: %s", execution->reference.detail);
    return end_with_baseline(execution, execution->reference.outcome, detail);
  }
  return STEP_ON;
}
