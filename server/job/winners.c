/* SQL that reads what earlier jobs found. Memory and threads: as the header says. */
#include "server/job/winners.h"

#include "server/db/db_record.h"
#include "server/job/winners.sql.h"

#define PACE_JOBS 16

static const struct field past_fields[] = {
    {"environment", FIELD_DIGEST, offsetof(struct past_winner, environment_digest)},
    {"key", FIELD_JSON, offsetof(struct past_winner, key)},
    {"config_values", FIELD_JSON, offsetof(struct past_winner, config_values)},
};
static const struct record past_record = RECORD(NULL, struct past_winner, past_fields);

void past_winners_release(struct past_winners *winners) {
  db_records_free(&past_record, winners->all, winners->n);
  *winners = (struct past_winners){0};
}

bool winners_past(struct db *db, const struct digest *kernels, size_t n,
                  struct past_winners *ret_winners, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "kernel", kernels, n);
  bind_integer(&parameters, "limit", PAST_WINNERS_MAX);
  if (!db_run(db, &sql_winners_past, &parameters, &rows, error))
    return false;

  for (size_t i = 0; i < n; i++)
    ret_winners[i] = (struct past_winners){0};
  for (int row = 0; row < db_count(rows); row++) {
    struct past_winners *winners = &ret_winners[db_get_integer(rows, row, "n") - 1];
    if (!winners->all)
      winners->all = xcalloc(PAST_WINNERS_MAX, sizeof *winners->all);
    db_read(rows, row, &past_record, &winners->all[winners->n++]);
  }
  return true;
}

bool kernels_pace(struct db *db, const struct digest *kernels, size_t n, int64_t *ret_config_us,
                  struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "kernel", kernels, n);
  bind_integer(&parameters, "limit", PACE_JOBS);
  if (!db_run(db, &sql_kernels_pace, &parameters, &rows, error))
    return false;

  memset(ret_config_us, 0, n * sizeof *ret_config_us);
  for (int row = 0; row < db_count(rows); row++)
    ret_config_us[db_get_integer(rows, row, "n") - 1] = db_get_integer(rows, row, "config_us");
  return true;
}

static const struct field incumbent_fields[] = {
    {"config", FIELD_JSON, offsetof(struct job_incumbent, config)},
    {"baseline_from", FIELD_ENUM, offsetof(struct job_incumbent, from),
     .names = baseline_from_names},
};
static const struct record incumbent_record = RECORD(NULL, struct job_incumbent, incumbent_fields);

bool jobs_incumbents(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  cleanup_free struct job_row **asked = xcalloc(n + 1, sizeof *asked);
  struct db_array identities;
  size_t n_asked = 0;
  db_array_init(&identities);
  for (size_t i = 0; i < n; i++) {
    if (jobs[i]->known.id)
      continue;
    cleanup_json json_t *environment = environment_to_json(jobs[i]->environment);
    cleanup_free char *identity = json_canonical(environment);
    db_array_text(&identities, identity);
    asked[n_asked++] = jobs[i];
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_jobs(&parameters, asked, n_asked);
  bind_array(&parameters, "identity", &identities);
  if (n_asked == 0)
    return true;
  if (!db_run(db, &sql_jobs_incumbents, &parameters, &rows, error))
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    struct job_row *job = asked[db_get_integer(rows, row, "n") - 1];
    ALWAYS(job->n_incumbents < JOB_INCUMBENTS_MAX);
    db_read(rows, row, &incumbent_record, &job->incumbents[job->n_incumbents++]);
  }
  return true;
}

bool jobs_quickest(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  cleanup_free struct job_row **asked = xcalloc(n + 1, sizeof *asked);
  size_t n_asked = 0;
  for (size_t i = 0; i < n; i++)
    if (!jobs[i]->known.id && jobs[i]->budget_ms > 0)
      asked[n_asked++] = jobs[i];
  if (n_asked == 0)
    return true;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_jobs(&parameters, asked, n_asked);
  if (!db_run(db, &sql_jobs_quickest, &parameters, &rows, error))
    return false;

  for (int row = 0; row < db_count(rows); row++)
    asked[db_get_integer(rows, row, "n") - 1]->quickest_us = db_get_integer(rows, row, "us");
  return true;
}
