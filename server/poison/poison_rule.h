/* Whether lost leases poison a config, a compiled object or a kernel for a hardware.
 *
 * A lease is lost when its agent lets it expire, is restarted, or hands it back because its device
 * does not pass its sentinel any more. The loss names the config that was being measured. It counts
 * against that config, unless
 *   - the config was then measured correctly in its place: another event took the agent;
 *   - in the same moment at least as many other agents lost leases with other configs: a network or
 *     a power supply failed. Two losses have the same moment when less than half the time of a
 *     lease is between them: agents that died together had renewed at different times;
 *   - an operator released the config, its object or its kernel after it; or the measurements of
 *     its job were removed.
 *
 * Losses that count are *repeated* when two of them do not have the same moment, or are of the same
 * device, which got the config again after the first.
 *
 *   - A config (the same values of the same kernel and build) is poisoned when it was repeatedly
 *     lost in each of POISON_JOBS jobs, or repeatedly and by POISON_AGENTS agents.
 *   - So is a compiled object, whatever its configs, keys and kernels.
 *   - A kernel, with its build, is poisoned when POISON_KERNEL_CONFIGS of its configs were
 *     repeatedly lost.
 *
 * Memory: facts are borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_POISON_POISON_RULE_H
#define WAVETUNE_SERVER_POISON_POISON_RULE_H

#include "common/base/digest.h"

#define POISON_JOBS 2
#define POISON_AGENTS 3
#define POISON_KERNEL_CONFIGS 3
#define POISON_LOSSES_MAX 256 /* the newest of a subject are considered */

#define POISON_SCOPES(X) X(CONFIG, "config") X(OBJECT, "object") X(KERNEL, "kernel")
#define X(id, name) POISON_##id,
enum poison_scope { POISON_SCOPES(X) POISON_SCOPE_COUNT };
#undef X
extern const char *const poison_scope_names[]; /* by value, ended by NULL */

/* A loss, and what is known about its moment. */
struct poison_loss {
  int64_t job;
  const char *agent, *device;
  struct digest config; /* the subject of its config: equal for equal configs */
  int64_t at_ms;
  int64_t same, others; /* agents that in its moment lost this config; and only other ones */
  bool is_excused;      /* measured correctly afterwards, or its measurements were removed */
};
must_check bool poison_loss_counts(const struct poison_loss *loss);

/* What counts. */
struct poison_count {
  int64_t losses, agents;
  int64_t jobs;    /* in which it was repeatedly lost */
  int64_t configs; /* that were repeatedly lost */
};

/* Whether the losses of one subject poison it. `losses`: of any order, at most POISON_LOSSES_MAX.
 */
must_check bool poison_judge(enum poison_scope scope, const struct poison_loss *losses, size_t n,
                             int64_t moment_ms, struct poison_count *ret_count);

#endif
