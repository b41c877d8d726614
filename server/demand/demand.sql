-- Demand: the keys that deployments report to use (demand.h).

-- For each name, the kernel of this name that was registered last.
-- name: demand_kernels
SELECT r.n, k.hash
FROM unnest(:names::text[]) WITH ORDINALITY AS r(name, n)
CROSS JOIN LATERAL (
    SELECT hash
    FROM kernels
    WHERE name = r.name
      AND language <> 'external'
    ORDER BY id DESC
    LIMIT 1) k;

-- Adds to the counts. The input may have a key twice. New keys beyond :rows_max are dropped. Rows
-- are locked in the order of (kernel, key_digest), as by all statements. What other tokens report
-- does not hide that one which a policy names reported the key.
-- name: demand_add
WITH added AS (
    INSERT INTO demand AS d (kernel, key_digest, key, environment_digest, environment, tag, regime,
                             hits, misses, tuning_ms, kernel_ms, last_by, last_by_id)
    SELECT r.kernel, r.key_digest, min(r.key)::json, :environment_digest::bytea, :environment::json,
           :tag::text, :regime::text, sum(r.hits), sum(r.misses), COALESCE(sum(r.tuning_ms), 0),
           avg(r.kernel_ms), :author, :author_id::bigint
    FROM unnest(:kernel::bytea[], :key_digest::bytea[], :key::text[], :hits::int8[],
                :misses::int8[], :tuning_ms::float8[], :kernel_ms::float8[])
         AS r(kernel, key_digest, key, hits, misses, tuning_ms, kernel_ms)
    WHERE EXISTS (
              SELECT
              FROM demand o
              WHERE (o.kernel, o.key_digest, o.environment_digest, o.tag, o.regime)
                    = (r.kernel, r.key_digest, :environment_digest, :tag, :regime))
       OR (SELECT count(*) FROM (SELECT FROM demand LIMIT :rows_max::bigint) kept) < :rows_max
    GROUP BY r.kernel, r.key_digest
    ORDER BY r.kernel, r.key_digest
    ON CONFLICT (kernel, key_digest, environment_digest, tag, regime) DO UPDATE
    SET hits = least(d.hits, :total_max::bigint) + excluded.hits,
        misses = least(d.misses, :total_max) + excluded.misses,
        tuning_ms = d.tuning_ms + excluded.tuning_ms,
        kernel_ms = COALESCE(excluded.kernel_ms, d.kernel_ms),
        last_at = now(), last_by = excluded.last_by, last_by_id = excluded.last_by_id
    RETURNING d.id
)
INSERT INTO demand_reporters (demand, token, image)
SELECT id, :author, :image
FROM added
WHERE EXISTS (SELECT
              FROM policy_states
              WHERE acts AND tokens && ARRAY[:author, '*'] AND image_fits(:image, images))
ORDER BY id
ON CONFLICT (demand, token) DO UPDATE
SET image = excluded.image;

-- Untuned keys that were missed and are not decided yet, of a list (:is_list) also those that wait
-- until an agent enrols whose hardware their environment names; with the space and the budget of the
-- kernel's newest done job that tuned. A key is tuned when a done job has a winner for it in the
-- deployment's environment, or in one that agrees with the members that it states. That is checked
-- last, key by key in the order of the ranking until there are enough, by the index of jobs:
-- joining all jobs takes seconds where there are many. With :policy, only keys that its tokens and
-- images missed, where it may make jobs, and whose kernel was tuned before.
-- name: demand_wanted
WITH open AS (
    SELECT d.*, w.is_decided, m.image
    FROM demand d
    CROSS JOIN LATERAL (
        SELECT d.decided_at > now() - interval '1 day'
               AND NOT (d.waits
                        AND EXISTS (SELECT
                                    FROM agents a
                                    JOIN devices v ON v.agent = a.id
                                    JOIN environments e ON e.id = v.environment_id
                                    WHERE a.enrolled_at > d.decided_at
                                      AND e.identity::jsonb
                                          @> (d.environment::jsonb - 'torch' - 'triton')))
               AS is_decided) w
    LEFT JOIN LATERAL (
        SELECT min(o.image) AS image
        FROM policy_states p
        JOIN demand_reporters o ON o.demand = d.id AND image_fits(o.image, p.images)
        JOIN tokens t ON t.name = o.token AND p.tokens && ARRAY[t.name, '*']
                     AND t.revoked_at IS NULL
        WHERE p.id = :policy::bigint AND p.acts) m ON true
    WHERE d.misses > 0
      AND d.job_id IS NULL
      AND (w.is_decided IS NOT TRUE OR (:is_list::boolean AND d.waits))
      AND (:policy::bigint IS NULL
           OR (m.image IS NOT NULL
               AND EXISTS (SELECT
                           FROM jobs
                           WHERE kernel = d.kernel
                             AND state = 'done'
                             AND purpose = 'tune')))
), gains AS (
    SELECT k.kernel, COALESCE(g.gain, :gain::float8) AS gain
    FROM (SELECT DISTINCT kernel FROM open) k
    CROSS JOIN LATERAL (
        SELECT avg(1 - CASE
                   WHEN j.baseline = COALESCE(j.default_config, j.baseline)
                   THEN (w.verdict ->> 'baseline_ratio')::float8
                   ELSE (SELECT (f ->> 'winner_ratio')::float8
                         FROM json_array_elements(w.verdict -> 'finalists') f
                         WHERE (f ->> 'config')::bigint = j.default_config)
                   END) AS gain
        FROM (SELECT id, baseline, default_config
              FROM jobs
              WHERE jobs.kernel = k.kernel
                AND state = 'done'
                AND purpose = 'tune'
              ORDER BY id DESC
              LIMIT 64) j
        JOIN winners w ON w.job_id = j.id) g
), wanted AS (
    SELECT *
    FROM (SELECT o.*, g.gain,
                 o.tuning_ms + (o.hits + o.misses) * COALESCE(o.kernel_ms, 0) * greatest(g.gain, 0)
                     AS saved_ms
          FROM open o
          JOIN gains g USING (kernel)
          ORDER BY saved_ms DESC, o.misses DESC, o.id) ranked
    WHERE (SELECT count(*)
           FROM (SELECT
                 FROM (SELECT id, environment_id
                       FROM jobs
                       WHERE kernel = ranked.kernel
                         AND key_digest = ranked.key_digest
                         AND tag = ranked.tag
                         AND regime = ranked.regime
                         AND state = 'done'
                       OFFSET 0) j
                 JOIN winners w ON w.job_id = j.id
                 JOIN environments e ON e.id = j.environment_id
                                    AND e.identity::jsonb @> ranked.environment::jsonb
                 LIMIT 1) tuned) = 0
    ORDER BY saved_ms DESC, misses DESC, id
    LIMIT :limit::bigint
)
SELECT r.id, r.kernel, k.name, r.tag, r.regime, r.key, r.environment, r.hits, r.misses, r.tuning_ms,
       r.kernel_ms, r.gain, r.saved_ms, rfc3339(r.last_at) AS last_at,
       CASE WHEN r.is_decided THEN r.refused END AS refused, j.space, j.budget_ms,
       'demand' AS source, r.image, r.refused AS not_queued, j.configs,
       j.configs * kernel_config_us(r.kernel) / 1e6 AS device_seconds
