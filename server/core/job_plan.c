/* What comes after a stage. Memory: the caller owns the plan. Threads: pure functions. */
#include "server/core/job_plan.h"

void job_plan_release(struct job_plan *plan) {
  if (plan->step == PLAN_DONE)
    verdict_release(&plan->verdict);
}

static int by_ordinal(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

void job_after_screen(const struct screen_facts *facts, struct job_plan *ret_plan) {
  struct job_plan plan = {.step = PLAN_FINAL, .n_processes = FINAL_PROCESSES};
  plan.n_finalists =
      finalists_choose(facts->ratios, facts->ranked, facts->n_ranked, NULL, 0, FINALISTS_MAX, plan.finalists);
  if (plan.n_finalists == 0) {
    plan.step = PLAN_FAIL;
    if (facts->measured == 0) {
      snprintf(plan.reason, sizeof plan.reason,
               "the budget was spent before any config was measured; submit the job with another run and a larger one");
    } else {
      char counts[160] = "";
      size_t used = 0;
      for (int i = 0; i < OUTCOME_COUNT; i++)
        if (facts->outcomes[i] > 0)
          used += (size_t)snprintf(counts + used, sizeof counts - used, "%s%s %lld", used ? ", " : "",
                                   outcome_name((enum outcome)i), (long long)facts->outcomes[i]);
      snprintf(plan.reason, sizeof plan.reason, "none of %lld configs was measured correctly (%s)%s%.300s",
               (long long)facts->measured, counts, facts->example ? "; one of them: " : "",
               facts->example ? facts->example : "");
    }
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
  for (size_t i = 0; i < plan->n_finalists; i++)
    if (plan->finalists[i] == config)
      return;
  if (plan->n_finalists < FINALISTS_MAX)
    plan->finalists[plan->n_finalists++] = config;
}

void job_after_final(const struct final_measurement *measurements, size_t n, uint64_t baseline, uint64_t seed,
                     struct job_plan *ret_plan) {
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
  qsort(plan.finalists, plan.n_finalists, sizeof *plan.finalists, by_ordinal);
  struct error undecided = {0};
  if (plan.n_finalists == 0) {
    plan.step = PLAN_FAIL;
    snprintf(plan.reason, sizeof plan.reason,
             "every finalist failed when it was measured again in a fresh process; its measurements say how");
  } else if (verdict_decide(samples, n_samples, baseline, seed, &plan.verdict, &undecided)) {
    /* Releases skip an ambiguous job, so another process is worth its time. */
    if (plan.verdict.outcome == VERDICT_AMBIGUOUS && plan.first_process < FINAL_PROCESSES_MAX)
      verdict_release(&plan.verdict);
    else
      plan.step = PLAN_DONE;
  } else if (plan.first_process >= FINAL_PROCESSES_MAX) {
    plan.step = PLAN_FAIL;
    snprintf(plan.reason, sizeof plan.reason, "after %d processes of finals: %.500s", FINAL_PROCESSES_MAX,
             undecided.message);
  }
  *ret_plan = plan;
}
