/* Flagging winners that turned out slower than the default. Memory and threads: as the header
 * says. */
#include "server/job/flags.h"

#include "common/base/log.h"
#include "common/space/space.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/flags.sql.h"
#include "server/job/job_store.h"
#include "server/measurement/measurements.h"

static bool default_failed(const struct final_measurement *measurements, size_t n,
                           uint64_t default_config) {
  for (size_t i = 0; i < n; i++)
    if (measurements[i].sample.config == default_config &&
        measurements[i].outcome != OUTCOME_CORRECT)
      return true;
  return false;
}

/* How the default compares with all others. False: nothing can be said of it. */
static bool default_compare(const struct final_measurement *measurements, size_t n,
                            uint64_t baseline, uint64_t default_config, uint64_t seed,
                            struct verdict *ret_verdict) {
  cleanup_free struct verdict_sample *samples = xcalloc(n + 1, sizeof *samples);
  size_t n_samples = 0;
  for (size_t i = 0; i < n; i++)
    if (measurements[i].outcome == OUTCOME_CORRECT)
      samples[n_samples++] = measurements[i].sample;
  struct error error;
  return !default_failed(measurements, n, default_config) &&
         verdict_decide_for(samples, n_samples, baseline, default_config, seed, ret_verdict,
                            &error);
}

/* `ratio` and its interval: the default's time over the config's. */
static size_t flag_add(struct flag *flags, size_t n, uint64_t config, double ratio, double lower,
                       double upper) {
  if (upper < 1)
    flags[n++] = (struct flag){config, 1 / ratio, 1 / upper, 1 / lower};
  return n;
}

static int by_config(const void *a, const void *b) {
  const struct verdict_finalist *left = a, *right = b;
  return (left->config > right->config) - (left->config < right->config);
}

size_t flags_judge(const struct final_measurement *measurements, size_t n, uint64_t baseline,
                   uint64_t default_config, uint64_t seed, struct flag ret_flags[FLAGS_MAX]) {
  cleanup_verdict struct verdict verdict = {0};
  if (!default_compare(measurements, n, baseline, default_config, seed, &verdict))
    return 0;
  size_t n_flags = flag_add(ret_flags, 0, baseline, verdict.baseline_ratio, verdict.baseline_lower,
                            verdict.baseline_upper);
  qsort(verdict.finalists, verdict.n_finalists, sizeof *verdict.finalists, by_config);
  for (size_t i = 0; i < verdict.n_finalists && n_flags < FLAGS_MAX; i++) {
    const struct verdict_finalist *finalist = &verdict.finalists[i];
    if (finalist->config != baseline && finalist->config != default_config)
      n_flags = flag_add(ret_flags, n_flags, finalist->config, finalist->winner_ratio,
                         finalist->winner_lower, finalist->winner_upper);
  }
  return n_flags;
}

struct flag_facts {
  int64_t baseline, seed;
  int64_t default_config; /* FIELD_NONE: the space has none */
  bool has_earlier;       /* some job that was done when it was submitted has a winner that can be
                             flagged */
  int64_t n_lacking;      /* samples of the final that were quarantined and not measured again */
};
static const struct field facts_fields[] = {
    {"baseline", FIELD_INTEGER, offsetof(struct flag_facts, baseline)},
    {"default_config", FIELD_INTEGER, offsetof(struct flag_facts, default_config)},
    {"seed", FIELD_INTEGER, offsetof(struct flag_facts, seed)},
    {"has_earlier", FIELD_BOOL, offsetof(struct flag_facts, has_earlier)},
    {"n_lacking", FIELD_INTEGER, offsetof(struct flag_facts, n_lacking)},
};
static const struct record facts_record = RECORD(NULL, struct flag_facts, facts_fields);

static bool flag_facts_load(struct db *db, int64_t job, struct flag_facts *ret,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  if (!db_run(db, &sql_flag_facts, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1);
  db_read(rows, 0, &facts_record, ret);
  return true;
}

/* A flag with its config's values as canonical JSON, by which the same config is found in another
 * space. */
struct flag_row {
  char *config_values;
  struct flag flag;
};
static const struct field flag_fields[] = {
    {"config_values", FIELD_TEXT, offsetof(struct flag_row, config_values)},
    {"ratio", FIELD_NUMBER, offsetof(struct flag_row, flag.ratio)},
    {"lower", FIELD_NUMBER, offsetof(struct flag_row, flag.lower)},
    {"upper", FIELD_NUMBER, offsetof(struct flag_row, flag.upper)},
};
static const struct record flag_record = RECORD(NULL, struct flag_row, flag_fields);

/* Flags the winners with these configs, with the event. Those that are flagged already stay as they
 * are. */
static bool flags_store(struct db *db, int64_t job, const struct flag *flags, size_t n,
                        size_t *ret_flagged, struct error *error) {
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  cleanup_space struct space *space = NULL;
  if (!job_space(db, job, &text, error) || !json_parse(text, strlen(text), &json, error) ||
      !space_parse(json, &space, error))
    return false;

  struct flag_row *rows = xcalloc(n, sizeof *rows);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *config = space_config_to_json(space, flags[i].config);
    rows[i] = (struct flag_row){json_canonical(config), flags[i]};
  }
  cleanup_rows struct db_rows *flagged = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_records(&parameters, &flag_record, rows, n);
  db_records_free(&flag_record, rows, n);
  if (!db_run(db, &sql_flags_store, &parameters, &flagged, error))
    return false;
  *ret_flagged = (size_t)db_affected(flagged);
  return true;
}

bool flags_after_job(struct worker *worker, int64_t job, struct error *error) {
  struct flag_facts facts;
  struct final_summary summary;
  struct flag flags[FLAGS_MAX];
  size_t n_flagged = 0;
  if (!flag_facts_load(worker->db, job, &facts, error))
    return false;
  if (facts.n_lacking)
    return error_set(error, "%lld of its samples were quarantined while it was decided",
                     (long long)facts.n_lacking);
  if (facts.default_config == FIELD_NONE || !facts.has_earlier)
    return true;
  if (!measurements_final(worker->db, job, &summary, error))
    return false;
  size_t n = flags_judge(summary.measurements, summary.n, (uint64_t)facts.baseline,
                         (uint64_t)facts.default_config, (uint64_t)facts.seed, flags);
  final_summary_release(&summary);
  if (n > 0 && !flags_store(worker->db, job, flags, n, &n_flagged, error))
    return false;
  counter_add(COUNTER_winners_flagged, n_flagged);
  if (n_flagged)
    log_warning(
        "job: flagged by job=%lld: the winners of %zu earlier ones are slower than the default",
        (long long)job, n_flagged);
  return true;
}
