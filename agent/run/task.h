/* A granted task in an agent. Each kind of task has a runner; task.c has what all runners use, and
 * device_thread.c requests tasks and hands them back.
 *
 * Memory: a granted task lives until its runner has returned and its end was spooled. Threads: the
 * device's. */
#ifndef WAVETUNE_AGENT_RUN_TASK_H
#define WAVETUNE_AGENT_RUN_TASK_H

#include "agent/run/agent.h"
#include "common/task/task.h"

/* A record that is not spooled before a later look has found the device free (yield.h). */
struct pending_record {
  int64_t made_ns;
  json_t *record;
};

/* A granted task. */
struct granted {
  struct device_thread *thread;
  const struct task_grant *task;
  size_t n_measured; /* configs */
  size_t n_pending;
  struct pending_record *pending;
  bool has_failed;    /* a record could not be spooled */
  bool is_unreadable; /* the task, perhaps because the server is newer */
  struct backoff backoff;
};

/* Whether the runner is to stop: the lease is lost, the agent ends, the device was given back. */
bool granted_stopped(void *granted);
/* Downloads a part of a task, and tries again until its lease ends. `what` is for the error. */
must_check bool granted_download(struct granted *granted, const char *path, const char *what,
                                 char **ret_bytes, size_t *ret_size, struct error *error);
/* Spools the record {MEMBER: taken} of the task, once a look at the device has found it free; takes
 * over `taken`. `object`: the file of the code that it names; NULL: none. False: stop. */
must_check bool granted_report(struct granted *granted, const char *member, json_t *taken,
                               const char *object);

/* Waits until the last records are spooled, and drops them where the device was not free. Returns
 * how many it dropped. */
size_t granted_settle(struct granted *granted);
/* Spools how the lease ended, so that the server is informed after its last measurement. */
must_check bool granted_end(struct granted *granted, enum lease_end end, const struct error *error);

/* Runs the task of `json`, as it was granted, by its kind. LEASE_FAILED for a kind that this agent
 * does not know. */
enum lease_end task_run(struct granted *granted, const json_t *json, struct error *error);

/* The runner of TASK_MEASURE (measure_task.c). */
enum lease_end measure_run(struct granted *granted, const json_t *json, struct error *error);

#endif
