-- Moving jobs on (server/job/job_store.c).

-- Compare and set: the jobs that are in the state, and where it is stated in the stage and round.
-- With an event, whose kind is the new state or, where that is the old one, "stage".
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

-- Jobs of which nothing is left to measure in their stage. Where it may be any of all jobs,
-- jobs_ready_all says which: one plan does not serve a few known jobs and all of them. Open and held
-- leases are looked for at once, by the job: for each of them alone there is an index that the
-- planner may read as a whole (see is_open). They are counted to one, because NOT EXISTS may become
-- a join that reads the leases of all jobs. The LIMIT keeps the jobs apart from their budgets, which
-- are summed over all leases of those that are ready alone.
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
          AND a.last_seen > now() - :live_ms::bigint * interval '1 ms')
    END AS devices
FROM (
    SELECT *
    FROM jobs j
    WHERE j.id = ANY (:jobs::bigint[])
      AND j.state IN ('queued', 'running')
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

-- name: job_store_winner
INSERT INTO winners (job_id, config, config_values, verdict)
VALUES (:job, :config, :config_values::json, :verdict::json);

-- Of a job that has none.
-- name: job_set_likely
UPDATE jobs
SET likely = :likely::bigint[]
WHERE id = :job
  AND likely = '{}';

-- name: job_space
SELECT s.space
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
WHERE j.id = :job;

-- What a search of the job's space reads.
-- name: job_search_input
SELECT s.space::json AS space, j.key, e.identity AS environment, j.likely
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
JOIN environments e ON e.id = j.environment_id
WHERE j.id = :job;
