/* The rule by which a budget of device time is spent, in the server's jobs and in the keys of
 * `wavetune-agent tune`.
 *
 * Device time is what occupies the device for the job: the device_us of measurements (loading,
 * checking, warming up and timing configs, in every stage), and opening the kernel in each process
 * that measures it (its inputs, its reference, the baseline with its warm-up). Not counted are
 * compiling, waiting for leases, and what processes that serve many jobs take to start and to open
 * the device.
 *
 * Screen and halving may spend BUDGET_SCREEN_SHARE together, and less where the least final is
 * predicted to need more. The final has as many finalists as the rest pays for,
 * BUDGET_FINALISTS_MIN at least; each of its processes may spend an equal part of what is left, but
 * measures every finalist in the least number of rounds in any case. Another process is added only
 * where the rest pays for it. What opening the kernel took is taken from what the configs of a
 * lease may spend; where it leaves nothing, none of them is measured. So a budget is exceeded only
 * by the least final, by an opening, and by the config or the round that each lease ends with.
 *
 * Memory: none. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_VERDICT_BUDGET_H
#define WAVETUNE_COMMON_VERDICT_BUDGET_H

#include "common/base/base.h"

#define BUDGET_SCREEN_SHARE 0.6
/* the share that the screen has in any case: the first few configs may mislead the prediction */
#define BUDGET_SCREEN_LEAST 0.2
#define BUDGET_FINALISTS_MIN 2 /* the best and the baseline */
/* A finalist stays for all rounds, a config of the screen seldom does: a finalist is predicted to
 * take this many times as long. */
#define BUDGET_FINALIST_CONFIGS 3
/* No final takes less: VERDICT_PROCESSES_MIN processes in which BUDGET_FINALISTS_MIN configs warm
 * up for BUDGET_WARM_UP_US each. */
#define BUDGET_WARM_UP_US 300
#define BUDGET_LEAST_US (3 * BUDGET_FINALISTS_MIN * BUDGET_WARM_UP_US)

struct budget {
  int64_t total_us;   /* 0: there is none, and nothing is bounded */
  int64_t spent_us;   /* so far, in all stages */
  int64_t opening_us; /* the part of spent_us that opening the kernel took */
  int64_t openings;   /* leases in which it was opened */
  int64_t measured;   /* configs that the rest of spent_us was spent on, once for each process */
  int64_t final_us;   /* the part of spent_us that the final took */
  int64_t final_processes;
};
#define BUDGET_UNBOUNDED INT64_MAX

/* The predicted time of the smallest final in this number of processes, each of which opens the
 * kernel; 0 before anything was spent. */
int64_t budget_least_final_us(const struct budget *budget, int64_t processes);

/* What the configs of a lease may spend of its share when opening the kernel took opening_us in it.
 * `rest_us` is what all leases of its stage may still spend (1 at least): an opening serves many of
 * them, so each gives up a part in proportion. 1 at least; 0: the opening took all of the rest. */
int64_t budget_configs_us(int64_t share_us, int64_t rest_us, int64_t opening_us);

/* What screen and halving may still spend before a final in this number of processes. */
int64_t budget_screen_left_us(const struct budget *budget, int64_t processes);

/* How many finalists the rest pays for in this number of processes: BUDGET_FINALISTS_MIN to `most`
 * (most
 * >= that). */
size_t budget_finalists(const struct budget *budget, int64_t processes, size_t most);

/* What each of the `processes` that a final still needs may spend; 1 at least. */
int64_t budget_process_us(const struct budget *budget, int64_t processes);

/* Whether the rest pays for one more process like the final's so far. */
bool budget_pays_process(const struct budget *budget);

#endif
