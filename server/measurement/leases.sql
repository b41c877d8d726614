-- Leases of configs. Every transaction locks its leases in the order of their ids, or skips those that
-- are locked, and locks jobs after leases: none waits for a lease while it holds a job's row.

-- Changes leases that are locked and in from_state (struct lease_change), and returns their places
-- (lease_front.h). The last condition makes the plan probe the index even when it was made while
-- the table was small.
-- name: lease_change_state
UPDATE leases l
SET state = c.to_state::lease_state,
    current_config = CASE WHEN c.to_state = 'held' THEN l.current_config END,
    configs = l.configs + c.more,
    remaining = l.remaining - c.less + c.more,
    is_split = l.is_split OR c.is_split,
    posts = l.posts + c.posts,
    fruitless = GREATEST(l.fruitless - c.fruitless_less, 0),
    device_us = l.device_us + c.device_us,
    epoch_device_us = l.epoch_device_us + c.device_us,
    opening_us = l.opening_us + c.opening_us,
    epoch_opening_us = l.epoch_opening_us + c.opening_us,
    outcomes = ARRAY[l.outcomes[1] + c.correct, l.outcomes[2] + c.compile,
                     l.outcomes[3] + c.runtime, l.outcomes[4] + c.correctness,
                     l.outcomes[5] + c.timeout, l.outcomes[6] + c.constraints]
FROM unnest(:lease::bigint[], :from_state::text[], :to_state::text[], :less::int8multirange[],
            :more::int8multirange[], :is_split::boolean[], :posts::int[], :fruitless_less::int[],
            :device_us::bigint[], :opening_us::bigint[], :correct::int[], :compile::int[],
            :runtime::int[], :correctness::int[], :timeout::int[], :constraints::int[])
     AS c(lease, from_state, to_state, less, more, is_split, posts, fruitless_less, device_us,
          opening_us, correct, compile, runtime, correctness, timeout, constraints)
WHERE l.id = c.lease AND l.state = c.from_state::lease_state
  AND l.id = ANY (:lease::bigint[])
RETURNING l.device_class, l.owner_id, l.priority, l.job_id, l.id;

-- Locks a lease and reads the columns that decisions need.
-- name: lease_lock
SELECT l.id, l.job_id, l.owner_id, l.stage, l.round, l.process, l.state, l.epoch, l.agent, l.device,
       l.configs, l.remaining, l.epoch_opening_us, l.fruitless, l.posts, l.handed_back,
       l.handed_back_times, j.baseline, j.best_ratio, j.regime,
       j.budget_device_ms IS NOT NULL AS has_budget, e.hardware_digest
FROM leases l
JOIN jobs j ON j.id = l.job_id
JOIN environments e ON e.id = j.environment_id
WHERE l.id = :lease::bigint
FOR UPDATE OF l;

-- The same for a post of results, which does not read why the lease was handed back.
-- name: results_lock
SELECT l.id, l.job_id, l.owner_id, l.stage, l.round, l.process, l.state, l.epoch, l.agent, l.device,
       l.configs, l.remaining, l.epoch_opening_us, l.fruitless, l.posts, NULL AS handed_back,
       NULL AS handed_back_times, j.baseline, j.best_ratio, j.regime,
       j.budget_device_ms IS NOT NULL AS has_budget, e.hardware_digest
FROM leases l
JOIN jobs j ON j.id = l.job_id
JOIN environments e ON e.id = j.environment_id
WHERE l.id = :lease::bigint
FOR UPDATE OF l;

-- For 60 s a final with is_reserved is granted only to devices that have no final of the job.
-- Returns the first lease of each job.
-- name: leases_insert
WITH made AS (
    INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, owner_id,
                        priority, config_us, apart_until)
    SELECT j.id, :stage::stage, :round::int, r.process, r.configs, r.configs, j.device_class,
           j.owner_id, j.priority,
           CASE WHEN r.is_large THEN j.config_us END,
           CASE WHEN r.is_reserved THEN now() + interval '60 s' END
    FROM unnest(:job::bigint[], :process::int[], :configs::int8multirange[], :is_large::boolean[],
                :is_reserved::boolean[])
         WITH ORDINALITY AS r(job, process, configs, is_large, is_reserved, n)
    JOIN jobs j ON j.id = r.job
    ORDER BY r.n
    RETURNING device_class, owner_id, priority, job_id, id)
