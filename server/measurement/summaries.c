/* Reading measurements for decisions. Memory and threads: summaries.h. */
#include "server/measurement/summaries.h"

#include "common/base/numbers.h"
#include "server/db/db_record.h"
#include "server/measurement/summaries.sql.h"

static const struct field candidate_fields[] = {
    RECORD_FIELD(INTEGER, struct campaign_candidate, config),
    RECORD_FIELD_AS("lease_id", INTEGER, struct campaign_candidate, lease),
    RECORD_FIELD(NUMBER, struct campaign_candidate, ratio),
    RECORD_FIELD(BOOL, struct campaign_candidate, left_early),
};
static const struct record candidate_record =
    RECORD(NULL, struct campaign_candidate, candidate_fields);

bool measurements_screen(struct db *db, int64_t job, enum stage stage,
                         const uint64_t always[FINALISTS_ALWAYS], struct screen_summary *ret,
                         struct error *error) {
  _Static_assert(FINALISTS_ALWAYS == 2, "measurements_screen_ranked has two such parameters");
  cleanup_rows struct db_rows *outcomes =
      db_query(db, &sql_measurements_screen_outcomes, error, BIND("job", job),
               BIND("stage", stage_name(stage)));
  if (!outcomes)
    return false;

  cleanup_rows struct db_rows *ranked =
      db_query(db, &sql_measurements_screen_ranked, error, BIND("job", job),
               BIND("stage", stage_name(stage)), BIND("most", HALVING_MAX),
               BIND("always_0", always[0]), BIND("always_1", always[1]));
  if (!ranked)
    return false;

  *ret = (struct screen_summary){.n = (size_t)db_count(ranked)};
  for (int row = 0; row < db_count(ranked); row++)
    db_read(ranked, row, &candidate_record, &ret->candidates[row]);
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

static const struct field search_fields[] = {
    RECORD_FIELD(INTEGER, struct search_result, config),
    RECORD_FIELD(NUMBER, struct search_result, ratio),
};
static const struct record search_record = RECORD(NULL, struct search_result, search_fields);

bool measurements_search(struct db *db, int64_t job, struct search_result **ret_results,
                         size_t *ret_n, struct error *error) {
  *ret_results =
      db_list(db, &sql_measurements_search, &search_record, ret_n, error, BIND("job", job));
  return *ret_results != NULL;
}

struct final_row {
  struct final_measurement measurement; /* without its samples */
  struct numbers samples_us, baseline_us;
};
static const struct field final_fields[] = {
    RECORD_FIELD_AS("config", INTEGER, struct final_row, measurement.sample.config),
    RECORD_FIELD_AS("process", INTEGER, struct final_row, measurement.sample.process),
    RECORD_FIELD_AS("vgprs", INTEGER, struct final_row, measurement.sample.vgprs),
    RECORD_FIELD_AS("spills", INTEGER, struct final_row, measurement.sample.spills),
    RECORD_FIELD_AS("lds_bytes", INTEGER, struct final_row, measurement.sample.lds_bytes),
    RECORD_FIELD_AS("device", INTEGER, struct final_row, measurement.sample.device),
    RECORD_FIELD_AS("outcome", ENUM, struct final_row, measurement.outcome, .names = outcome_names),
    RECORD_FIELDS(NUMBERS, struct final_row, samples_us, baseline_us),
};
static const struct record final_record = RECORD(NULL, struct final_row, final_fields);

bool measurements_final(struct db *db, int64_t job, struct final_summary *ret,
                        struct error *error) {
  size_t n;
  cleanup_free struct final_row *all =
      db_list(db, &sql_measurements_final, &final_record, &n, error, BIND("job", job));
  if (!all)
    return false;

  *ret = (struct final_summary){n, xcalloc(n + 1, sizeof *ret->measurements)};
  for (size_t i = 0; i < n; i++) {
    struct verdict_sample *sample = &ret->measurements[i].sample;
    ALWAYS(all[i].samples_us.n == all[i].baseline_us.n);
    ret->measurements[i] = all[i].measurement;
    sample->n = all[i].samples_us.n;
    sample->samples_us = all[i].samples_us.all;
    sample->baseline_us = all[i].baseline_us.all;
  }

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

static struct agreement_facts facts_get(const struct db_rows *rows, const char *agreement,
                                        const char *interpreted, int row) {
  return (struct agreement_facts){.with_default = agreement_parse(db_get(rows, row, agreement)),
                                  .interpreted = agreement_parse(db_get(rows, row, interpreted))};
}

bool measurements_agreement(struct db *db, int64_t job,
                            const uint64_t baseline_and_default[FINALISTS_ALWAYS],
                            struct agreement_summary *ret, char **ret_example,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_measurements_agreement, error, BIND("job", job),
      BIND("baseline", baseline_and_default[0]), BIND("default_config", baseline_and_default[1]));
  if (!rows)
    return false;

  *ret_example = db_is_null(rows, 0, "example") ? NULL : xstrdup(db_get(rows, 0, "example"));
  *ret = (struct agreement_summary){
      .agree = db_get_integer(rows, 0, "agree"),
      .disagree = db_get_integer(rows, 0, "disagree"),
      .baseline = facts_get(rows, "baseline_agreement", "baseline_interpreted", 0),
      .of_default = facts_get(rows, "default_agreement", "default_interpreted", 0),
      .example = *ret_example,
  };
  return true;
}

bool measurements_agreement_of(struct db *db, int64_t job, const uint64_t *configs, size_t n,
                               struct agreement_facts *ret_facts, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_measurements_agreement_of, error,
                                               BIND("job", job), BIND_ALL("configs", configs, n));
  if (!rows)
    return false;

  for (size_t i = 0; i < n; i++) {
    ret_facts[i] = (struct agreement_facts){0};
    for (int row = 0; row < db_count(rows); row++)
      if ((uint64_t)db_get_integer(rows, row, "config") == configs[i])
        ret_facts[i] = facts_get(rows, "agreement", "interpreted", row);
  }
  return true;
}
