/* Runs a config that killed its worker once more, alone, under ROCdebug-agent, and says what that printed. What it
 * printed, the code objects that were loaded and the instructions around the fault stay in a folder of the config.
 *
 * Memory: see the header. Threads: the executor's. */
#include "agent/lease/debug_agent.h"
#include "agent/lease/fault_code.h"
#include "agent/lease/lease_execution.h"
#include "common/base/file.h"

#define RERUNS_MAX 8 /* of an executor: a space may be full of configs that fault, and one tells most */
#define PRINTED_MAX ((size_t)16 << 20)

static void environment_free(char **environment) {
  for (size_t i = 0; environment[i]; i++)
    free(environment[i]);
  free(environment);
}

/* Until the worker has died, or has answered. False: it could not be asked. */
static bool config_run(struct execution *execution, struct work *work, struct worker_client *worker, int reference,
                       struct error *error) {
  struct worker_end end;
  cleanup_json json_t *open = open_request(execution), *opened = NULL;
  if (!worker_ask_with(worker, open, reference, error))
    return false;
  if (worker_next(worker, execution_stopped, execution, NULL, &opened, &end) != WORKER_ANSWER ||
      !json_is_true(json_object_get(opened, "opened")))
    return true;
  static const struct race_terms once = {.rounds_min = 1, .rounds_max = 1};
  cleanup_json json_t *measure =
      measure_request(&(struct race_request){.works = &work, .n = 1, .terms = &once, .is_serial = true});
  if (!worker_ask_with(worker, measure, -1, error))
    return false;
  for (bool goes_on = true; goes_on;) {
    cleanup_json json_t *answer = NULL;
    goes_on = worker_next(worker, execution_stopped, execution, NULL, &answer, &end) == WORKER_ANSWER &&
              !json_is_true(json_object_get(answer, "done"));
  }
  return true;
}

static char *printed_read(const char *folder) {
  cleanup_free char *path = xasprintf("%s/debug-agent.txt", folder);
  struct error error;
  char *text = NULL;
  size_t size;
  return file_read(path, PRINTED_MAX, &text, &size, &error) ? text : NULL;
}

char *fault_rerun(struct execution *execution, struct work *work) {
  struct executor *executor = execution->executor;
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *library = NULL;
  struct worker_client *worker;
  struct error error;
  if (!executor->faults || executor->n_reruns >= RERUNS_MAX || !debug_agent_find(&library))
    return NULL;
  executor->n_reruns++;
  digest_format(&execution->lease->kernel->hash, hash);
  cleanup_free char *folder =
      xasprintf("%s/%.12s-%llu", executor->faults, hash + strlen("sha256:"), (unsigned long long)work->config);
  if (!folder_remove(folder, &error) || !folder_make(folder, 0700, &error))
    return xasprintf("nothing can be kept: %s", error.message);
  char **environment = debug_agent_environment(library, folder);
  bool started = worker_start_under(executor->spawner, environment, executor->limits, &worker, &error);
  environment_free(environment);
  if (!started)
    return xstrdup(error.message);
  struct worker_client *reference = NULL;
  cleanup_fd int socket = -1;
  bool ran =
      reference_start(execution, &reference, &socket, &error) && config_run(execution, work, worker, socket, &error);
  worker_free(worker);
  if (reference)
    worker_abandon(reference);
  if (!ran)
    return xstrdup(error.message);
  cleanup_free char *printed = printed_read(folder);
  cleanup_free char *summary = printed ? debug_agent_summary(printed) : NULL;
  if (!summary)
    return xasprintf("the debug agent says nothing of a fault (%s)", folder);
  cleanup_free char *code = fault_code_keep(printed, folder);
  return xasprintf("%s; %s (%s)", summary, code, folder);
}
