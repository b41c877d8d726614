-- Policies, and the jobs that they make (policy.h).

-- Those of all, or that of one owner.
-- name: policy_list
SELECT id, mode, device_seconds_per_day, device_seconds_per_job, jobs_per_hour, configs_max, run,
       tokens, images, channel, require, promote, rfc3339(set_at) AS set_at, set_by, set_by_id, token, roles, acts
FROM policy_states
WHERE (:owner::text IS NULL OR set_by = :owner)
  AND id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

-- name: policy_set
INSERT INTO policies (mode, device_seconds_per_day, device_seconds_per_job, jobs_per_hour,
                      configs_max, run, tokens, images, channel, require, promote, set_at, set_by,
                      set_by_id)
VALUES (:mode, :device_seconds_per_day::float8, :device_seconds_per_job::float8,
        :jobs_per_hour::bigint, :configs_max::bigint, COALESCE(:run, 'policy'),
        COALESCE(:tokens::text[], '{}'), COALESCE(:images::text[], '{}'), :channel,
        COALESCE(:require, 'agrees'), :promote::boolean, now(), :author, :author_id::bigint)
ON CONFLICT (set_by) DO UPDATE
SET mode = excluded.mode, device_seconds_per_day = excluded.device_seconds_per_day,
    device_seconds_per_job = excluded.device_seconds_per_job,
    jobs_per_hour = excluded.jobs_per_hour, configs_max = excluded.configs_max,
    run = excluded.run, tokens = excluded.tokens, images = excluded.images,
    channel = excluded.channel, require = excluded.require, promote = excluded.promote,
    set_at = excluded.set_at, set_by_id = excluded.set_by_id;

-- name: policy_remove
DELETE FROM policies
WHERE id = :id::bigint
  AND (:owner::text IS NULL OR set_by = :owner)
RETURNING set_by, channel;

-- name: policy_of_channel
SELECT set_by
FROM policies
WHERE channel = :channel
  AND set_by <> :author;

-- name: policy_unknown_tokens
SELECT name
FROM unnest(:tokens::text[]) AS named(name)
WHERE name <> '*'
  AND NOT EXISTS (SELECT FROM tokens t WHERE t.name = named.name AND t.revoked_at IS NULL)
LIMIT 1;

-- The lock is of the connection, because jobs are made in several transactions.
-- name: policy_lock
SELECT pg_try_advisory_lock(hashtextextended('wavetune policy', 0)) AS is_locked;

-- name: policy_lock_wait
SELECT pg_advisory_lock(hashtextextended('wavetune policy', 0));

-- name: policy_unlock
SELECT pg_advisory_unlock(hashtextextended('wavetune policy', 0));

-- Of the owner's jobs with the run: what leases that were granted today measured, what unfinished
-- ones are estimated to need still, and how many were made in the last hour, without those that
-- were retried. Jobs of the server itself were made when policies had no owners.
-- name: policy_usage
WITH day AS (
    SELECT date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS began
), recent AS MATERIALIZED (
    SELECT COALESCE(recent_config_us(), :config_us::float8) AS us
), used AS (
    SELECT j.id, j.kernel, j.configs, j.budget_device_ms, j.run, j.created_at, j.finished_at,
           COALESCE(sum(l.device_us + l.opening_us), 0) AS us,
           COALESCE(sum(l.device_us + l.opening_us) FILTER (WHERE l.granted_at >= day.began), 0)
               AS today_us
    FROM day
    JOIN jobs j ON (j.run = :run::text
                    OR starts_with(j.run, CASE :run WHEN '' THEN '' ELSE :run || '/' END
                                          || 'retried-'))
             AND j.submitted_by IN (:owner, '(server)')
             AND (j.finished_at IS NULL
                  OR j.finished_at >= least(day.began, now() - interval '1 hour'))
    LEFT JOIN leases l ON l.job_id = j.id
    GROUP BY j.id
)
SELECT COALESCE(sum(today_us), 0)::float8 AS used_us,
       COALESCE(sum(greatest(least(configs * COALESCE(kernel_config_us(kernel),
                                                      (SELECT us FROM recent)),
                                   budget_device_ms * 1000.0) - us, 0))
                FILTER (WHERE finished_at IS NULL), 0)::float8 AS open_us,
       count(*) FILTER (WHERE run = :run AND created_at > now() - interval '1 hour') AS lately
FROM used;

-- Gives launches the jobs of their kernels and keys that exist, whoever made them.
-- name: policy_attach
UPDATE captured_launches l
SET job_id = found.job, not_queued = NULL
FROM (SELECT w.id, j.job
      FROM captured_launches w
      CROSS JOIN LATERAL job_of_capture(w.kernel, w.key_digest,
                                        environment_hardware(w.environment)) j
      WHERE w.build IS NOT NULL
        AND w.job_id IS NULL) found
