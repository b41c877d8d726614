/* SQL that takes posted measurements: one statement for a batch of posts, in which each post is taken whole or not at
 * all. Memory and threads: as leases.h says. */
#include "server/db/values.h"
#include "server/lease/lease_store.h"

/* The statement's snapshot is older than the locks it waits for: `posts`, which every post raises, tells whether
 * somebody else's measurements came in between. Then nothing is done and the caller runs it again.
 * A known measurement is looked up as the first from its key to its key: so the plan probes the unique index even when it
 * was made, and kept, while the table was small enough to be read whole.
 * A job's row is written only when its best ratio falls, which it does ever more rarely, and not in a statement that counts
 * its late events: one statement writes a row once. Rows of jobs are locked in the order of their ids, as those of leases
 * are, so that statements do not wait for each other in a circle. */
static const struct statement post_statement = {
    "leases_post",
    "WITH request AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bool[], $30::bigint[])"
    "  WITH ORDINALITY AS r(lease, epoch, done, opening_us, n)),"
    " posted AS MATERIALIZED (SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::int[],"
    "  $9::int[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::float8[],"
    "  $17::float8[], $18::bool[], $19::bytea[], $20::bigint[], $21::bigint[], $22::int[], $23::int[], $24::int[],"
    "  $25::int[], $26::int[], $27::bytea[], $28::text[], $29::text[]) AS p(n, k, seq, config, process, round, "
    "outcome, detail,"
    "  timer, regime, samples_us, baseline_us, ratio, clock_mhz, baseline_failed, body, compile_ms, device_us, vgprs, "
    "agprs,"
    "  spills, lds_bytes, occupancy, object, conditions, \"end\")),"
    " locked AS MATERIALIZED (SELECT *, (SELECT baseline FROM jobs WHERE jobs.id = leases.job_id) AS baseline"
    "  FROM leases WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE),"
    " seen AS MATERIALIZED (SELECT id, posts FROM leases WHERE id = ANY ($1::bigint[])),"
    " known AS MATERIALIZED (SELECT p.n, p.k, COALESCE(m.body_digest = p.body, false) AS same FROM posted p"
    "  JOIN request r USING (n) CROSS JOIN LATERAL (SELECT body_digest FROM measurements"
    "   WHERE (lease_id, epoch, seq) >= (r.lease, r.epoch, p.seq) AND (lease_id, epoch, seq) <= (r.lease, r.epoch, "
    "p.seq)"
    "   ORDER BY lease_id, epoch, seq LIMIT 1) m),"
    " conflict AS (SELECT n, min(k) AS k FROM known WHERE NOT same GROUP BY n),"
    " outside AS (SELECT p.n, min(p.k) AS k FROM posted p JOIN request r USING (n) JOIN locked l ON l.id = r.lease"
    "  WHERE CASE WHEN p.baseline_failed THEN p.config <> l.baseline"
    "   ELSE NOT p.config <@ l.configs AND (p.baseline_failed IS NOT NULL OR p.config <> l.baseline) END"
    "   OR p.process <> l.process OR p.round <> l.round GROUP BY p.n),"
    " judged AS MATERIALIZED (SELECT r.n, r.lease, r.epoch, r.done, l.job_id, l.stage, l.round, l.process, l.state,"
    "   " SQL_OPENING_MORE
    " AS opening_us, l.epoch AS current_epoch, l.remaining, COALESCE(conflict.k, outside.k, -1) AS culprit,"
    "   CASE WHEN r.epoch = l.epoch THEN l.agent END AS agent, CASE WHEN r.epoch = l.epoch THEN l.device END AS device,"
    "   CASE WHEN l.id IS NULL THEN 'unknown' WHEN r.epoch > l.epoch THEN 'never'"
    "    WHEN l.posts IS DISTINCT FROM s.posts THEN 'again' WHEN conflict.k IS NOT NULL THEN 'conflict'"
    "    WHEN outside.k IS NOT NULL THEN 'outside' WHEN l.state = 'held' AND l.epoch = r.epoch THEN 'taken'"
    "    ELSE 'late' END AS verdict"
    "  FROM request r LEFT JOIN locked l ON l.id = r.lease LEFT JOIN seen s ON s.id = r.lease"
    "  LEFT JOIN conflict ON conflict.n = r.n LEFT JOIN outside ON outside.n = r.n),"
    " fresh AS MATERIALIZED (SELECT p.*, j.lease, j.epoch, j.job_id, j.stage, j.round AS lease_round,"
    "   j.process AS lease_process, j.agent, j.device, j.verdict <> 'taken' OR NOT p.config <@ j.remaining"
    "   OR row_number() OVER (PARTITION BY p.n, p.config ORDER BY p.k) > 1 AS late"
    "  FROM posted p JOIN judged j USING (n) WHERE j.verdict IN ('taken', 'late')"
    "  AND NOT EXISTS (SELECT FROM known WHERE known.n = p.n AND known.k = p.k)),"
    " inserted AS (INSERT INTO measurements (job_id, lease_id, epoch, seq, body_digest, config, stage, round, process,"
    "   agent, device, outcome, detail, timer, regime, samples_us, baseline_us, ratio, clock_mhz, compile_ms, "
    "device_us,"
    "   vgprs, agprs, spills, lds_bytes, occupancy, conditions, \"end\", late)"
    "  SELECT job_id, lease, epoch, seq, body, config, stage, lease_round, lease_process, agent, device,"
    "   outcome::outcome, detail, timer, COALESCE(regime, 'cold'), samples_us::real[], baseline_us::real[], ratio,"
    "   clock_mhz, compile_ms, device_us, vgprs, agprs, spills, lds_bytes, occupancy, conditions::json, \"end\", late"
    "   FROM fresh ORDER BY n, k"
    "  RETURNING job_id, id, lease_id, epoch, seq, config, outcome, ratio, \"end\", late, device_us),"
    " timed AS (INSERT INTO measurement_objects (job_id, measurement, object) SELECT i.job_id, i.id, f.object"
    "  FROM fresh f JOIN inserted i ON (i.lease_id, i.epoch, i.seq) = (f.lease, f.epoch, f.seq)"
    "  WHERE f.object IS NOT NULL),"
    " tally AS MATERIALIZED (SELECT lease_id, count(*) AS n, count(*) FILTER (WHERE late) AS late,"
    "   range_agg(int8range(config, config + 1)) FILTER (WHERE NOT late) AS covered,"
    "   COALESCE(sum(device_us) FILTER (WHERE NOT late), 0)::bigint AS device_us,"
    "   min(ratio) FILTER (WHERE NOT late AND outcome = 'correct' AND COALESCE(\"end\", '') NOT IN ('far', 'behind'))"
    "    AS best_ratio,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'correct')::int AS correct,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'compile')::int AS compile,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'runtime')::int AS runtime,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'correctness')::int AS correctness,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'timeout')::int AS timeout,"
    "   count(*) FILTER (WHERE NOT late AND outcome = 'constraints')::int AS constraints"
    "  FROM inserted GROUP BY lease_id),"
    " move AS MATERIALIZED (SELECT j.lease, j.verdict, rest.rest, t.covered, t.device_us, t.correct, t.compile, "
    "t.runtime,"
    "   t.correctness, t.timeout, t.constraints, CASE WHEN j.verdict = 'taken' THEN j.opening_us ELSE 0 END"
    "    AS opening_us, CASE WHEN j.verdict = 'late' THEN j.state"
    "    WHEN isempty(rest.rest) THEN 'done' WHEN j.done THEN 'open' ELSE 'held' END::lease_state AS state"
    "  FROM judged j LEFT JOIN tally t ON t.lease_id = j.lease"
    "  CROSS JOIN LATERAL (SELECT j.remaining - COALESCE(t.covered, '{}'::int8multirange)) AS rest(rest)"
    "  WHERE j.verdict IN ('taken', 'late') AND (t.n > 0"
    "   OR (j.verdict = 'taken' AND (j.done OR j.opening_us > 0)))),"
    " moved AS (UPDATE leases l SET posts = l.posts + 1, remaining = m.rest, state = m.state,"
    "   current_config = CASE WHEN m.state = 'held' THEN l.current_config END,"
    "   fruitless = CASE WHEN m.covered IS NULL THEN l.fruitless ELSE 0 END,"
    "   device_us = l.device_us + COALESCE(m.device_us, 0), opening_us = l.opening_us + m.opening_us,"
    "   epoch_opening_us = l.epoch_opening_us + m.opening_us, outcomes = CASE WHEN m.covered IS NULL THEN l.outcomes "
    "ELSE"
    "   ARRAY[l.outcomes[1] + m.correct, l.outcomes[2] + m.compile, l.outcomes[3] + m.runtime,"
    "   l.outcomes[4] + m.correctness, l.outcomes[5] + m.timeout, l.outcomes[6] + m.constraints] END"
    "  FROM move m WHERE l.id = m.lease RETURNING l.id, l.state, l.fruitless),"
    " tardy AS MATERIALIZED (SELECT j.job_id, j.lease, j.epoch, j.current_epoch, t.n,"
    "   row_number() OVER (PARTITION BY j.job_id ORDER BY j.lease)::int AS k"
    "  FROM judged j JOIN tally t ON t.lease_id = j.lease WHERE j.verdict = 'late'),"
    " news AS MATERIALIZED (SELECT j.job_id, count(*) FILTER (WHERE j.verdict = 'late')::int AS n,"
    "   min(t.best_ratio) AS best_ratio FROM judged j JOIN tally t ON t.lease_id = j.lease GROUP BY j.job_id),"
    " written AS MATERIALIZED (SELECT jobs.id, news.n, news.best_ratio FROM news JOIN jobs ON jobs.id = news.job_id"
    "  WHERE news.n > 0 OR news.best_ratio < COALESCE(jobs.best_ratio, 'infinity')"
    "  ORDER BY jobs.id FOR NO KEY UPDATE OF jobs),"
    " counter AS (UPDATE jobs SET events = events + w.n FROM written w WHERE jobs.id = w.id AND w.n > 0"
    "  RETURNING jobs.id, jobs.events - w.n AS before),"
    " record AS (UPDATE jobs SET best_ratio = w.best_ratio FROM written w WHERE jobs.id = w.id AND w.n = 0"
    "  AND w.best_ratio < COALESCE(jobs.best_ratio, 'infinity')),"
    " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT tardy.job_id, counter.before + tardy.k,"
    "   'late', json_build_object('lease', tardy.lease::text, 'epoch', tardy.epoch,"
    "   'current_epoch', tardy.current_epoch, 'measurements', tardy.n)"
    "  FROM tardy JOIN counter ON counter.id = tardy.job_id)"
    " SELECT j.n, j.verdict, j.culprit, COALESCE(t.n, 0) AS accepted, COALESCE(t.late, 0) AS late,"
    "  (SELECT count(*) FROM known WHERE known.n = j.n) AS known, COALESCE(moved.state, j.state) AS state,"
    "  j.verdict = 'taken' AND moved.state <> 'held' AS ended, j.current_epoch, j.job_id, moved.fruitless,"
    "  jobs.baseline, jobs.budget_device_ms IS NOT NULL AS has_budget, e.hardware_digest"
    " FROM judged j LEFT JOIN tally t ON t.lease_id = j.lease LEFT JOIN moved ON moved.id = j.lease"
    " LEFT JOIN jobs ON jobs.id = j.job_id LEFT JOIN environments e ON e.id = jobs.environment_id"};

