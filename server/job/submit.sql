-- What jobs are submitted for, and storing them (server/job/submit.c, server/job/job_store.c).

-- name: job_kernels_load
SELECT r.n, k.manifest
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(hash, n)
JOIN kernels k ON k.hash = r.hash;

-- Newest first.
-- name: job_builds_load
SELECT digest, head
FROM builds
WHERE kernel = :kernel
ORDER BY id DESC
LIMIT 256;

-- Those of the jobs that are stored.
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

-- The rows are inserted in the order of their identity, so that two posts of the same jobs cannot
-- deadlock. Event 1 of a job is that it was queued.
-- name: jobs_insert
WITH input AS MATERIALIZED (
    SELECT i.*, e.id AS environment_id
    FROM unnest(:kernel::bytea[], :key_digest::bytea[], :space_digest::bytea[],
                :environment::bytea[], :tag::text[], :run::text[], :regime::text[],
                :purpose::text[], :is_plain::boolean[], :key::text[],
                :priority::int[], :budget_ms::bigint[], :build::bytea[],
                :device_class::bytea[], :seed::bigint[], :baseline::bigint[],
                :baseline_from::text[], :default_config::bigint[], :configs::bigint[],
                :config_us::bigint[], :search_strategy::text[], :search_trials::int[],
                :final_devices::int[], :likely::text[])
         WITH ORDINALITY
         AS i(kernel, key_digest, space_digest, environment, tag, run, regime, purpose, is_plain,
              key, priority, budget_ms, build, device_class, seed, baseline, baseline_from,
              default_config, configs, config_us, search_strategy, search_trials, final_devices,
              likely, n)
    JOIN environments e ON e.digest = i.environment
), stored AS (
    INSERT INTO jobs AS j (kernel, key, key_digest, space_digest, environment_id, tag, run, regime,
        purpose, is_plain, priority, budget_device_ms, build, device_class, seed, baseline,
        baseline_from, default_config, configs, config_us, search_strategy, search_trials,
        final_devices, likely, events, submitted_by, submitted_by_id)
    SELECT kernel, key::json, key_digest, space_digest, environment_id, tag, run, regime, purpose,
        is_plain, priority, nullif(budget_ms, 0), build, device_class, seed, baseline,
        baseline_from, default_config, configs, config_us, search_strategy, search_trials,
        final_devices, likely::bigint[], 1, :author::text, :author_id::bigint
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
