/* Executes one lease on one device: gets the objects of its configs, from the compile pool ahead of
 * the measurement or from a build, and races the configs in batches. */
#include "agent/lease/lease_execution.h"
#include "agent/measure/launch.h"
#include "agent/worker/scheduling.h"
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/code/gpu_target.h"

#define BATCH_LEAST 16 /* enough to race while the others are compiled */
#define COMPILE_POLL_MS 50

/* Reads from the object what is known of a config before its first run: spills, occupancy,
 * utilization. */
static void facts_learn(const struct execution *execution, struct lease_config *config) {
  const struct executor *executor = execution->executor;
  const struct lease *lease = execution->lease;
  const struct launch_spec *launch = &config->object->launch;
  const struct gpu_target *target = gpu_target_find(executor->arch);
  struct error ignored;
  if (!config->object->is_ok)
    return;

  config->spills = code_resources_spills(&launch->resources);
  if (!target)
    return;

  struct device device = {.arch = (char *)executor->arch,
                          .compute_units = executor->compute_units,
                          .warp_size = target->warp_size};
  struct launch_plan plan = {.geometry = {.block = {(uint32_t)launch->threads, 1, 1},
                                          .shared_bytes = (uint32_t)launch->shared_bytes}};
  struct space_facts facts = {&lease->key, executor->gpu_name, executor->arch};
  struct scope scope = {0};
  if (lease->kernel->language != LANGUAGE_C && facts_scope_add(&facts, &scope, &ignored) &&
      space_scope_add(lease->space, config->ordinal, &scope, &ignored) &&
      launch_plan_make(&device, lease->kernel, launch, &scope, &plan, &ignored) == OUTCOME_CORRECT)
    config->utilization = launch_utilization(&device, &plan);

  const uint32_t *block = plan.geometry.block;
  int64_t registers = launch->resources.vgprs, lds_bytes = launch->resources.lds_bytes;
  struct workgroup workgroup = {
      .threads = (int64_t)block[0] * block[1] * block[2],
      .registers = registers > 0 ? registers : 0,
      .lds_bytes = plan.geometry.shared_bytes + (lds_bytes > 0 ? lds_bytes : 0),
  };
  if (workgroup.threads > 0 && workgroup_fits(target, &workgroup, &ignored))
    config->occupancy = (int64_t)occupancy_of(target, &workgroup).waves_per_eu;
}

int lease_configs_compare(const void *a, const void *b) {
  const struct lease_config *one = *(struct lease_config *const *)a,
                            *other = *(struct lease_config *const *)b;
  if (one->is_warm_start != other->is_warm_start)
    return one->is_warm_start ? -1 : 1;
  if (!one->is_warm_start) {
    if ((one->spills > 0) != (other->spills > 0))
      return one->spills > 0 ? 1 : -1;
    if (one->occupancy != other->occupancy)
      return one->occupancy > other->occupancy ? -1 : 1;
    if (one->utilization != other->utilization)
      return one->utilization > other->utilization ? -1 : 1;
  }

  return one->place < other->place ? -1 : 1;
}

static void places_set(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++)
    execution->order[i]->place = i;
}

/* Lists the lease's configs in their order of trial: the warm starts, then, from a build, those
 * whose code promises most; else in random order, from the lease's seed. */
static void configs_list(struct execution *execution) {
  const struct lease *lease = execution->lease;
  size_t n = 0, n_ordered = 0;
  execution->n = (size_t)config_ranges_count(&lease->configs);
  execution->configs = xcalloc(execution->n + 1, sizeof *execution->configs);
  execution->order = xcalloc(execution->n + 1, sizeof *execution->order);
  execution->baseline.ordinal = lease->baseline;

  array_foreach (range, lease->configs.ranges, lease->configs.n)
    for (uint64_t k = 0; k < range->count; k++)
      execution->configs[n++].ordinal = range->first + k;

  array_foreach (warm_start, lease->warm_starts, lease->n_warm_starts) {
    struct lease_config *config =
        bsearch(warm_start, execution->configs, n, sizeof *config, compare_ordinals);
    if (!config || config->is_warm_start)
      continue;
    config->is_warm_start = true;
    execution->order[n_ordered++] = config;
  }

  size_t n_warm_starts = n_ordered;
  array_foreach (config, execution->configs, n)
    if (!config->is_warm_start)
      execution->order[n_ordered++] = config;

  /* Neighbours in the space are alike: in the order of ordinals, whole batches would be good or
   * bad. */
  struct rng rng = rng_seeded(lease->seed);
  for (size_t i = n; i > n_warm_starts + 1; i--) {
    size_t other = n_warm_starts + (size_t)rng_below(&rng, i - n_warm_starts);
    struct lease_config *config = execution->order[i - 1];
    execution->order[i - 1] = execution->order[other];
    execution->order[other] = config;
  }

  places_set(execution);
  if (!lease->objects)
    return;

  array_foreach (config, execution->configs, n) {
    config->object = build_objects_find(lease->objects, config->ordinal);
    facts_learn(execution, config);
  }

  qsort(execution->order, n, sizeof *execution->order, lease_configs_compare);
  places_set(execution);
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

/* Waits for a compile, unless the lease is stopped meanwhile. The ticket is invalid afterwards. */
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
    *ret_object = (struct lease_object){
        .is_ok = result.ok,
        .path = TAKE(result.object),
        .digest = result.digest,
        .launch = launch_spec_default(),
        .outcome = result.error.kind == ERROR_DEADLINE ? OUTCOME_TIMEOUT : OUTCOME_COMPILE,
        .detail = result.ok ? NULL : xstrdup(result.error.message),
        .compile_ms = result.compile_ms,
    };
    ret_object->launch.resources = result.ok ? result.resources : code_resources_unknown;
  }

  compile_result_release(&result);
  return step;
}

