/* Whether lost leases poison a config, an object or a kernel. */
#include "server/poison/poison_rule.h"

#define X(id, name) name,
const char *const poison_scope_names[] = {POISON_SCOPES(X) NULL};
#undef X

bool poison_loss_counts(const struct poison_loss *loss) {
  return !loss->is_excused && loss->same > loss->others;
}

/* What the losses of a repetition have in common. */
enum common { COMMON_NOTHING, COMMON_JOB, COMMON_CONFIG };

static bool is_in(enum common common, const struct poison_loss *a, const struct poison_loss *b) {
  return common == COMMON_NOTHING || (common == COMMON_JOB && a->job == b->job) ||
         (common == COMMON_CONFIG && digest_equal(&a->config, &b->config));
}

/* Whether two losses are two events. */
static bool is_repetition(const struct poison_loss *a, const struct poison_loss *b,
                          int64_t moment_ms) {
  int64_t apart_ms = a->at_ms > b->at_ms ? a->at_ms - b->at_ms : b->at_ms - a->at_ms;
  return apart_ms >= moment_ms ||
         (string_equal(a->agent, b->agent) && string_equal(a->device, b->device));
}

/* How many jobs, or configs, were repeatedly lost: each is counted at the last of its losses. */
static int64_t repeated_count(enum common common, const struct poison_loss *losses, size_t n,
                              int64_t moment_ms) {
  int64_t repeated = 0;
  for (size_t i = 0; i < n; i++) {
    bool is_last = poison_loss_counts(&losses[i]), is_repeated = false;
    for (size_t k = i + 1; is_last && k < n; k++)
      is_last = !poison_loss_counts(&losses[k]) || !is_in(common, &losses[k], &losses[i]);
    for (size_t k = 0; is_last && !is_repeated && k <= i; k++)
      for (size_t j = 0; !is_repeated && j < k; j++)
        is_repeated = poison_loss_counts(&losses[k]) && poison_loss_counts(&losses[j]) &&
                      is_in(common, &losses[k], &losses[i]) &&
                      is_in(common, &losses[j], &losses[i]) &&
                      is_repetition(&losses[k], &losses[j], moment_ms);
    repeated += is_repeated;
  }
  return repeated;
}

bool poison_judge(enum poison_scope scope, const struct poison_loss *losses, size_t n,
                  int64_t moment_ms, struct poison_count *ret_count) {
  struct poison_count count = {0};
  for (size_t i = 0; i < n; i++) {
    if (!poison_loss_counts(&losses[i]))
      continue;
    bool is_new = true;
    for (size_t k = 0; is_new && k < i; k++)
      is_new = !poison_loss_counts(&losses[k]) || !string_equal(losses[k].agent, losses[i].agent);
    count.losses++;
    count.agents += is_new;
  }
  count.jobs = repeated_count(COMMON_JOB, losses, n, moment_ms);
  count.configs = repeated_count(COMMON_CONFIG, losses, n, moment_ms);

  *ret_count = count;
  if (scope == POISON_KERNEL)
    return count.configs >= POISON_KERNEL_CONFIGS;
  return count.jobs >= POISON_JOBS || (count.agents >= POISON_AGENTS &&
                                       repeated_count(COMMON_NOTHING, losses, n, moment_ms) > 0);
}