WHERE l.id = found.id;

-- Captured keys that the policy covers and that have a build and no job, those that were not tried
-- yet first. Of launches that would have the same job, the first. Triton and torch are those of the
-- build. Where another launch of the key waits for a builder, the job waits for a build with the
-- code of both.
-- name: policy_captures
WITH recent AS MATERIALIZED (
    SELECT COALESCE(recent_config_us(), :config_us::float8) AS us
), open AS (
    SELECT DISTINCT ON (l.kernel, l.key_digest, hardware) l.*,
           environment_hardware(l.environment) AS hardware
    FROM policy_states p
    JOIN captured_launches l ON l.build IS NOT NULL AND l.job_id IS NULL
    JOIN tokens t ON t.id = l.token_id AND p.tokens && ARRAY[t.name, '*']
                 AND t.revoked_at IS NULL
    WHERE p.id = :policy::bigint AND p.acts
      AND image_fits(l.image, p.images)
      AND (p.configs_max IS NULL OR l.configs <= p.configs_max)
      AND NOT EXISTS (SELECT
                      FROM captured_launches w
                      WHERE w.function_id = l.function_id AND w.key_digest = l.key_digest
                        AND w.triton = l.triton AND w.arch = l.arch
                        AND w.build IS NULL AND w.refused IS NULL)
      AND (:is_listed::boolean OR l.decided_at IS NULL
           OR l.decided_at < now() - make_interval(secs => :retry_s::int))
    ORDER BY l.kernel, l.key_digest, hardware, l.id
), first AS (
    SELECT *
    FROM open
    ORDER BY decided_at NULLS FIRST, id
    LIMIT :limit::bigint
)
SELECT l.id, 'capture' AS source, f.name, l.kernel, l.key, l.image, l.configs, s.space,
       'default' AS tag, :regime::text AS regime, l.not_queued, NULL AS budget_ms,
       (l.hardware || jsonb_strip_nulls(jsonb_build_object('triton', b.triton, 'torch', b.torch)))
           ::json AS environment,
       l.configs * COALESCE(kernel_config_us(l.kernel), (SELECT us FROM recent)) / 1e6
           AS device_seconds
FROM first l
JOIN captured_functions f ON f.id = l.function_id
JOIN spaces s ON s.digest = l.space_digest
JOIN builds b ON b.digest = l.build
WHERE NOT EXISTS (SELECT FROM job_of_capture(l.kernel, l.key_digest, l.hardware))
ORDER BY l.decided_at NULLS FIRST, l.id;

-- name: policy_decided
UPDATE captured_launches
SET job_id = :job::bigint, not_queued = :refused, decided_at = now()
WHERE id = :id::bigint;

-- The captured keys of the wanted functions, first those whose jobs can be made now, then others
-- without a job; of a key's launches the one that is least far, refused ones last.
-- name: policy_tunable
SELECT l.id, l.function, l.name, l.kernel, l.key, l.state, l.job, l.why, s.space,
       (l.hardware || jsonb_strip_nulls(jsonb_build_object('triton', COALESCE(b.triton, l.triton),
                                                           'torch', b.torch)))::json AS environment,
       count(*) OVER () AS n
FROM (SELECT DISTINCT ON (f.id, o.key_digest, o.triton, c.hardware)
             o.id, f.id AS function, f.name, o.key, o.triton, o.build, o.space_digest, c.hardware,
             c.kernel, c.state, c.job, COALESCE(c.reason, c.refused) AS why
      FROM captured_functions f
      JOIN captured_launches o ON o.function_id = f.id
      JOIN capture_states c ON c.id = o.id
      WHERE (f.id::text = ANY (:functions::text[]) OR image_fits(f.name, ARRAY[:name::text]))
        AND (:keys::json IS NULL
             OR EXISTS (SELECT
                        FROM json_array_elements(:keys) k(key)
                        WHERE o.key::jsonb @> k.key::jsonb))
      ORDER BY f.id, o.key_digest, o.triton, c.hardware, c.state = 'refused',
               c.state NOT IN ('waiting', 'building'), o.id) l
LEFT JOIN builds b ON b.digest = l.build
LEFT JOIN spaces s ON s.digest = l.space_digest
                  AND l.state NOT IN ('waiting', 'building', 'refused')
ORDER BY l.job IS NOT NULL, s.digest IS NULL, l.id
LIMIT :limit::bigint;