enum column {
  REQUEST,
  INDEX,
  SEQ,
  CONFIG,
  PROCESS,
  ROUND,
  OUTCOME,
  DETAIL,
  TIMER,
  REGIME,
  SAMPLES,
  BASELINE,
  RATIO,
  CLOCK,
  BASELINE_FAILURE,
  BODY,
#define X(member, least, most) INTEGER_##member,
  MEASUREMENT_INTEGERS(X)
#undef X
      OBJECT,
  CONDITIONS,
  END,
  COLUMNS
};

static void array_add(struct db_array *array, int64_t integer) {
  if (integer == MEASUREMENT_NONE)
    db_array_text(array, NULL);
  else
    db_array_integer(array, integer);
}

static void array_add_real(struct db_array *array, double number) {
  char text[FLOAT_TEXT_SIZE];
  db_array_text(array, number > 0 ? float_format(number, text) : NULL);
}

/* {203.1,202.8}: float4 keeps 7 digits of a time, more than any timer has. */
static void array_add_samples(struct db_array *array, const json_t *samples) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputc('{', out);
  for (size_t i = 0; i < json_array_size(samples); i++)
    fprintf(out, "%s%.9g", i ? "," : "", json_number_value(json_array_get(samples, i)));
  fputc('}', out);
  ALWAYS(fclose(out) == 0);
  db_array_text(array, text);
  free(text);
}