/* The object of a config whose compile was submitted, unless it comes from a build. */
static enum step object_get(struct execution *execution, struct lease_config *config) {
  config->object = &config->compiled;
  if (!execution->lease->objects)
    return compile_wait(execution, config->ticket, &config->compiled);
  config->object = build_objects_find(execution->lease->objects, config->ordinal);
  return STEP_ON;
}

/* Waits for a config's object, after submitting the compiles of the next configs. */
static enum step object_take(struct execution *execution, struct lease_config *config) {
  const struct executor *executor = execution->executor;
  size_t until = config->place + 1 + (size_t)executor->compile_window;
  if (execution_stopped(execution))
    return STEP_STOPPED;
  if (config->object)
    return STEP_ON;
  if (until > execution->n || executor->compiles_first)
    until = execution->n;

  for (; execution->n_submitted < until; execution->n_submitted++) {
    struct lease_config *next = execution->order[execution->n_submitted];
    next->ticket = compile_submit(execution, next->ordinal, false);
  }

  enum step step = object_get(execution, config);
  if (step == STEP_ON)
    facts_learn(execution, config);
  return step;
}

static enum step objects_take(struct execution *execution) {
  enum step step = STEP_ON;
  for (size_t i = 0; i < execution->n && step == STEP_ON; i++)
    step = object_take(execution, execution->order[i]);
  return step;
}

/* The object is requested again when it was pruned from the pool's folder, and with each lease
 * after a failure: the pool does not repeat a compile that fails for good (pool.c). */
static void helper_take(struct execution *execution, enum helper_kernel helper) {
  struct executor *executor = execution->executor;
  struct helper_object *object = &executor->helpers[helper];
  struct error error;
  if (!object->path || access(object->path, R_OK) < 0) {
    free(TAKE(object->path));
    bool is_compiled = helper_kernel_object(executor->pool, helper, executor->arch, object, &error);
    if (!is_compiled && !executor->is_helper_missed[helper])
      log_warning("lease: %s", error.message);
    executor->is_helper_missed[helper] = !is_compiled;
  }

  execution->helpers[helper] = object->path ? object : NULL;
}

/* The objects of the baseline and the reference, and the helper kernels. */
static enum step baseline_take(struct execution *execution) {
  const struct lease *lease = execution->lease;
  bool has_reference = lease->kernel->reference.source.path != NULL;
  struct lease_config *baseline = &execution->baseline;
  if (!lease->objects)
    baseline->ticket = compile_submit(execution, baseline->ordinal, false);
  uint64_t reference = has_reference ? compile_submit(execution, baseline->ordinal, true) : 0;
  enum step step = object_get(execution, baseline);
  if (has_reference && step == STEP_ON)
    step = compile_wait(execution, reference, &execution->reference);
  else if (has_reference)
    compile_pool_drop(execution->executor->pool, reference);
  if (step != STEP_ON)
    return step;

  /* Without the flush a measurement finds its code in the instruction caches; its conditions say
   * so. */
  if (execution->executor->is_gpu) {
    helper_take(execution, HELPER_FINGERPRINT);
    if (regime_facts(lease->regime)->flushes)
      helper_take(execution, HELPER_INSTRUCTION_FLUSH);
  }

  if (!baseline->object->is_ok)
    return end_with_baseline(execution, baseline->object->outcome, baseline->object->detail);
  if (has_reference && !execution->reference.is_ok) {
    cleanup_free char *detail =
        xasprintf("the reference does not compile: %s", execution->reference.detail);
    return end_with_baseline(execution, execution->reference.outcome, detail);
  }

  return STEP_ON;
}

/* The configs of a screen that have not raced yet, in the order of trial. Those whose registers
 * spill to memory are appended again when they are reached: they seldom win, and the budget may end
 * before they race. */
struct queue {
  size_t n, next;
  struct lease_config **configs;
};

