-- Advancing jobs, and flagging winners (server/job/jobs.c).

-- Compare and set: changes those of the jobs that are in the given state and, if given, in the
-- stage and round. Adds an event, whose kind is the new state, or "stage" if the state stays the
-- same.
-- name: job_change_state
WITH due AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE id = ANY (:jobs::bigint[])
      AND state = :from_state::job_state
      AND (:from_stage::stage IS NULL OR (stage = :from_stage::stage AND round = :from_round::int))
    ORDER BY id
    FOR NO KEY UPDATE
), changed AS (
    UPDATE jobs j
    SET state = :to_state::job_state,
        stage = COALESCE(:to_stage::stage, j.stage),
        round = COALESCE(:to_round::int, j.round),
        reason = :reason,
        cancelled_by = :author,
        cancelled_by_id = :author_id::bigint,
        finished_at = CASE
            WHEN :to_state::job_state IN ('done', 'failed', 'cancelled') THEN now()
        END,
        events = events + 1
    FROM due
    WHERE j.id = due.id
    RETURNING j.id, j.events
), event AS (
    INSERT INTO job_events (job_id, event, kind, detail)
    SELECT id, events, CASE WHEN :to_stage::stage IS NULL THEN :to_state::text ELSE 'stage' END,
        :detail::json
    FROM changed
)
SELECT id
FROM changed;

-- Jobs that have nothing left to measure in their stage. If any job may be one of them,
-- jobs_ready_all finds them first, because no single plan suits both a few known jobs and all jobs.
-- Open and held leases are looked up together, by the job: for each state alone there is an index
-- that the planner may scan completely (see is_open). They are counted up to one, because NOT
-- EXISTS may become a join that reads the leases of all jobs. LIMIT 1 enforces that each job is
-- looked up by its id: with many ended jobs the planner would read all open ones. Because of the LIMIT budgets are summed only for jobs that are ready.
-- name: jobs_ready
SELECT j.id, j.state, j.stage, j.round, j.baseline, j.seed, j.default_config, j.search_strategy,
    j.search_trials, j.final_devices, j.config_us, e.hardware_digest,
    j.budget_device_ms * 1000 AS budget_us, b.*,
    j.budget_device_ms IS NOT NULL
        AND EXISTS (SELECT FROM leases WHERE job_id = j.id AND state = 'cancelled') AS is_cut,
    CASE WHEN j.search_strategy IS NOT NULL THEN (
        SELECT count(*)
        FROM environments o
        JOIN devices d ON d.environment_id = o.id
        JOIN agents a ON a.id = d.agent
        WHERE (o.digest = j.device_class OR o.hardware_digest = j.device_class)
          AND COALESCE(a.drain_reason, d.drain_reason) IS NULL
          AND agent_is_live(a, :live_ms::bigint))
    END AS devices,
    (SELECT manifest ->> 'reference' IS NOT NULL AND manifest ->> 'cases' IS NULL
     FROM kernels
     WHERE hash = j.kernel) AS has_reference
FROM (
    SELECT j.*
    FROM (SELECT DISTINCT unnest(:jobs::bigint[]) AS id) asked
    CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = asked.id LIMIT 1) j
    WHERE j.state IN ('queued', 'running')
      AND (SELECT count(*)
           FROM (SELECT
                 FROM leases l
                 WHERE l.job_id = j.id AND l.state IN ('open', 'held')
                 LIMIT 1) l) = 0
    ORDER BY j.id
    LIMIT :limit
) j
JOIN environments e ON e.id = j.environment_id
CROSS JOIN LATERAL job_spending(CASE WHEN j.budget_device_ms IS NOT NULL THEN j.id END) b
ORDER BY j.id;

-- name: jobs_ready_all
SELECT COALESCE(array_agg(id), '{}') AS jobs
FROM (
    SELECT j.id
    FROM jobs j
    WHERE j.state IN ('queued', 'running')
      AND (SELECT count(*)
           FROM (SELECT
                 FROM leases l
                 WHERE l.job_id = j.id AND l.state IN ('open', 'held')
                 LIMIT 1) l) = 0
    ORDER BY j.id
    LIMIT :limit
) ready;

