/* SQL of devices that drift. Memory and threads: as the header says. */
#include "server/agent/drift_store.h"

#include "server/db/values.h"

#define SQL_TEXT(x) #x
#define SQL_NUMBER(x) SQL_TEXT(x)
#define SQL_US(column) "(extract(epoch FROM " column ") * 1000000)::bigint"
#define SQL_FROM_US(parameter) "('epoch'::timestamptz + " parameter "::bigint * interval '1 microsecond')"

/* Of a lease with many configs the first ones tell. They are read from key to key in the order of the unique index, so that
 * the plan probes it even when it was made while the table was small. */
#define NOTE_MEASUREMENTS "64"

/* Agents wait for this statement: its commit does not wait for the disk. What a crash of the database loses is a point of the
 * history. The setting ends with the statement's transaction.
 * The history does not have the new row yet: a statement does not see what it inserts. */
static const struct statement note_statement = {
    "drift_note",
    "WITH ended AS MATERIALIZED (SELECT e.*, set_config('synchronous_commit', 'off', true)"
    "  FROM unnest($1::bigint[], $2::bigint[]) AS e(lease, epoch)),"
    " timed AS MATERIALIZED (SELECT e.lease, e.epoch, t.* FROM ended e CROSS JOIN LATERAL"
    "  (SELECT m.job_id, m.agent, m.device, m.stage, m.regime, m.timer,"
    "    percentile_cont(0.5) WITHIN GROUP (ORDER BY us) AS median_us FROM (SELECT * FROM measurements"
    "     WHERE (lease_id, epoch) >= (e.lease, e.epoch) AND (lease_id, epoch) <= (e.lease, e.epoch)"
    "     ORDER BY lease_id, epoch, seq LIMIT " NOTE_MEASUREMENTS ") m, unnest(m.baseline_us) us"
    "   WHERE NOT m.late AND m.outcome = 'correct' GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY count(*) DESC LIMIT 1) t),"
    " noted AS (INSERT INTO device_baselines (agent, device, subject, lease_id, epoch, median_us)"
    "  SELECT t.agent, t.device, sha256(convert_to(json_build_array(encode(j.kernel, 'hex'),"
    "    encode(j.key_digest, 'hex'), encode(j.space_digest, 'hex'), j.baseline, j.environment_id,"
    "    encode(j.build, 'hex'), t.stage, t.regime, t.timer)::text, 'UTF8')), t.lease, t.epoch, t.median_us"
    "  FROM timed t JOIN jobs j ON j.id = t.job_id ON CONFLICT (lease_id, epoch) DO NOTHING RETURNING *)"
    " SELECT n.agent, n.device, n.lease_id, n.median_us, " SQL_US(
        "n.at") " AS at_us, d.drain_reason,"
                "  " SQL_US(
                    "d.suspect_since") " AS suspect_since_us, past.medians, past.ats FROM noted n"
                                       " JOIN devices d ON d.agent = n.agent AND d.device = n.device CROSS JOIN LATERAL"
                                       "  (SELECT COALESCE(json_agg(median_us ORDER BY at), '[]') AS medians,"
                                       "    COALESCE(json_agg(" SQL_US(
                                           "at") " ORDER BY at), '[]') AS ats FROM (SELECT median_us, at"
                                                 "     FROM device_baselines b WHERE b.agent = n.agent AND b.device = "
                                                 "n.device AND b.subject = n.subject"
                                                 "     AND b.at > COALESCE(d.history_since, '-infinity') ORDER BY at "
                                                 "DESC LIMIT $3) newest) past ORDER BY n.lease_id"};

