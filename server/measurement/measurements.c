/* SQL that reads measurements for decisions. Memory and threads: as the header says. */
#include "server/measurement/measurements.h"

#include <math.h>

/* Who left its race early has few rounds, which may say anything: it must not stand in the way of who stayed. */
#define SQL_LEFT_EARLY "COALESCE(\"end\" IN ('far', 'behind'), false)"
#define SQL_CORRECT                                                                                                    \
  "SELECT config, ratio, lease_id, " SQL_LEFT_EARLY " AS left_early FROM measurements WHERE job_id = $1"               \
  " AND stage = $2::stage AND NOT late AND outcome = 'correct'"
#define SQL_LEAST " ORDER BY ratio, config LIMIT $3"
static const struct statement screen_ranked_statement = {
    "measurements_screen_ranked",
    "SELECT * FROM ((" SQL_CORRECT " AND NOT " SQL_LEFT_EARLY SQL_LEAST ") UNION (" SQL_CORRECT
    " AND " SQL_LEFT_EARLY SQL_LEAST ") UNION (" SQL_CORRECT " AND config IN ($4, $5))) ranked ORDER BY ratio, config"};
static const struct statement screen_outcomes_statement = {
    "measurements_screen_outcomes",
    "SELECT outcome, count(*) AS n, min(left(detail, 300)) FILTER (WHERE outcome <> 'correct') AS example"
    " FROM measurements WHERE job_id = $1 AND stage = $2::stage AND NOT late GROUP BY outcome ORDER BY n DESC"};

bool measurements_screen(struct db *db, int64_t job, enum stage stage, const uint64_t always[FINALISTS_ALWAYS],
                         struct screen_summary *ret, struct error *error) {
  cleanup_rows struct db_rows *ranked = NULL;
  cleanup_rows struct db_rows *outcomes = NULL;
  struct db_parameters parameters = {0}, by_outcome = {0};
  db_integer(&parameters, job);
  db_text(&parameters, stage_name(stage));
  db_integer(&parameters, HALVING_MAX);
  for (size_t i = 0; i < FINALISTS_ALWAYS; i++)
    db_integer(&parameters, (int64_t)always[i]);
  db_integer(&by_outcome, job);
  db_text(&by_outcome, stage_name(stage));
  if (!db_run(db, &screen_ranked_statement, &parameters, &ranked, error) ||
      !db_run(db, &screen_outcomes_statement, &by_outcome, &outcomes, error))
    return false;
  *ret = (struct screen_summary){0};
  for (int row = 0; row < db_count(ranked); row++) {
    ret->candidates[row] = (struct campaign_candidate){
        .config = (uint64_t)db_get_integer(ranked, row, "config"),
        .ratio = db_get_double(ranked, row, "ratio"),
        .left_early = db_get_bool(ranked, row, "left_early"),
        .lease = db_get_integer(ranked, row, "lease_id"),
    };
  }
  ret->n = (size_t)db_count(ranked);
  for (int row = 0; row < db_count(outcomes); row++) {
    enum outcome outcome;
    ALWAYS(outcome_parse(db_get(outcomes, row, "outcome"), &outcome));
    ret->outcomes[outcome] = db_get_integer(outcomes, row, "n");
    if (!ret->example && !db_is_null(outcomes, row, "example"))
      ret->example = xstrdup(db_get(outcomes, row, "example"));
  }
  return true;
}

void screen_summary_release(struct screen_summary *summary) { free(summary->example); }

static const struct statement search_statement = {
    "measurements_search", "SELECT config, CASE WHEN outcome = 'correct' THEN ratio END AS ratio FROM measurements"
                           " WHERE job_id = $1 AND stage = 'screen' AND NOT late ORDER BY config"};

bool measurements_search(struct db *db, int64_t job, struct search_told **ret_told, size_t *ret_n,
                         struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  if (!db_run(db, &search_statement, &parameters, &rows, error))
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_told = xcalloc(*ret_n + 1, sizeof **ret_told);
  for (int row = 0; row < db_count(rows); row++)
    (*ret_told)[row] =
        (struct search_told){(uint64_t)db_get_integer(rows, row, "config"),
                             db_is_null(rows, row, "ratio") ? INFINITY : db_get_double(rows, row, "ratio")};
  return true;
}

static const struct statement final_statement = {
    "measurements_final", "SELECT config, process, outcome, samples_us, baseline_us, vgprs, spills, lds_bytes,"
                          " dense_rank() OVER (ORDER BY agent, device) AS device FROM measurements"
                          " WHERE job_id = $1 AND stage = 'final' AND NOT late ORDER BY process, config"};

/* {1.5,2.5} to numbers; the caller's. What the database wrote is well-formed. */
static double *numbers_parse(const char *text, size_t *ret_n) {
  double *numbers = NULL;
  size_t n = 0, capacity = 0;
  while (*text == '{' || *text == ',') {
    text++;
    if (*text == '}')
      break;
    char *end;
    GROW(numbers, n, capacity);
    numbers[n++] = strtod(text, &end);
    ALWAYS(end != text);
    text = end;
  }
  *ret_n = n;
  return numbers;
}

bool measurements_final(struct db *db, int64_t job, struct final_summary *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_integer(&parameters, job);
  if (!db_run(db, &final_statement, &parameters, &rows, error))
    return false;
  struct final_summary summary = {(size_t)db_count(rows),
                                  xcalloc((size_t)db_count(rows) + 1, sizeof *summary.measurements)};
  for (int row = 0; row < db_count(rows); row++) {
    struct final_measurement *measurement = &summary.measurements[row];
    struct verdict_sample *sample = &measurement->sample;
    size_t n_baseline;
    ALWAYS(outcome_parse(db_get(rows, row, "outcome"), &measurement->outcome));
    sample->config = (uint64_t)db_get_integer(rows, row, "config");
    sample->process = db_get_integer(rows, row, "process");
    sample->samples_us = numbers_parse(db_get(rows, row, "samples_us"), &sample->n);
    sample->baseline_us = numbers_parse(db_get(rows, row, "baseline_us"), &n_baseline);
    ALWAYS(sample->n == n_baseline);
    sample->device = db_get_integer(rows, row, "device");
    sample->vgprs = db_get_integer(rows, row, "vgprs");
    sample->spills = db_get_integer(rows, row, "spills");
    sample->lds_bytes = db_get_integer(rows, row, "lds_bytes");
  }
  *ret = summary;
  return true;
}

void final_summary_release(struct final_summary *summary) {
  for (size_t i = 0; i < summary->n; i++) {
    free((double *)summary->measurements[i].sample.samples_us);
    free((double *)summary->measurements[i].sample.baseline_us);
  }
  free(summary->measurements);
  *summary = (struct final_summary){0};
}