-- may_change: nothing was measured yet, and there were fewer than `most` baselines.
-- name: job_baseline
SELECT j.baseline <> :baseline::bigint AS is_changed,
    j.state = 'running' AND j.stage = 'screen'
        AND NOT EXISTS (SELECT
                        FROM measurements m
                        WHERE m.job_id = j.id AND NOT m.late AND m.outcome = 'correct')
        AND (SELECT count(*)
             FROM job_events v
             WHERE v.job_id = j.id AND v.kind = 'stage'
               AND v.detail ->> 'baseline_before' IS NOT NULL) < :most::bigint AS may_change,
    j.id, s.space::json AS space, j.key, e.identity AS environment, e.hardware_digest, j.kernel,
    j.build, j.device_class, j.baseline, j.baseline_from, j.default_config
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
JOIN environments e ON e.id = j.environment_id
WHERE j.id = :job::bigint;

-- name: job_leases_lock
SELECT id, state
FROM leases
WHERE job_id = :job::bigint AND state IN ('open', 'held')
ORDER BY id
FOR UPDATE;

-- A post of a measurement locks its lease first, so none is stored meanwhile.
-- name: job_change_baseline
WITH changed AS (
    UPDATE jobs j
    SET baseline = :baseline::bigint,
        baseline_from = :baseline_from::text,
        default_config = :default_config::bigint,
        events = events + 1
    WHERE id = :job::bigint
      AND baseline = :failed::bigint
      AND state = 'running' AND stage = 'screen'
      AND NOT EXISTS (SELECT
                      FROM measurements m
                      WHERE m.job_id = j.id AND NOT m.late AND m.outcome = 'correct')
    RETURNING id, events
)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT id, events, 'stage', :detail::json
FROM changed
RETURNING job_id;

-- name: job_store_winner
INSERT INTO winners (job_id, config, config_values, verdict, agreement, interpreted, others)
VALUES (:job, :config, :config_values::json, :verdict::json, :agreement, :interpreted::boolean,
        :others::json);

-- If the default itself disagrees with the baseline, those that agree with the baseline disagree
-- with the default.
-- name: job_store_disagreeing
WITH measured AS MATERIALIZED (
    SELECT a.*, a.config = COALESCE(j.default_config, j.baseline) AS is_default
    FROM jobs j
    CROSS JOIN job_agreement(:job::bigint) a
    WHERE j.id = :job::bigint
), found AS (
    SELECT range_agg(int8range(config, config + 1)) AS configs
    FROM measured
    WHERE interpreted = 'disagrees'
       OR CASE WHEN EXISTS (SELECT FROM measured WHERE is_default AND agreement = 'disagrees')
               THEN agreement IN ('bitwise', 'agrees')
               ELSE agreement = 'disagrees' END
)
UPDATE jobs
SET disagreeing = found.configs
FROM found
WHERE id = :job::bigint
  AND found.configs IS NOT NULL;

-- name: job_space
SELECT s.space
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
WHERE j.id = :job;

-- The input of a search of the job's space.
-- name: job_search_input
SELECT s.space::json AS space, j.key, e.identity AS environment, j.likely
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
JOIN environments e ON e.id = j.environment_id
WHERE j.id = :job;

-- Gives a queued search other warm-start configs than it was submitted with, and returns what its
-- first batch follows from. No row: it has these, or has begun.
-- name: job_search_warm
UPDATE jobs j
SET likely = :likely::bigint[]
FROM spaces s, environments e
WHERE j.id = :job::bigint
  AND j.state = 'queued'
  AND j.likely <> :likely
  AND s.digest = j.space_digest
  AND e.id = j.environment_id
RETURNING s.space::json AS space, j.key, e.identity AS environment, j.baseline, j.seed,
          j.default_config, j.search_strategy, j.search_trials;

-- Both statements of flags contain the condition for winners that a job may flag: those of jobs
-- that were done when it was submitted, of the same kernel, key, environment, tag and regime.

-- Whether there is a winner that may be flagged, and how many samples of the job's finals were
-- quarantined and not measured again. They are found through their leases, because a job may have a
-- million measurements.
-- name: flag_facts
SELECT EXISTS (
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
        JOIN measurements q ON q.job_id = :job::bigint AND q.lease_id = l.id
        WHERE l.job_id = :job::bigint AND l.stage = 'final' AND q.quarantined AND q.late
          AND NOT EXISTS (
              SELECT
              FROM measurements m
              WHERE m.job_id = :job::bigint
                AND (m.stage, m.round, m.process, m.config)
                    = (q.stage, q.round, q.process, q.config)
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