static void note_read(const struct db_rows *rows, int row, struct drift_note *note) {
  cleanup_json json_t *medians = db_get_json(rows, row, "medians"), *ats = db_get_json(rows, row, "ats");
  *note = (struct drift_note){
      .lease = db_get_integer(rows, row, "lease_id"),
      .agent = xstrdup(db_get(rows, row, "agent")),
      .device = xstrdup(db_get(rows, row, "device")),
      .is_suspect = !db_is_null(rows, row, "suspect_since_us"),
      .drain_reason = xstrdup(db_get(rows, row, "drain_reason")),
      .suspect_since_us = db_get_integer(rows, row, "suspect_since_us"),
      .leases = xcalloc(json_array_size(medians) + 1, sizeof *note->leases),
  };
  for (; note->n_leases < json_array_size(medians); note->n_leases++)
    note->leases[note->n_leases] = (struct drift_lease){json_number_value(json_array_get(medians, note->n_leases)),
                                                        json_integer_value(json_array_get(ats, note->n_leases))};
  note->leases[note->n_leases++] =
      (struct drift_lease){db_get_double(rows, row, "median_us"), db_get_integer(rows, row, "at_us")};
}

bool drift_note(struct db *db, const struct drift_end *ends, size_t n, struct drift_notes *ret, struct error *error) {
  struct db_array leases, epochs;
  db_array_init(&leases);
  db_array_init(&epochs);
  for (size_t i = 0; i < n; i++) {
    db_array_integer(&leases, ends[i].lease);
    db_array_integer(&epochs, ends[i].epoch);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&leases));
  db_text(&parameters, db_array_finish(&epochs));
  db_integer(&parameters, DRIFT_HISTORY_MAX + DRIFT_LEASES - 1);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &note_statement, &parameters, &rows, error);
  db_array_release(&leases);
  db_array_release(&epochs);
  if (!ok)
    return false;
  *ret = (struct drift_notes){.all = xcalloc((size_t)db_count(rows) + 1, sizeof *ret->all)};
  for (int row = 0; row < db_count(rows); row++)
    note_read(rows, row, &ret->all[ret->n++]);
  return true;
}

void drift_notes_release(struct drift_notes *notes) {
  for (size_t i = 0; i < notes->n; i++) {
    free(notes->all[i].agent);
    free(notes->all[i].device);
    free(notes->all[i].drain_reason);
    free(notes->all[i].leases);
  }
  free(notes->all);
  *notes = (struct drift_notes){0};
}

static const struct statement subject_statement = {
    "drift_subject", "SELECT 'baseline ' || j.baseline || ' of ' || k.name || ' ' || j.key AS subject FROM leases l"
                     " JOIN jobs j ON j.id = l.job_id JOIN kernels k ON k.hash = j.kernel WHERE l.id = $1"};

bool drift_subject(struct db *db, int64_t lease, char **ret_subject, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, lease);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &subject_statement, &parameters, &rows, error))
    return false;
  *ret_subject = xstrdup(db_get(rows, 0, "subject"));
  return true;
}

static const struct statement suspect_statement = {
    "drift_suspect",
    "UPDATE devices SET drain_reason = COALESCE(drain_reason, $3),"
    "  drained_by = CASE WHEN drain_reason IS NULL THEN $5 ELSE drained_by END,"
    "  drained_by_id = CASE WHEN drain_reason IS NOT NULL THEN drained_by_id END, suspect_since = " SQL_FROM_US(
        "$4") " WHERE agent = $1 AND device = $2 AND suspect_since IS NULL"};

/* Samples that the device gave since then, of jobs that have not ended or ended since. What a round of a search asked next
 * follows from what the rounds before had told it, and is made again from that: those keep their place. */
#define SQL_SAMPLES                                                                                                    \
  "SELECT m.job_id, m.id, m.lease_id, m.config, m.stage, m.late, j.state, NOT m.late AND m.stage = j.stage"            \
  "  AND j.state IN ('queued', 'running') AND (j.search_strategy IS NULL OR m.stage <> 'screen' OR m.round = j.round)" \
  "  AS needed FROM jobs j JOIN measurements m ON m.job_id = j.id"                                                     \
  " WHERE (j.state IN ('queued', 'running') OR j.finished_at > " SQL_FROM_US(                                          \
      "$3") ")"                                                                                                        \
            " AND m.agent = $1 AND m.device = $2 AND m.at > " SQL_FROM_US(                                             \
                "$3") " AND m.outcome = 'correct' AND NOT m.quarantined"

