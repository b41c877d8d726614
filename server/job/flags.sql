-- Winners that turned out slower than the default (server/job/flags.h). Which ones a job may flag
-- is in both statements: those of jobs that were done when it was submitted, of the same kernel,
-- key, environment, tag and regime.

-- Of its measurements those of its finals are read, by their leases: a job may have a million.
-- name: flag_facts
SELECT now.baseline, now.default_config, now.seed,
       EXISTS (
           SELECT
           FROM jobs later
           JOIN jobs j ON (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)
                          = (later.environment_id, later.tag, later.regime, later.kernel,
                             later.key_digest)
                      AND j.state = 'done' AND j.finished_at <= later.created_at
           JOIN winners w ON w.job_id = j.id AND w.flagged IS NULL
           WHERE later.id = now.id) AS has_earlier,
       (SELECT count(*)
        FROM leases l
        JOIN measurements q ON q.lease_id = l.id
        WHERE l.job_id = now.id AND l.stage = 'final' AND q.quarantined AND q.late
          AND NOT EXISTS (
              SELECT
              FROM measurements m
              WHERE (m.job_id, m.stage, m.round, m.process, m.config)
                    = (q.job_id, q.stage, q.round, q.process, q.config)
                AND NOT m.late)) AS n_lacking
FROM jobs now
WHERE now.id = :job::bigint;

-- name: flags_store
WITH due AS MATERIALIZED (
    SELECT j.id,
           json_build_object('job', :job::bigint::text, 'ratio', f.ratio, 'lower', f.lower,
                             'upper', f.upper, 'at', rfc3339(now())) AS flag
    FROM jobs later
    JOIN jobs j ON (j.environment_id, j.tag, j.regime, j.kernel, j.key_digest)
                   = (later.environment_id, later.tag, later.regime, later.kernel, later.key_digest)
               AND j.state = 'done' AND j.finished_at <= later.created_at
    JOIN winners w ON w.job_id = j.id AND w.flagged IS NULL
    JOIN unnest(:config_values::text[], :ratio::float8[], :lower::float8[], :upper::float8[])
         AS f(config_values, ratio, lower, upper)
         ON w.config_values::jsonb = f.config_values::jsonb
    WHERE later.id = :job::bigint
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), flagged AS (
    UPDATE winners w
    SET flagged = due.flag
    FROM due
    WHERE w.job_id = due.id
), counter AS (
    UPDATE jobs
    SET events = events + 1
    FROM due
    WHERE jobs.id = due.id
    RETURNING jobs.id, jobs.events, due.flag
)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT id, events, 'flagged', flag
FROM counter;