/* Fills the next batch with the configs that have objects; waits only for the first BATCH_LEAST. */
static enum step batch_fill(struct execution *execution, struct queue *queue,
                            struct race_batch *batch, size_t most) {
  const struct lease_hooks *hooks = execution->hooks;
  while (batch->n < most && queue->next < queue->n) {
    struct lease_config *config = queue->configs[queue->next];
    bool is_deferred = queue->next >= execution->n;
    bool is_compiled =
        config->object || (config->place < execution->n_submitted &&
                           compile_pool_is_done(execution->executor->pool, config->ticket, 0));
    if (batch->n >= BATCH_LEAST && !is_compiled)
      return STEP_ON;

    queue->next++;
    if (execution->lease->stage == STAGE_SCREEN && hooks->is_ours &&
        !hooks->is_ours(hooks->context, config->ordinal)) {
      config->is_settled = true;
      continue;
    }
    enum step step = is_deferred ? STEP_ON : object_take(execution, config);
    if (step == STEP_ON && !config->object->is_ok) {
      step = report_failure(execution, config, config->object->outcome, config->object->detail, 0);
    } else if (step == STEP_ON) {
      bool defers = config->spills > 0 && !config->is_warm_start && !is_deferred;
      if (defers)
        queue->configs[queue->n++] = config;
      else
        batch->configs[batch->n++] = config;
    }
    if (step != STEP_ON)
      return step;
  }

  return STEP_ON;
}

/* A screen or a halving. */
static enum step screen(struct execution *execution) {
  const struct executor *executor = execution->executor;
  bool is_halving = execution->lease->stage == STAGE_HALVING;
  size_t n = execution->n, most = executor->configs_per_worker < SCREEN_BATCH
                                      ? (size_t)executor->configs_per_worker
                                      : SCREEN_BATCH;
  struct lease_config *batched[SCREEN_BATCH];
  cleanup_free struct lease_config **queued = xcalloc(2 * n + 1, sizeof *queued);
  struct queue queue = {.n = n, .configs = queued};
  memcpy(queued, execution->order, n * sizeof *queued);

  enum step step = executor->compiles_first || is_halving ? objects_take(execution) : STEP_ON;
  while (step == STEP_ON && queue.next < queue.n) {
    struct race_batch batch = {.configs = batched,
                               .terms = is_halving ? &executor->halving : &executor->screen};
    step = batch_fill(execution, &queue, &batch, most);
    if (step == STEP_ON) {
      qsort(batched, batch.n, sizeof *batched, lease_configs_compare);
      step = batch_run(execution, &batch);
    }
  }

  return step;
}

static enum step final(struct execution *execution) {
  cleanup_free struct lease_config **configs = xcalloc(execution->n + 1, sizeof *configs);
  struct race_batch batch = {
      .configs = configs, .terms = &execution->executor->final, .is_final = true};
  enum step step = objects_take(execution);

  for (size_t i = 0; i < execution->n && step == STEP_ON; i++) {
    struct lease_config *config = execution->order[i];
    if (config->object->is_ok)
      configs[batch.n++] = config;
    else
      step = report_failure(execution, config, config->object->outcome, config->object->detail, 0);
  }
  return step == STEP_ON ? batch_run(execution, &batch) : step;
}

static void execution_release(struct execution *execution) {
  for (size_t i = 0; i < execution->n; i++) {
    struct lease_config *config = execution->order[i];
    if (i < execution->n_submitted && !config->object)
      compile_pool_drop(execution->executor->pool, config->ticket);
    lease_object_release(&config->compiled);
    json_decref(config->answer);
  }

  free(execution->configs);
  free(execution->order);
  lease_object_release(&execution->baseline.compiled);
  lease_object_release(&execution->reference);
}

enum lease_end lease_execute(struct executor *executor, const struct lease *lease,
                             const struct lease_hooks *hooks, struct error *error) {
  static const enum lease_end ends[] = {
      [STEP_ON] = LEASE_DONE,     [STEP_DONE] = LEASE_DONE,     [STEP_STOPPED] = LEASE_STOPPED,
      [STEP_SPENT] = LEASE_SPENT, [STEP_FAILED] = LEASE_FAILED,
  };
  ALWAYS(executor->screen.rounds_max > 0 && executor->halving.rounds_max > 0 &&
         executor->final.rounds_max > 0 && executor->configs_per_worker > 0);
  struct execution execution = {.executor = executor,
                                .lease = lease,
                                .hooks = hooks,
                                .error = error,
                                .best_ratio = lease->best_ratio,
                                .n_rescheduled = scheduling_check(NULL)};
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
  executor->opening_us = 0;
  configs_list(&execution);

  enum step step = baseline_take(&execution);
  if (step == STEP_ON)
    step = lease->stage == STAGE_FINAL ? final(&execution) : screen(&execution);
  if (step == STEP_STOPPED || step == STEP_FAILED)
    worker_drop(&execution); /* its request may not be finished */
  execution_release(&execution);

  return ends[step];
}