/* A statement of its own, so that the next one sees what those committed that it waited for. */
static const struct statement lock_statement = {
    "drift_lock", "SELECT id FROM leases WHERE (state = 'held' AND agent = $1 AND device = $2)"
                  " OR id IN (SELECT lease_id FROM (" SQL_SAMPLES ") s WHERE needed) ORDER BY id FOR UPDATE"};

/* What the job's stage still needs makes room for another measurement (`late` takes it out of measurements_once) and goes
 * back to its lease; the rest keeps its place, and is evidence of what was decided then. */
static const struct statement quarantine_statement = {
    "drift_quarantine",
    "WITH sample AS MATERIALIZED (" SQL_SAMPLES "),"
    " marked AS (UPDATE measurements m SET quarantined = true, late = m.late OR s.needed FROM sample s"
    "  WHERE m.job_id = s.job_id AND m.id = s.id),"
    " missing AS MATERIALIZED (SELECT lease_id, count(*)::int AS n, range_agg(int8range(config, config + 1)) AS configs"
    "  FROM sample WHERE needed GROUP BY lease_id),"
    " due AS MATERIALIZED (SELECT l.id, l.job_id, COALESCE(x.n, 0) AS n,"
    "   COALESCE(x.configs, '{}'::int8multirange) AS configs,"
    "   l.state = 'done' OR (l.state = 'held' AND l.agent = $1 AND l.device = $2) AS opens"
    "  FROM leases l LEFT JOIN missing x ON x.lease_id = l.id AND x.configs <@ l.configs WHERE l.state <> 'cancelled'"
    "  AND (x.lease_id IS NOT NULL OR (l.state = 'held' AND l.agent = $1 AND l.device = $2))),"
    " moved AS (UPDATE leases l SET remaining = l.remaining + due.configs, outcomes[1] = l.outcomes[1] - due.n,"
    "   posts = l.posts + 1, state = CASE WHEN due.opens THEN 'open' ELSE l.state END::lease_state,"
    "   current_config = CASE WHEN due.opens THEN NULL ELSE l.current_config END"
    "  FROM due WHERE l.id = due.id),"
    " job AS MATERIALIZED (SELECT job_id, sum(samples)::int AS samples, sum(missing)::int AS missing,"
    "   sum(opened)::int AS opened, bool_or(is_final) AS is_final FROM (SELECT job_id, 1 AS samples,"
    "    needed::int AS missing, 0 AS opened, stage = 'final' AND NOT late AS is_final FROM sample"
    "    UNION ALL SELECT job_id, 0, 0, opens::int, false FROM due) x GROUP BY job_id),"
    " counter AS (UPDATE jobs SET events = events + 1 FROM job WHERE jobs.id = job.job_id AND job.samples > 0"
    "  RETURNING jobs.id, jobs.events),"
    " event AS (INSERT INTO job_events (job_id, event, kind, detail) SELECT c.id, c.events, 'quarantined',"
    "   json_build_object('agent', $1::text, 'device', $2::text, 'reason', $4::text, 'measurements', job.samples,"
    "    'leased_again', job.missing) FROM counter c JOIN job ON job.job_id = c.id)"
    " SELECT job.*, e.hardware_digest FROM job JOIN jobs j ON j.id = job.job_id"
    " JOIN environments e ON e.id = j.environment_id ORDER BY job.job_id"};

/* After the jobs are locked: one may have become done meanwhile. */
static const struct statement winners_statement = {
    "drift_winners", "UPDATE winners w SET quarantined = $2 FROM jobs j WHERE w.job_id = ANY ($1::bigint[])"
                     " AND j.id = w.job_id AND j.state = 'done' AND w.quarantined IS NULL"};

