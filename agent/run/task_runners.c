/* The runners of all kinds of tasks that agents run. */
#include "agent/run/task.h"

typedef enum lease_end runner(struct granted *granted, const json_t *json, struct error *error);

/* NULL: not a task for agents. */
static runner *const runners[TASK_KIND_COUNT] = {[TASK_MEASURE] = measure_run};

enum lease_end task_run(struct granted *granted, const json_t *json, struct error *error) {
  enum task_kind kind = task_kind_parse(granted->task->kind);
  if (kind != TASK_KIND_COUNT && runners[kind])
    return runners[kind](granted, json, error);
  error_set(error, "this agent cannot run tasks of the kind \"%.40s\": update it",
            granted->task->kind);
  return LEASE_FAILED;
}
