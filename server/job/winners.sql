-- What earlier jobs of a kernel tell a new one (server/job/winners.c).

-- name: winners_past
SELECT r.n, j.key, e.digest AS environment, w.config_values
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(kernel, n)
CROSS JOIN LATERAL (
    SELECT id, key, environment_id
    FROM jobs
    WHERE kernel = r.kernel AND state = 'done'
    ORDER BY id DESC
    LIMIT :limit
) j
JOIN winners w ON w.job_id = j.id
JOIN environments e ON e.id = j.environment_id
ORDER BY r.n, j.id DESC;

-- Mean device time of a config in the screens of each kernel's newest jobs.
-- name: kernels_pace
SELECT r.n, (sum(l.device_us) / nullif(sum(l.n), 0))::bigint AS config_us
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(kernel, n)
CROSS JOIN LATERAL (
    SELECT id
    FROM jobs
    WHERE kernel = r.kernel AND state = 'done'
    ORDER BY id DESC
    LIMIT :limit
) j
CROSS JOIN LATERAL (
    SELECT device_us, (SELECT sum(o) FROM unnest(outcomes) o) AS n
    FROM leases
    WHERE job_id = j.id AND stage = 'screen'
) l
GROUP BY r.n;

-- The values that won the newest done job of the same kernel, key, environment, tag and regime,
-- and those that were imported for them: one of each at most, the newer first.
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

-- Device time of the quickest correct config of the newest done job that is the same but for its
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
