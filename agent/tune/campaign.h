/* `tune`'s campaigns: the keys of one kernel tuned on one device, stage by stage over all keys.
 * What follows a key's stage is decided by common/campaign/; here it is measured.
 *
 * Screens of all keys, one after the other in the worker that screens; each begins with what won
 * for the nearest keys before. Then the halvings, then the finals process by process: each process
 * measures the finalists of every key, so that keys share what a process costs and each key's
 * processes are apart in time. A key that fails does not end the others.
 *
 * Memory: a campaign borrows what it is given; keys own what they learn (agent/tune/key_tuning.h).
 * Threads: the supervisor's working one. */
#ifndef WAVETUNE_AGENT_TUNE_CAMPAIGN_H
#define WAVETUNE_AGENT_TUNE_CAMPAIGN_H

#include "agent/lease/lease_execute.h"
#include "agent/tune/key_tuning.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"
#include "common/kernel/kernel_folder.h"
#include "common/program/progress.h"

#define CAMPAIGN_EXHAUSTIVE_MAX 4096u /* configs that race in one process */

struct samples_file; /* agent/tune/tune_report.h */

#define CAMPAIGN_MAGIC 0x43414d50u
struct campaign {
  uint32_t magic;
  struct campaign_terms terms;
  const struct supervisor *supervisor;
  struct executor *executor;
  const struct device_seen *device;
  const struct kernel_folder *folder;
  char *sources;                /* folder with the kernel's files */
  struct build_code *build;     /* of a triton kernel; NULL else */
  struct samples_file *samples; /* NULL: none */
  size_t n;
  struct key_tuning *keys; /* those with a failure are left out */
  /* Told of every key, in their order, once it has its verdict or its failure. */
  void (*ended)(const struct campaign *campaign, const struct key_tuning *key, void *context);
  void *context;
  bool is_broken; /* it ended before its end */
  /* While it runs. */
  size_t n_told, current;
  struct progress progress;
  uint64_t done;
  struct error trouble; /* is_broken only */
};

/* What conditions may read beside parameters, for one of its keys. */
struct space_facts campaign_space_facts(const struct campaign *campaign,
                                        const struct key_tuning *key);

/* False when it could not go on: stopped, a device that is not trusted any more, a full disk. What
 * was not decided has that as its failure. */
must_check bool campaign_run(struct campaign *campaign, struct error *error);

/* The most processes that the finals of a key took. */
int64_t campaign_processes(const struct campaign *campaign);

#endif
