/* Flagging winners that turned out slower than the default. Memory and threads: jobs.h. */
#include "common/base/numbers.h"
#include "server/db/db_record.h"
#include "server/job/jobs.sql.h"
#include "server/job/jobs_private.h"

/* `ratio` and its interval: the default's time divided by the config's. */
static size_t flag_add(struct flag *flags, size_t n, uint64_t config, double ratio, double lower,
                       double upper) {
  if (upper < 1)
    flags[n++] = (struct flag){config, 1 / ratio, 1 / upper, 1 / lower};
  return n;
}

size_t flags_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline,
                   uint64_t default_config, uint64_t seed, struct flag ret_flags[FLAGS_MAX]) {
  cleanup_free struct verdict_sample *samples = xcalloc(n + 1, sizeof *samples);
  size_t n_samples = 0;
  for (size_t i = 0; i < n; i++)
    if (measurements[i].outcome == OUTCOME_CORRECT)
      samples[n_samples++] = measurements[i].sample;
    else if (measurements[i].sample.config == default_config)
      return 0;
  cleanup_verdict struct verdict verdict = {0};
  struct error error;
  if (!verdict_decide_for(samples, n_samples, baseline, default_config, seed, &verdict, &error))
    return 0;

  size_t n_flags = flag_add(ret_flags, 0, baseline, verdict.baseline_ratio, verdict.baseline_lower,
                            verdict.baseline_upper);

  /* Sorted by ordinal, which is their first member. */
  qsort(verdict.finalists, verdict.n_finalists, sizeof *verdict.finalists, compare_ordinals);
  for (size_t i = 0; i < verdict.n_finalists && n_flags < FLAGS_MAX; i++) {
    const struct verdict_finalist *finalist = &verdict.finalists[i];
    if (finalist->config != baseline && finalist->config != default_config)
      n_flags = flag_add(ret_flags, n_flags, finalist->config, finalist->winner_ratio,
                         finalist->winner_lower, finalist->winner_upper);
  }

  return n_flags;
}

/* A flag, with its config's values as canonical JSON: they identify the config in other spaces. */
struct flag_row {
  char *config_values;
  struct flag flag;
};
static const struct field flag_fields[] = {
    RECORD_FIELD(TEXT, struct flag_row, config_values),
    RECORD_FIELD_AS("ratio", NUMBER, struct flag_row, flag.ratio),
    RECORD_FIELD_AS("lower", NUMBER, struct flag_row, flag.lower),
    RECORD_FIELD_AS("upper", NUMBER, struct flag_row, flag.upper),
};
static const struct record flag_record = RECORD(NULL, struct flag_row, flag_fields);

bool winners_flag(struct worker *worker, const struct job_brief *job, const struct space *space,
                  int64_t *ret_flagged, struct error *error) {
  cleanup_rows struct db_rows *facts = NULL, *flagged = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct final_summary summary;
  struct flag flags[FLAGS_MAX];
  *ret_flagged = 0;
  bind_integer(&parameters, "job", job->id);
  if (!db_run(worker->db, &sql_flag_facts, &parameters, &facts, error))
    return false;
  if (db_get_integer(facts, 0, "n_lacking"))
    return error_set(error, "%lld of its samples were quarantined while it was decided",
                     (long long)db_get_integer(facts, 0, "n_lacking"));
  if (!job->has_default || !db_get_bool(facts, 0, "has_earlier"))
    return true;

  if (!measurements_final(worker->db, job->id, &summary, error))
    return false;

  size_t n = flags_judge(summary.measurements, summary.n, job->baseline, job->default_config,
                         job->seed, flags);
  final_summary_release(&summary);
  if (n == 0)
    return true;

  struct flag_row *rows = xcalloc(n, sizeof *rows);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *config = space_config_to_json(space, flags[i].config);
    rows[i] = (struct flag_row){json_canonical(config), flags[i]};
  }

  bind_records(&parameters, &flag_record, rows, n);
  db_records_free(&flag_record, rows, n);
  if (!db_run(worker->db, &sql_flags_store, &parameters, &flagged, error))
    return false;

  *ret_flagged = db_affected(flagged);
  return true;
}
