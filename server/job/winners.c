/* SQL that reads what earlier jobs found. Memory and threads: as the header says. */
#include "server/job/winners.h"

#include "server/db/values.h"

void past_winners_release(struct past_winners *winners) {
  for (size_t i = 0; i < winners->n; i++) {
    json_decref(winners->all[i].key);
    json_decref(winners->all[i].config_values);
  }
  free(winners->all);
  *winners = (struct past_winners){0};
}

static bool run_for_kernels(struct db *db, const struct statement *statement, const struct digest *kernels, size_t n,
                            int64_t limit, struct db_rows **ret_rows, struct error *error) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&array, &kernels[i]);
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&array));
  db_integer(&parameters, limit);
  bool ok = db_run(db, statement, &parameters, ret_rows, error);
  db_array_release(&array);
  return ok;
}

static const struct statement past_statement = {
    "winners_past",
    "SELECT r.n, j.key, j.key_digest, e.digest AS environment, w.config_values"
    " FROM unnest($1::bytea[]) WITH ORDINALITY AS r(kernel, n)"
    " CROSS JOIN LATERAL (SELECT id, key, key_digest, environment_id FROM jobs WHERE kernel = r.kernel"
    "  AND state = 'done' ORDER BY id DESC LIMIT $2) j"
    " JOIN winners w ON w.job_id = j.id JOIN environments e ON e.id = j.environment_id ORDER BY r.n, j.id DESC"};

bool winners_past(struct db *db, const struct digest *kernels, size_t n, struct past_winners *ret_winners,
                  struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!run_for_kernels(db, &past_statement, kernels, n, PAST_WINNERS_MAX, &rows, error))
    return false;
  for (size_t i = 0; i < n; i++)
    ret_winners[i] = (struct past_winners){0};
  for (int row = 0; row < db_count(rows); row++) {
    struct past_winners *winners = &ret_winners[db_get_integer(rows, row, "n") - 1];
    if (!winners->all)
      winners->all = xcalloc(PAST_WINNERS_MAX, sizeof *winners->all);
    winners->all[winners->n++] =
        (struct past_winner){db_get_digest(rows, row, "environment"), db_get_json(rows, row, "key"),
                             db_get_json(rows, row, "config_values")};
  }
  return true;
}

#define PACE_JOBS 16

static const struct statement pace_statement = {
    "kernels_pace",
    "SELECT r.n, (sum(l.device_us) / nullif(sum(l.n), 0))::bigint AS config_us"
    " FROM unnest($1::bytea[]) WITH ORDINALITY AS r(kernel, n)"
    " CROSS JOIN LATERAL (SELECT id FROM jobs WHERE kernel = r.kernel AND state = 'done' ORDER BY id DESC LIMIT $2) j"
    " CROSS JOIN LATERAL (SELECT device_us, (SELECT sum(o) FROM unnest(outcomes) o) AS n FROM leases"
    "  WHERE job_id = j.id AND stage = 'screen') l GROUP BY r.n"};

bool kernels_pace(struct db *db, const struct digest *kernels, size_t n, int64_t *ret_config_us, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!run_for_kernels(db, &pace_statement, kernels, n, PACE_JOBS, &rows, error))
    return false;
  for (size_t i = 0; i < n; i++)
    ret_config_us[i] = 0;
  for (int row = 0; row < db_count(rows); row++)
    ret_config_us[db_get_integer(rows, row, "n") - 1] = db_get_integer(rows, row, "config_us");
  return true;
}

static const struct statement incumbents_statement = {
    "jobs_incumbents",
    "SELECT r.n, c.config, c.is_imported"
    " FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[])"
    "  WITH ORDINALITY AS r(kernel, key_digest, environment, identity, tag, regime, n)"
    " CROSS JOIN LATERAL ("
    "  (SELECT w.config_values AS config, j.finished_at AS at, false AS is_imported FROM environments e"
    "    CROSS JOIN LATERAL (SELECT id, finished_at FROM jobs WHERE environment_id = e.id AND tag = r.tag"
    "     AND regime = r.regime AND kernel = r.kernel AND key_digest = r.key_digest AND state = 'done' ORDER BY id "
    "DESC LIMIT 1) j"
    "    JOIN winners w ON w.job_id = j.id WHERE e.digest = r.environment)"
    "  UNION ALL"
    "  (SELECT config, imported_at, true FROM imports WHERE kernel = r.kernel AND key_digest = r.key_digest"
    "    AND tag = r.tag AND r.identity::jsonb @> environment::jsonb"
    "    ORDER BY environment_digest = r.environment DESC, imported_at DESC, id DESC LIMIT 1)) c"
    " ORDER BY r.n, c.at DESC"};