static void measurement_add(struct db_array *columns, size_t n, size_t k, const struct measurement *measurement) {
  db_array_integer(&columns[REQUEST], (int64_t)n);
  db_array_integer(&columns[INDEX], (int64_t)k);
  db_array_integer(&columns[SEQ], measurement->seq);
  db_array_integer(&columns[CONFIG], measurement->config);
  array_add(&columns[PROCESS], measurement->process);
  array_add(&columns[ROUND], measurement->round);
  db_array_text(&columns[OUTCOME], outcome_name(measurement->outcome));
  db_array_text(&columns[DETAIL], measurement->detail);
  db_array_text(&columns[TIMER], measurement->timer);
  db_array_text(&columns[REGIME], measurement->regime);
  array_add_samples(&columns[SAMPLES], measurement->samples_us);
  array_add_samples(&columns[BASELINE], measurement->baseline_us);
  array_add_real(&columns[RATIO], measurement->ratio);
  array_add_real(&columns[CLOCK], measurement->clock_mhz);
  if (measurement->baseline_failure == BASELINE_FAILED_BY_DETAIL)
    db_array_text(&columns[BASELINE_FAILURE], NULL); /* it depends on the config whether it did */
  else
    db_array_bool(&columns[BASELINE_FAILURE], measurement->baseline_failure == BASELINE_FAILED);
  db_array_digest(&columns[BODY], &measurement->body);
#define X(member, least, most) array_add(&columns[INTEGER_##member], measurement->member);
  MEASUREMENT_INTEGERS(X)
#undef X
  if (measurement->has_object)
    db_array_digest(&columns[OBJECT], &measurement->object);
  else
    db_array_text(&columns[OBJECT], NULL);
  db_array_text(&columns[CONDITIONS], measurement->conditions);
  db_array_text(&columns[END], measurement->end);
}