SELECT device_class, owner_id, priority, job_id, min(id) AS id
FROM made
GROUP BY device_class, owner_id, priority, job_id;

-- Returns the first lease of each job, of those that were raised.
-- name: jobs_raise_leases
WITH below AS MATERIALIZED (
    SELECT l.id, j.priority
    FROM leases l
    JOIN jobs j ON j.id = l.job_id
    WHERE l.job_id = ANY (:jobs::bigint[])
      AND l.state IN ('open', 'held')
      AND l.priority < j.priority
    ORDER BY l.id
    FOR UPDATE OF l
), raised AS (
    UPDATE leases l
    SET priority = below.priority
    FROM below
    WHERE l.id = below.id
    RETURNING l.device_class, l.owner_id, l.priority, l.job_id, l.id
)
SELECT device_class, owner_id, priority, job_id, min(id) AS id
FROM raised
GROUP BY device_class, owner_id, priority, job_id;

-- The measurements that the server writes have negative seqs and no body, so that they never
-- collide with an agent's. Those of configs that were not run have no agent.
-- name: lease_give_up
WITH written AS (
    INSERT INTO measurements (job_id, lease_id, epoch, seq, config, stage, round, process, agent,
                              device, outcome, detail, late)
    SELECT l.job_id, l.id, l.epoch, -1 - c.config, c.config, l.stage, l.round, l.process,
           CASE WHEN :was_run::boolean THEN l.agent END,
           CASE WHEN :was_run::boolean THEN l.device END, 'runtime', :detail, false
    FROM leases l
    CROSS JOIN LATERAL (
        SELECT generate_series(lower(r), upper(r) - 1) AS config
        FROM unnest(:given::int8multirange) r) c
    WHERE l.id = :lease::bigint
    RETURNING job_id),
counter AS (
    UPDATE jobs
    SET events = events + 1
    WHERE id = (SELECT job_id FROM leases WHERE id = :lease)
    RETURNING id, events)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT counter.id, counter.events, 'poisoned',
       json_build_object('lease', :lease::text, 'config', :config::bigint,
                         'configs', (SELECT count(*) FROM written), 'detail', :detail,
                         'poison', :poison::bigint::text)
FROM counter;

-- name: job_budget
SELECT j.id, j.final_devices, j.budget_device_ms * 1000 AS budget_us, b.spent_us, b.opening_us,
       b.openings, b.measured, b.final_us, b.final_processes
FROM jobs j
CROSS JOIN LATERAL job_spending(CASE WHEN j.budget_device_ms IS NOT NULL THEN j.id END) b
WHERE j.id = :job::bigint AND j.stage = 'screen' AND j.state IN ('queued', 'running');

-- Open screen leases of a job that is still in its screen; they are locked.
-- name: leases_cancel_over_budget
SELECT l.id, l.job_id, l.state
FROM leases l
WHERE l.job_id = (SELECT id FROM jobs
                  WHERE id = :job::bigint AND stage = 'screen' AND state IN ('queued', 'running'))
  AND is_open(l.state)
  AND l.stage = 'screen'
ORDER BY l.id
FOR UPDATE OF l;

-- name: lease_note_cancelled
WITH counter AS (
    UPDATE jobs
    SET events = events + 1
    WHERE id = :job::bigint
    RETURNING id, events)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT id, events, 'budget', json_build_object('cancelled_leases', :leases::bigint)
FROM counter;

-- Open and held leases of jobs that have ended; they are locked. There are two statements, because
-- one plan does not suit both a few known jobs and all of them.
-- name: leases_cancel_ended
WITH ended AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE id = ANY (:jobs::bigint[]) AND state IN ('done', 'failed', 'cancelled'))
SELECT l.id, l.job_id, l.state
FROM leases l
JOIN ended ON ended.id = l.job_id
WHERE l.state IN ('open', 'held')
ORDER BY l.id
FOR UPDATE OF l;

-- The indexes of open and of held leases give the jobs: most leases are in other states.
-- name: leases_cancel_all_ended
WITH ended AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE id IN (SELECT job_id FROM leases WHERE state = 'open'
                 UNION
                 SELECT job_id FROM leases WHERE state = 'held')
      AND state IN ('done', 'failed', 'cancelled'))
SELECT l.id, l.job_id, l.state
FROM leases l
JOIN ended ON ended.id = l.job_id
WHERE l.state IN ('open', 'held')
ORDER BY l.id
FOR UPDATE OF l;
