/* Runs a config that killed its worker once more, alone, under ROCdebug-agent, and says what that
 * printed. What it printed, the code objects that were loaded and the instructions around the fault
 * stay in a folder of the config.
 *
 * Memory: see the header. Threads: the executor's. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "agent/lease/debug_agent.h"
#include "agent/lease/fault_code.h"
#include "agent/lease/lease_execution.h"
#include "common/base/file.h"
#include "common/base/log.h"

/* of an executor: a space may be full of configs that fault, and one tells most */
#define RERUNS_MAX 8
#define PRINTED_MAX ((size_t)16 << 20)
#define FILES_MAX 1024 /* that a rerun may leave */

static void environment_free(char **environment) {
  for (size_t i = 0; environment[i]; i++)
    free(environment[i]);
  free(environment);
}

/* Until the worker has died, or has answered. False: it could not be asked. */
static bool config_run(struct execution *execution, struct work *work, struct worker_client *worker,
                       int reference, struct error *error) {
  struct worker_end end;
  cleanup_json json_t *open = open_request(execution), *opened = NULL;
  if (!worker_ask_with(worker, open, reference, error))
    return false;
  if (worker_next(worker, execution_stopped, execution, NULL, &opened, &end) != WORKER_ANSWER ||
      !json_is_true(json_object_get(opened, "opened")))
    return true;
  static const struct race_terms once = {.rounds_min = 1, .rounds_max = 1};
  cleanup_json json_t *measure = measure_request(
      &(struct race_request){.works = &work, .n = 1, .terms = &once, .is_serial = true});
  if (!worker_ask_with(worker, measure, -1, error))
    return false;
  for (bool goes_on = true; goes_on;) {
    cleanup_json json_t *answer = NULL;
    goes_on =
        worker_next(worker, execution_stopped, execution, NULL, &answer, &end) == WORKER_ANSWER &&
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

/* Brings what another user wrote to our folder. Links and what is too large stay behind. */
static bool files_take(const char *from, const char *folder, struct error *error) {
  struct dirent *entry;
  if (lchown(from, geteuid(), getegid()) < 0) /* nobody else changes what is in it now */
    return error_set(error, "cannot take %s back: %s", from, strerror(errno));
  DIR *entries = opendir(from);
  for (int n = 0; entries && n < FILES_MAX && (entry = readdir(entries)); n++) {
    cleanup_free char *path = xasprintf("%s/%s", from, entry->d_name), *bytes = NULL;
    cleanup_free char *kept = xasprintf("%s/%s", folder, entry->d_name);
    struct error reason;
    struct stat status;
    size_t size;
    if (lstat(path, &status) < 0 || !S_ISREG(status.st_mode))
      continue;
    if (!file_read(path, PRINTED_MAX, &bytes, &size, &reason) ||
        !file_write_unsynced(kept, bytes, size, 0600, &reason))
      log_warning("lease: what a debug agent wrote is lost: %s", reason.message);
  }
  if (entries)
    closedir(entries);
  return folder_remove(from, error);
}

/* Runs the config; what the debug agent says of it is in `folder` then. Workers of another user
 * write elsewhere. */
static bool rerun_into(struct execution *execution, struct work *work, const char *library,
                       const char *folder, struct error *error) {
  struct executor *executor = execution->executor;
  const struct custody *custody = spawner_custody(executor->spawner);
  struct worker_client *worker, *reference = NULL;
  cleanup_free char *theirs = NULL;
  cleanup_fd int socket = -1;
  if (custody->has_user && !folder_make_temporary(&theirs, error))
    return false;
  if (theirs && !custody_give(custody, theirs, error)) {
    struct error left;
    if (!folder_remove(theirs, &left))
      log_warning("lease: %s", left.message);
    return false;
  }
  char **environment = debug_agent_environment(library, theirs ? theirs : folder);
  bool started =
      worker_start_under(executor->spawner, environment, executor->limits, &worker, error);
  environment_free(environment);

  bool ran = started && reference_start(execution, &reference, &socket, error) &&
             config_run(execution, work, worker, socket, error);
  if (started)
    worker_free(worker);
  if (reference)
    worker_abandon(reference);

  struct error ignored;
  bool is_taken = !theirs || files_take(theirs, folder, ran ? error : &ignored);
  return ran && is_taken;
}

char *fault_rerun(struct execution *execution, struct work *work) {
  struct executor *executor = execution->executor;
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *library = NULL;
  struct error error;
  if (!executor->faults || executor->n_reruns >= RERUNS_MAX || !debug_agent_find(&library))
    return NULL;
  executor->n_reruns++;
  digest_format(&execution->lease->kernel->hash, hash);
  cleanup_free char *folder = xasprintf("%s/%.12s-%llu", executor->faults, hash + strlen("sha256:"),
                                        (unsigned long long)work->config);
  if (!folder_remove(folder, &error) || !folder_make(folder, 0700, &error))
    return xasprintf("nothing can be kept: %s", error.message);
  if (!rerun_into(execution, work, library, folder, &error))
    return xstrdup(error.message);
  cleanup_free char *printed = printed_read(folder);
  cleanup_free char *summary = printed ? debug_agent_summary(printed) : NULL;
  if (!summary)
    return xasprintf("the debug agent says nothing of a fault (%s)", folder);
  cleanup_free char *code = fault_code_keep(printed, folder);
  return xasprintf("%s; %s (%s)", summary, code, folder);
}
