/* What comes after a stage. Memory: the caller owns the plan. Threads: pure functions. */
#include "server/job/job_plan.h"

void job_plan_release(struct job_plan *plan) {
  if (plan->step == PLAN_DONE)
    verdict_release(&plan->verdict);
}

static int by_ordinal(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static int64_t lease_of(const struct screen_facts *facts, uint64_t config) {
  for (size_t i = 0; i < facts->n_ranked; i++)
    if (facts->ranked[i] == config)
      return facts->leases[i];
  die("a choice that was not ranked");
}

/* What raced together in one lease need not race together again. */
static bool needs_halving(const struct screen_facts *facts, const struct job_plan *plan) {
  bool is_of_several = false;
  for (size_t i = 1; i < plan->n_configs && !is_of_several; i++)
    is_of_several = lease_of(facts, plan->configs[i]) != lease_of(facts, plan->configs[0]);
  return facts->may_halve && plan->n_configs > FINALISTS_MAX && is_of_several;
}

static void screen_fail(const struct screen_facts *facts, struct job_plan *plan) {
  plan->step = PLAN_FAIL;
  if (facts->measured == 0) {
    error_set(&plan->reason,
              "the budget was spent before any config was measured, and opening the kernel took %.3g device-seconds; "
              "submit the job with another run and a larger one",
              (double)facts->opening_us * 1e-6);
    return;
  }
  char counts[160] = "";
  size_t used = 0;
  for (int i = 0; i < OUTCOME_COUNT; i++)
    if (facts->outcomes[i] > 0)
      used += (size_t)snprintf(counts + used, sizeof counts - used, "%s%s %lld", used ? ", " : "",
                               outcome_name((enum outcome)i), (long long)facts->outcomes[i]);
  error_set(&plan->reason, "none of %lld configs was measured correctly (%s)%s%.300s", (long long)facts->measured,
            counts, facts->example ? "; one of them: " : "", facts->example ? facts->example : "");
}

static size_t choose(const struct screen_facts *facts, size_t n_always, size_t most, uint64_t *ret) {
  return finalists_choose(facts->ratios, facts->left_early, facts->ranked, facts->n_ranked, facts->always, n_always,
                          most, ret);
}

void job_after_screen(const struct screen_facts *facts, int64_t devices, struct job_plan *ret_plan) {
  struct job_plan plan = {.step = PLAN_FINAL, .n_processes = job_final_processes(devices)};
  size_t most_finalists = facts->most_finalists ? facts->most_finalists : FINALISTS_MAX;
  plan.n_configs = choose(facts, 0, HALVING_MAX, plan.configs);
  if (plan.n_configs == 0) {
    screen_fail(facts, &plan);
  } else if (needs_halving(facts, &plan)) {
    plan.step = PLAN_HALVING;
    plan.n_processes = 1;
    plan.n_configs = choose(facts, facts->n_always, HALVING_MAX, plan.configs);
  } else {
    plan.n_configs = choose(facts, facts->n_always, most_finalists, plan.configs);
  }
  *ret_plan = plan;
}

/* Whether the config failed in some process: then it is no finalist any more. */
static bool dropped_out(const struct final_measurement *measurements, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (measurements[i].sample.config == config && measurements[i].outcome != OUTCOME_CORRECT)
      return true;
  return false;
}

static void finalist_add(struct job_plan *plan, uint64_t config) {
  for (size_t i = 0; i < plan->n_configs; i++)
    if (plan->configs[i] == config)
      return;
  if (plan->n_configs < FINALISTS_MAX)
    plan->configs[plan->n_configs++] = config;
}

void job_after_final(const struct final_measurement *measurements, size_t n, uint64_t baseline, uint64_t seed,
                     bool may_add, struct job_plan *ret_plan) {
  struct job_plan plan = {.step = PLAN_FINAL, .n_processes = 1};
  cleanup_free struct verdict_sample *samples = xcalloc(n ? n : 1, sizeof *samples);
  size_t n_samples = 0;
  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *sample = &measurements[i].sample;
    if (sample->process >= plan.first_process)
      plan.first_process = sample->process + 1;
    if (dropped_out(measurements, n, sample->config))
      continue;
    finalist_add(&plan, sample->config);
    samples[n_samples++] = *sample;
  }
  qsort(plan.configs, plan.n_configs, sizeof *plan.configs, by_ordinal);
  struct error undecided = {0};
  if (plan.n_configs == 0) {
    plan.step = PLAN_FAIL;
    error_set(&plan.reason,
              "every finalist failed when it was measured again in a fresh process; its measurements say how");
  } else if (verdict_decide(samples, n_samples, baseline, seed, &plan.verdict, &undecided)) {
    /* Releases skip an ambiguous job, a winner that may be worse than another is none to build on, and what is kept out of
     * the equivalence set may be what the next job chooses: another process is worth its time. */
    if (may_add && !verdict_is_settled(&plan.verdict) && plan.first_process < FINAL_PROCESSES_MAX)
      verdict_release(&plan.verdict);
    else
      plan.step = PLAN_DONE;
  } else if (plan.first_process >= FINAL_PROCESSES_MAX) {
    plan.step = PLAN_FAIL;
    error_set(&plan.reason, "after %lld processes of finals: %.500s", (long long)plan.first_process, undecided.message);
  }
  *ret_plan = plan;
}
