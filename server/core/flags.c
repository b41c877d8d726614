/* Flagging winners that turned out slower than the default. Memory and threads: as the header says. */
#include "server/core/flags.h"

#include "common/log.h"
#include "common/space.h"
#include "server/counters.h"
#include "server/store/flags.h"
#include "server/store/jobs.h"
#include "server/store/measurements.h"

/* verdict_decide says how its winner compares with the baseline, simultaneously over all finalists. To hear that of the
 * default, all others are made slower by this factor: it shifts every distance to them and changes no spread. */
#define ASIDE 1e4

static bool default_failed(const struct final_measurement *measurements, size_t n, uint64_t default_config) {
  for (size_t i = 0; i < n; i++)
    if (measurements[i].sample.config == default_config && measurements[i].outcome != OUTCOME_CORRECT)
      return true;
  return false;
}

bool flag_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline, uint64_t default_config,
                uint64_t seed, struct flag *ret_flag) {
  cleanup_free struct verdict_sample *samples = xcalloc(n + 1, sizeof *samples);
  size_t n_times = 0, n_samples = 0;
  for (size_t i = 0; i < n; i++)
    n_times += measurements[i].sample.n;
  cleanup_free double *slower = xcalloc(n_times + 1, sizeof *slower);
  n_times = 0;
  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *sample = &measurements[i].sample;
    if (measurements[i].outcome != OUTCOME_CORRECT)
      continue;
    samples[n_samples] = *sample;
    if (sample->config != default_config)
      samples[n_samples].samples_us = slower + n_times;
    n_samples++;
    for (size_t k = 0; k < sample->n; k++)
      slower[n_times++] = ASIDE * sample->samples_us[k];
  }
  cleanup_verdict struct verdict verdict = {0};
  struct error error;
  if (default_failed(measurements, n, default_config) ||
      !verdict_decide(samples, n_samples, baseline, seed, &verdict, &error) || verdict.winner != default_config ||
      verdict.outcome != VERDICT_FASTER)
    return false;
  *ret_flag = (struct flag){1 / verdict.baseline_ratio, 1 / verdict.baseline_upper, 1 / verdict.baseline_lower};
  return true;
}

static bool baseline_values(struct worker *worker, int64_t job, uint64_t baseline, char **ret_text,
                            struct error *error) {
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  cleanup_space struct space *space = NULL;
  if (!job_space(worker->db, job, &text, error) || !json_parse(text, strlen(text), &json, error) ||
      !space_parse(json, &space, error))
    return false;
  cleanup_json json_t *values = space_config_to_json(space, baseline);
  *ret_text = json_canonical(values);
  return true;
}

bool flags_after_job(struct worker *worker, int64_t job, struct error *error) {
  struct flag_facts facts;
  struct final_summary summary;
  struct flag flag;
  if (!flag_facts_load(worker->db, job, &facts, error))
    return false;
  if (facts.n_lacking)
    return error_set(error, "%lld of its samples were quarantined while it was decided", (long long)facts.n_lacking);
  if (!facts.is_incumbent || !facts.has_default || facts.default_config == facts.baseline)
    return true;
  if (!measurements_final(worker->db, job, &summary, error))
    return false;
  bool is_slower = flag_judge(summary.measurements, summary.n, facts.baseline, facts.default_config, facts.seed, &flag);
  final_summary_release(&summary);
  cleanup_free char *values = NULL;
  size_t n_flagged;
  if (!is_slower)
    return true;
  if (!baseline_values(worker, job, facts.baseline, &values, error) ||
      !flags_store(worker->db, job, values, &flag, &n_flagged, error))
    return false;
  counter_add(COUNTER_winners_flagged, n_flagged);
  log_warning("job: flagged the winner of %zu job(s) by job=%lld: slower than the default by a factor of %.3f",
              n_flagged, (long long)job, flag.ratio);
  return true;
}
