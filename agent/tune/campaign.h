/* `tune`'s campaigns: the keys of one kernel tuned on one device, stage by stage over all keys, and
 * the reports of `tune`. common/campaign/ decides what follows a key's stage.
 *
 * The screens of all keys come first, one after the other in the worker that screens; each begins
 * with the winners of the nearest earlier keys. The halvings follow, then the finals process by
 * process: each process measures the finalists of every key, so that keys share the cost of a
 * process and each key's processes are separated in time. A key that fails does not end the others.
 *
 * Memory: a campaign borrows what it is given; keys own their results (agent/tune/key_tuning.h); a
 * samples_file owns its stream. Threads: the supervisor's working thread. */
#ifndef WAVETUNE_AGENT_TUNE_CAMPAIGN_H
#define WAVETUNE_AGENT_TUNE_CAMPAIGN_H

#include "agent/lease/lease_execute.h"
#include "agent/tune/key_tuning.h"
#include "agent/worker/devices.h"
#include "agent/worker/supervise.h"
#include "common/kernel/kernel_folder.h"
#include "common/program/terminal.h"

#define CAMPAIGN_EXHAUSTIVE_MAX 4096u /* configs that race in one process */

struct samples_file;

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
  /* Called for every key, in their order, once it has its verdict or its failure. */
  void (*ended)(const struct campaign *campaign, const struct key_tuning *key, void *context);
  void *context;
  bool is_broken; /* it ended early, for the reason in `trouble` */
  /* While it runs. */
  size_t n_ended, current; /* keys for which `ended` was called; the index of the measured key */
  struct progress progress;
  uint64_t done;
  struct error trouble; /* is_broken only */
};

/* The names that conditions may read beside parameters, for one of its keys. */
struct space_facts campaign_space_facts(const struct campaign *campaign,
                                        const struct key_tuning *key);

/* False when it could not continue: it was stopped, the device is not trusted any more, the disk is
 * full. This is the failure of the keys that were not decided. */
must_check bool campaign_run(struct campaign *campaign, struct error *error);

/* Of a key that has a verdict or a failure:
 *   {"kernel", "name", "key", "environment", "device", "regime", "version", "configs", "measured",
 *    "unmeasured", "finalists", "baseline", "outcomes", "failed", "examples",
 *    "seconds": {"screen", "halving", "final"}, "device_seconds", "opening_seconds" (of those), and
 *    "verdict" and "winner", or "error"} */
void tune_report_json(const struct campaign *campaign, const struct key_tuning *key);

/* Of a key that has a verdict. */
void tune_report_text(const struct campaign *campaign, const struct key_tuning *key);

/* {"campaign": {"keys", "failed", "seconds", "processes", "spent": {"start", "reference", "inputs",
 * "baseline", "load", "check", "warm_up", "timing"}}}, all but the counts in seconds; without
 * `is_json` the same as a sentence. */
void tune_report_campaign(const struct campaign *campaign, double seconds, bool is_json);

/* The file of --samples: one JSON object per line for every measurement, written at once. Replaces
 * the file. */
must_check bool samples_file_new(const char *path, struct samples_file **ret_file,
                                 struct error *error);
void samples_file_free(struct samples_file *file);
must_check bool samples_file_add(struct samples_file *file, const char *device,
                                 const struct lease *lease, const struct measurement *measurement,
                                 struct error *error);

#endif
