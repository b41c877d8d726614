/* One lease on one device, from its configs to its measurements. See lease_execute.h for memory and
 * threads. */
#include "agent/lease/lease_execution.h"

#define BATCH_LEAST 16 /* enough to race while the others are compiled */

json_t *executor_spent_to_json(const struct executor_spent *spent) {
  const struct {
    const char *name;
    int64_t us;
  } parts[] = {{"start", spent->start_us},     {"reference", spent->reference_us},
               {"inputs", spent->inputs_us},   {"baseline", spent->baseline_us},
               {"load", spent->load_us},       {"check", spent->check_us},
               {"warm_up", spent->warm_up_us}, {"timing", spent->timing_us}};
  json_t *json = json_object();
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
    ALWAYS(json_object_set_new(json, parts[i].name, json_real((double)parts[i].us * 1e-6)) == 0);
  return json;
}

/* The configs of a screen that have not raced yet. */
struct queue {
  size_t next; /* of the order of trial */
  /* Those whose registers spill to memory come last: they seldom win, and a budget may end
   * before. */
  size_t n_later, next_later;
  struct work **later;
};

static bool is_ours(const struct execution *execution, struct work *work) {
  const struct lease_hooks *hooks = execution->hooks;
  bool was_given = execution->lease->stage == STAGE_SCREEN && hooks->is_ours &&
                   !hooks->is_ours(hooks->context, work->config);
  work->is_over = work->is_over || was_given;
  return !was_given;
}

/* Takes the next one's object, and adds it to the batch unless that says that it comes later, or
 * never. */
static enum step queue_next(struct execution *execution, struct queue *queue, struct heat *batch) {
  struct work *work = execution->order[queue->next++];
  if (!is_ours(execution, work))
    return STEP_ON;
  enum step step = execution_stopped(execution) ? STEP_STOPPED : object_take(execution, work);
  if (step != STEP_ON)
    return step;
  if (!work->object->is_ok)
    return hand_on_failure(execution, work, work->object->outcome, work->object->detail, 0);
  if (work->spills > 0 && !work->is_likely)
    queue->later[queue->n_later++] = work;
  else
    batch->works[batch->n++] = work;
  return STEP_ON;
}

/* The next batch: as many as there are objects for, but at least so many that it is worth it. */
static enum step batch_fill(struct execution *execution, struct queue *queue, struct heat *batch,
                            size_t most) {
  while (batch->n < most && queue->next < execution->n) {
    if (batch->n >= BATCH_LEAST && !object_is_there(execution, execution->order[queue->next]))
      return STEP_ON;
    enum step step = queue_next(execution, queue, batch);
    if (step != STEP_ON)
      return step;
  }
  while (batch->n < most && queue->next_later < queue->n_later) {
    struct work *work = queue->later[queue->next_later++];
    if (is_ours(execution, work))
      batch->works[batch->n++] = work;
  }
  return STEP_ON;
}

static enum step batches_run(struct execution *execution, struct queue *queue,
                             const struct race_terms *terms) {
  struct work *works[SCREEN_BATCH];
  int64_t per_worker = execution->executor->configs_per_worker;
  size_t most = per_worker < SCREEN_BATCH ? (size_t)per_worker : SCREEN_BATCH;
  while (queue->next < execution->n || queue->next_later < queue->n_later) {
    struct heat batch = {.works = works, .terms = terms};
    enum step step = batch_fill(execution, queue, &batch, most);
    if (step == STEP_ON) {
      qsort(batch.works, batch.n, sizeof *batch.works, works_compare);
      step = heat_run(execution, &batch);
    }
    if (step != STEP_ON)
      return step;
  }
  return STEP_DONE;
}

/* A screen or a halving. */
static enum step screen(struct execution *execution) {
  bool is_halving = execution->lease->stage == STAGE_HALVING;
  const struct executor *executor = execution->executor;
  cleanup_free struct work **later = xcalloc(execution->n + 1, sizeof *later);
  struct queue queue = {.later = later};
  enum step step = executor->compiles_first || is_halving ? object_take_all(execution) : STEP_ON;
  return step == STEP_ON
             ? batches_run(execution, &queue, is_halving ? &executor->halving : &executor->screen)
             : step;
}

static enum step final(struct execution *execution) {
  cleanup_free struct work **works = xcalloc(execution->n + 1, sizeof *works);
  struct heat heat = {.works = works, .terms = &execution->executor->final, .is_final = true};
  enum step step = object_take_all(execution);
  for (size_t i = 0; i < execution->n && step == STEP_ON; i++) {
    struct work *work = execution->order[i];
    if (work->object->is_ok)
      works[heat.n++] = work;
    else
      step = hand_on_failure(execution, work, work->object->outcome, work->object->detail, 0);
  }
  if (step == STEP_ON)
    step = heat_run(execution, &heat);
  return step == STEP_ON ? STEP_DONE : step;
}

static enum lease_end end_of(enum step step) {
  switch (step) {
  case STEP_STOPPED:
    return LEASE_STOPPED;
  case STEP_SPENT:
    return LEASE_SPENT;
  case STEP_FAILED:
    return LEASE_FAILED;
  default:
    return LEASE_DONE;
  }
}

enum lease_end lease_execute(struct executor *executor, const struct lease *lease,
                             const struct lease_hooks *hooks, struct error *error) {
  ALWAYS(executor->screen.rounds_max > 0 && executor->halving.rounds_max > 0 &&
         executor->final.rounds_max > 0 && executor->configs_per_worker > 0);
  struct execution execution = {.executor = executor,
                                .lease = lease,
                                .hooks = hooks,
                                .error = error,
                                .best_ratio = lease->best_ratio};
  atomic_store(&executor->current, WORKER_CONFIG_NONE);
  executor->opening_us = 0;
  execution_list(&execution);
  enum step step = object_take_baseline(&execution);
  if (step == STEP_ON)
    step = lease->stage == STAGE_FINAL ? final(&execution) : screen(&execution);
  if (step == STEP_STOPPED || step == STEP_FAILED)
    worker_drop(&execution); /* it may be in the middle of something */
  execution_release(&execution);
  return end_of(step);
}