FROM wanted r
JOIN kernels k ON k.hash = r.kernel
LEFT JOIN LATERAL (
    SELECT s.space, jobs.budget_device_ms AS budget_ms, jobs.configs
    FROM jobs
    JOIN spaces s ON s.digest = jobs.space_digest
    WHERE jobs.kernel = r.kernel
      AND jobs.state = 'done'
      AND jobs.purpose = 'tune'
    ORDER BY jobs.id DESC
    LIMIT 1) j ON true
ORDER BY r.saved_ms DESC, r.misses DESC, r.id;

-- Keys that programs missed; the input may have one twice. As with demand_add, new keys beyond
-- :rows_max are dropped.
-- name: demand_misses_add
INSERT INTO program_misses AS m (function, key_digest, key, name, environment_digest, environment,
                                 tag, regime, misses, why, tuning_ms, last_by, last_by_id)
SELECT r.function, r.key_digest, min(r.key)::json, min(r.name), :environment_digest::bytea,
       :environment::json, :tag::text, :regime::text, count(*), max(r.why), max(r.tuning_ms),
       :author, :author_id::bigint
FROM unnest(:function::bytea[], :key_digest::bytea[], :key::text[], :name::text[], :why::text[],
            :tuning_ms::float8[])
     AS r(function, key_digest, key, name, why, tuning_ms)
WHERE EXISTS (
          SELECT
          FROM program_misses o
          WHERE (o.function, o.key_digest, o.environment_digest, o.tag, o.regime)
                = (r.function, r.key_digest, :environment_digest, :tag, :regime))
   OR (SELECT count(*) FROM (SELECT FROM program_misses LIMIT :rows_max::bigint) kept) < :rows_max
GROUP BY r.function, r.key_digest
ORDER BY r.function, r.key_digest
ON CONFLICT (function, key_digest, environment_digest, tag, regime) DO UPDATE
SET misses = least(m.misses, :total_max::bigint) + excluded.misses, why = excluded.why,
    tuning_ms = COALESCE(excluded.tuning_ms, m.tuning_ms), name = excluded.name, last_at = now(), last_by = excluded.last_by,
    last_by_id = excluded.last_by_id
RETURNING m.id;

-- Those that were missed most, with what programs spent on tuning them.
-- name: demand_missed
SELECT m.function, m.name, m.key, m.environment, m.tag, m.regime, m.misses, m.why,
       rfc3339(m.last_at) AS last_at, c.id AS capture, m.tuning_ms,
       m.misses * m.tuning_ms AS saved_ms
FROM (SELECT *
      FROM program_misses
      WHERE last_at > now() - make_interval(days => :days::int)
      ORDER BY misses DESC, id
      LIMIT :limit::bigint) m
LEFT JOIN (SELECT closure, min(id) AS id FROM captured_functions GROUP BY closure) c
       ON c.closure = m.function
ORDER BY m.misses DESC, m.id;

-- Rows that a report is changing are left out, so that two statements never wait for each other.
-- name: demand_misses_collect
DELETE FROM program_misses
WHERE id IN (SELECT id
             FROM program_misses
             WHERE last_at < now() - make_interval(days => :days::int)
             LIMIT :at_once::bigint
             FOR UPDATE SKIP LOCKED);

-- name: demand_decided
UPDATE demand
SET job_id = :job::bigint, refused = :refused, waits = :waits::boolean, decided_at = now()
WHERE id = :id::bigint;