static void incumbent_add(struct job_row *job, const struct db_rows *rows, int row) {
  ALWAYS(job->n_incumbents < JOB_INCUMBENTS_MAX);
  job->incumbents[job->n_incumbents++] =
      (struct job_incumbent){xstrdup(db_get(rows, row, "config")),
                             db_get_bool(rows, row, "is_imported") ? BASELINE_IMPORTED : BASELINE_INCUMBENT};
}

bool jobs_incumbents(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  enum { KERNEL, KEY, ENVIRONMENT, IDENTITY, TAG, REGIME, COLUMNS };
  struct db_array columns[COLUMNS];
  cleanup_free struct job_row **asked = xcalloc(n + 1, sizeof *asked);
  size_t n_asked = 0;
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    if (jobs[i]->known)
      continue;
    cleanup_json json_t *environment = environment_to_json(jobs[i]->environment);
    cleanup_free char *identity = json_canonical(environment);
    asked[n_asked++] = jobs[i];
    db_array_digest(&columns[KERNEL], &jobs[i]->kernel);
    db_array_digest(&columns[KEY], &jobs[i]->key_digest);
    db_array_digest(&columns[ENVIRONMENT], &jobs[i]->environment_digest);
    db_array_text(&columns[IDENTITY], identity);
    db_array_text(&columns[TAG], jobs[i]->tag);
    db_array_text(&columns[REGIME], regime_name(jobs[i]->regime));
  }
  struct db_parameters parameters = {0};
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = n_asked == 0 || db_run(db, &incumbents_statement, &parameters, &rows, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  for (int row = 0; ok && n_asked && row < db_count(rows); row++)
    incumbent_add(asked[db_get_integer(rows, row, "n") - 1], rows, row);
  return ok;
}

static const struct statement quickest_statement = {
    "jobs_quickest",
    "SELECT r.n, q.us FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::text[])"
    "  WITH ORDINALITY AS r(kernel, key_digest, space_digest, environment, tag, regime, n)"
    " JOIN environments e ON e.digest = r.environment"
    " CROSS JOIN LATERAL (SELECT id FROM jobs WHERE environment_id = e.id AND tag = r.tag AND regime = r.regime"
    "  AND kernel = r.kernel AND key_digest = r.key_digest AND space_digest = r.space_digest AND state = 'done' ORDER "
    "BY id DESC LIMIT 1) j"
    " CROSS JOIN LATERAL (SELECT min(device_us) AS us FROM measurements WHERE job_id = j.id AND stage = 'screen'"
    "  AND outcome = 'correct' AND NOT late) q"};

bool jobs_quickest(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  enum { KERNEL, KEY, SPACE, ENVIRONMENT, TAG, REGIME, COLUMNS };
  struct db_array columns[COLUMNS];
  cleanup_free struct job_row **asked = xcalloc(n + 1, sizeof *asked);
  size_t n_asked = 0;
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    if (jobs[i]->known || jobs[i]->budget_ms == 0)
      continue;
    asked[n_asked++] = jobs[i];
    db_array_digest(&columns[KERNEL], &jobs[i]->kernel);
    db_array_digest(&columns[KEY], &jobs[i]->key_digest);
    db_array_digest(&columns[SPACE], &jobs[i]->space_digest);
    db_array_digest(&columns[ENVIRONMENT], &jobs[i]->environment_digest);
    db_array_text(&columns[TAG], jobs[i]->tag);
    db_array_text(&columns[REGIME], regime_name(jobs[i]->regime));
  }
  struct db_parameters parameters = {0};
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = n_asked == 0 || db_run(db, &quickest_statement, &parameters, &rows, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  for (int row = 0; ok && n_asked && row < db_count(rows); row++)
    asked[db_get_integer(rows, row, "n") - 1]->quickest_us = db_get_integer(rows, row, "us");
  return ok;
}
