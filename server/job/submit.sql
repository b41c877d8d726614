-- Finding and storing submitted jobs (server/job/submit_store.c).

-- The jobs that are stored already.
-- name: jobs_find
SELECT r.n, j.id, j.state, j.configs, j.priority, j.baseline_from, false AS created
FROM unnest(:kernel::bytea[], :key_digest::bytea[], :space_digest::bytea[], :environment::bytea[],
            :tag::text[], :run::text[], :regime::text[])
     WITH ORDINALITY AS r(kernel, key_digest, space_digest, environment, tag, run, regime, n)
JOIN environments e ON e.digest = r.environment
JOIN jobs j ON (j.kernel, j.key_digest, j.space_digest, j.environment_id, j.tag, j.run, j.regime)
             = (r.kernel, r.key_digest, r.space_digest, e.id, r.tag, r.run, r.regime);

-- name: spaces_store
INSERT INTO spaces (digest, space)
SELECT digest, space
FROM unnest(:digest::bytea[], :space::text[]) AS s(digest, space)
WHERE NOT EXISTS (SELECT FROM spaces known WHERE known.digest = s.digest)
ORDER BY digest
ON CONFLICT (digest) DO NOTHING;

-- Failed and cancelled jobs that are tried again: each gives up its identity by another run, and
-- keeps its id, its measurements and its events.
-- name: jobs_step_aside
WITH due AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE id = ANY (:jobs::bigint[])
      AND state IN ('failed', 'cancelled')
      AND retried_at IS NULL
    ORDER BY id
    FOR UPDATE
), renamed AS (
    UPDATE jobs j
    SET retried_at = now(),
        run = CASE WHEN j.run = '' THEN '' ELSE j.run || '/' END || 'retried-' || j.id,
        events = j.events + 1
    FROM due
    WHERE j.id = due.id
    RETURNING j.id, j.events, j.run
)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT id, events, 'retried', json_build_object('run', run)
FROM renamed;

-- The rows are inserted in the order of their identity, so that two posts of the same jobs cannot
-- deadlock. Event 1 of a job is that it was queued.
-- name: jobs_insert
WITH input AS MATERIALIZED (
    SELECT i.*, e.id AS environment_id
    FROM unnest({arrays}, :environment::bytea[], :likely::text[])
         WITH ORDINALITY AS i({columns}, environment, likely, n)
    JOIN environments e ON e.digest = i.environment
), stored AS (
    INSERT INTO jobs AS j ({columns}, environment_id, likely, events, submitted_by, submitted_by_id,
                           owner_id)
    SELECT {values}, environment_id, likely::bigint[], 1, :author::text, :author_id::bigint,
        COALESCE((SELECT id FROM owners WHERE name = :author::text), 0)
    FROM input
    ORDER BY kernel, key_digest, space_digest, environment_id, tag, run, regime
    ON CONFLICT (kernel, key_digest, space_digest, environment_id, tag, run, regime)
    DO UPDATE SET priority = GREATEST(j.priority, excluded.priority)
    RETURNING j.*, j.xmax = 0 AS created
), event AS (
    INSERT INTO job_events (job_id, event, kind, detail)
    SELECT id, 1, 'queued', '{}'
    FROM stored
    WHERE created
)
SELECT i.n, s.id, s.state, s.configs, s.priority, s.baseline_from, s.created
FROM input i
JOIN stored s ON (s.kernel, s.key_digest, s.space_digest, s.environment_id, s.tag, s.run, s.regime)
               = (i.kernel, i.key_digest, i.space_digest, i.environment_id, i.tag, i.run, i.regime);

-- name: jobs_open_of
SELECT count(*) AS n
FROM jobs
WHERE submitted_by_id = :token::bigint
  AND state IN ('queued', 'running');

-- The values that won the newest done job of the same kernel, key, environment, tag and regime, and
-- those that were imported for them: at most one of each, the newer first.
-- name: jobs_incumbents
SELECT r.n, c.config, c.baseline_from
FROM unnest(:kernel::bytea[], :key_digest::bytea[], :environment::bytea[], :identity::text[],
            :tag::text[], :regime::text[])
     WITH ORDINALITY AS r(kernel, key_digest, environment, identity, tag, regime, n)
CROSS JOIN LATERAL (
    (SELECT w.config_values AS config, j.finished_at AS at, 'incumbent' AS baseline_from
     FROM environments e
     CROSS JOIN LATERAL (
         SELECT id, finished_at
         FROM jobs
         WHERE environment_id = e.id AND tag = r.tag AND regime = r.regime AND kernel = r.kernel
           AND key_digest = r.key_digest AND state = 'done'
         ORDER BY id DESC
         LIMIT 1
     ) j
     JOIN winners w ON w.job_id = j.id
     WHERE e.digest = r.environment)
    UNION ALL
    (SELECT config, imported_at, 'imported'
     FROM imports
     WHERE kernel = r.kernel AND key_digest = r.key_digest AND tag = r.tag
       AND r.identity::jsonb @> environment::jsonb
     ORDER BY environment_digest = r.environment DESC, imported_at DESC, id DESC
     LIMIT 1)
) c
ORDER BY r.n, c.at DESC;

-- Device time of the quickest correct config in the newest done job that differs at most in its
-- run.
-- name: jobs_quickest
SELECT r.n, q.us
FROM unnest(:kernel::bytea[], :key_digest::bytea[], :space_digest::bytea[], :environment::bytea[],
            :tag::text[], :regime::text[])
     WITH ORDINALITY AS r(kernel, key_digest, space_digest, environment, tag, regime, n)
JOIN environments e ON e.digest = r.environment
CROSS JOIN LATERAL (
    SELECT id
    FROM jobs
    WHERE environment_id = e.id AND tag = r.tag AND regime = r.regime AND kernel = r.kernel
      AND key_digest = r.key_digest AND space_digest = r.space_digest AND state = 'done'
    ORDER BY id DESC
    LIMIT 1
) j
CROSS JOIN LATERAL (
    SELECT min(device_us) AS us
    FROM measurements
    WHERE job_id = j.id AND stage = 'screen' AND outcome = 'correct' AND NOT late
) q;