static void post_read(const struct db_rows *rows, int row, struct lease_post *post) {
  static const char *const verdicts[] = {"unknown", "never", "again", "conflict", "outside", "taken", "late"};
  static const char *const states[] = {"open", "held", "done", "cancelled"};
  const char *verdict = db_get(rows, row, "verdict"), *state = db_get(rows, row, "state");
  for (size_t i = 0; i < ARRAY_LENGTH(verdicts); i++)
    if (strcmp(verdicts[i], verdict) == 0)
      post->verdict = i;
  for (size_t i = 0; i < ARRAY_LENGTH(states); i++)
    if (strcmp(states[i], state) == 0)
      post->state = (enum lease_state)i;
  post->culprit = db_get_integer(rows, row, "culprit");
  post->accepted = db_get_integer(rows, row, "accepted");
  post->known = db_get_integer(rows, row, "known");
  post->late = db_get_integer(rows, row, "late");
  post->ended = db_get_bool(rows, row, "ended");
  post->current_epoch = db_get_integer(rows, row, "current_epoch");
  post->job = db_get_integer(rows, row, "job_id");
  post->baseline = db_get_integer(rows, row, "baseline");
  post->fruitless = db_get_integer(rows, row, "fruitless");
  post->has_budget = db_get_bool(rows, row, "has_budget");
  if (!db_is_null(rows, row, "hardware_digest"))
    post->hardware_digest = db_get_digest(rows, row, "hardware_digest");
}

bool leases_post(struct db *db, struct lease_post *const *posts, size_t n, struct error *error) {
  struct db_array leases, epochs, dones, openings, columns[COLUMNS];
  db_array_init(&leases);
  db_array_init(&epochs);
  db_array_init(&dones);
  db_array_init(&openings);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++) {
    const struct results *results = posts[i]->results;
    db_array_integer(&leases, posts[i]->lease);
    db_array_integer(&epochs, results->epoch);
    db_array_bool(&dones, results->done);
    db_array_integer(&openings, results->opening_us);
    for (size_t k = 0; k < results->n; k++)
      measurement_add(columns, i + 1, k, &results->measurements[k]);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&leases));
  db_text(&parameters, db_array_finish(&epochs));
  db_text(&parameters, db_array_finish(&dones));
  for (size_t i = 0; i < COLUMNS; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  db_text(&parameters, db_array_finish(&openings));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &post_statement, &parameters, &rows, error);
  db_array_release(&leases);
  db_array_release(&epochs);
  db_array_release(&dones);
  db_array_release(&openings);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  for (int row = 0; ok && row < db_count(rows); row++)
    post_read(rows, row, posts[db_get_integer(rows, row, "n") - 1]);
  return ok;
}