static bool winners_mark(struct db *db, const struct db_rows *rows, const char *reason, int64_t *ret_winners,
                         struct error *error) {
  struct db_array jobs;
  db_array_init(&jobs);
  for (int row = 0; row < db_count(rows); row++)
    if (db_get_bool(rows, row, "is_final"))
      db_array_integer(&jobs, db_get_integer(rows, row, "job_id"));
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&jobs));
  db_text(&parameters, reason);
  cleanup_rows struct db_rows *marked = NULL;
  bool ok = jobs.n == 0 || db_run(db, &winners_statement, &parameters, &marked, error);
  *ret_winners = ok && marked ? db_affected(marked) : 0;
  db_array_release(&jobs);
  return ok;
}

bool drift_quarantine(struct db *db, const char *agent, const char *device, const char *reason, int64_t since_us,
                      struct drift_quarantined *ret, struct error *error) {
  struct db_parameters suspect = {0}, samples = {0};
  db_text(&suspect, agent);
  db_text(&suspect, device);
  db_text(&suspect, reason);
  db_integer(&suspect, since_us);
  db_text(&suspect, author_server.name);
  db_text(&samples, agent);
  db_text(&samples, device);
  db_integer(&samples, since_us);
  cleanup_rows struct db_rows *suspected = NULL;
  cleanup_rows struct db_rows *locked = NULL;
  cleanup_rows struct db_rows *rows = NULL;
  int64_t winners;
  if (!db_run(db, &suspect_statement, &suspect, &suspected, error) ||
      !db_run(db, &lock_statement, &samples, &locked, error))
    return false;
  db_text(&samples, reason);
  if (!db_run(db, &quarantine_statement, &samples, &rows, error) || !winners_mark(db, rows, reason, &winners, error))
    return false;
  if (db_affected(suspected) > 0 && !audit_note(db, &author_server, AUDIT_DRAIN, agent,
                                                json_pack("{s:s, s:s}", "device", device, "reason", reason), error))
    return false;
  struct drift_quarantined quarantined = {.is_new = db_affected(suspected) > 0,
                                          .winners = winners,
                                          .jobs = xcalloc((size_t)db_count(rows) + 1, sizeof *quarantined.jobs)};
  for (int row = 0; row < db_count(rows); row++) {
    quarantined.measurements += db_get_integer(rows, row, "samples");
    quarantined.jobs[quarantined.n++] =
        (struct drift_job){db_get_integer(rows, row, "job_id"), db_get_integer(rows, row, "opened"),
                           db_get_digest(rows, row, "hardware_digest")};
  }
  *ret = quarantined;
  return true;
}

void drift_quarantined_release(struct drift_quarantined *quarantined) {
  free(quarantined->jobs);
  *quarantined = (struct drift_quarantined){0};
}

static const struct statement device_drain_statement = {
    "device_drain",
    "UPDATE devices SET drain_reason = $3, drained_by = CASE WHEN $3::text IS NOT NULL THEN $4 END,"
    " drained_by_id = CASE WHEN $3::text IS NOT NULL THEN $5::bigint END,"
    " history_since = CASE WHEN $3::text IS NULL AND suspect_since IS NOT NULL THEN now() ELSE history_since END,"
    " suspect_since = CASE WHEN $3::text IS NOT NULL THEN suspect_since END WHERE agent = $1 AND device = $2"};

bool device_set_drain(struct db *db, const char *agent, const char *device, const char *reason,
                      const struct author *author, bool *ret_known, struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, agent);
  db_text(&parameters, device);
  db_text(&parameters, reason);
  db_author(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &device_drain_statement, &parameters, &rows, error);
  *ret_known = ok && db_affected(rows) > 0;
  if (*ret_known)
    ok = audit_note(db, author, reason ? AUDIT_DRAIN : AUDIT_RESUME, agent,
                    json_pack("{s:s, s:s*}", "device", device, "reason", reason), error);
  return db_end(db, ok, error);
}
