-- Leases of configs that were lost or handed back, and configs that are given up.

-- Held leases that have expired; they are locked.
-- name: leases_expire
WITH gone AS MATERIALIZED (
    SELECT *
    FROM held_leases
    WHERE expires_at < now()
    ORDER BY expires_at, id
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED)
SELECT gone.*, e.hardware_digest
FROM gone
JOIN jobs j ON j.id = gone.job_id
JOIN environments e ON e.id = j.environment_id
ORDER BY gone.id;

-- The same of those that were due at :since_ms or later. The index leases_due has an entry of each
-- lease that ended until no transaction is older than that: a search from its start would pass over
-- all of them.
-- name: leases_expire_due
WITH gone AS MATERIALIZED (
    SELECT *
    FROM held_leases
    WHERE due_at >= to_timestamp(:since_ms::bigint / 1000.0::float8)
      AND due_at < now()
      AND expires_at < now()
    ORDER BY due_at
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED)
SELECT gone.*, e.hardware_digest
FROM gone
JOIN jobs j ON j.id = gone.job_id
JOIN environments e ON e.id = j.environment_id
ORDER BY gone.id;

-- Leases that were due and had been renewed are due again at their new end.
-- name: leases_defer
UPDATE leases
SET due_at = expires_at
WHERE id IN (
    SELECT id
    FROM leases
    WHERE state = 'held'
      AND due_at >= to_timestamp(:since_ms::bigint / 1000.0::float8)
      AND due_at < now()
      AND expires_at >= now()
    ORDER BY due_at
    LIMIT :limit::bigint
    FOR UPDATE SKIP LOCKED)
RETURNING id;

-- Leases that last longer than a lease time, because the clock was stepped back.
-- name: leases_shorten
UPDATE leases
SET expires_at = clock_timestamp() + :lease_ms::bigint * interval '1 ms',
    due_at = clock_timestamp() + :lease_ms::bigint * interval '1 ms'
WHERE id IN (
    SELECT id
    FROM leases
    WHERE state = 'held'
      AND expires_at > clock_timestamp() + :lease_ms::bigint * interval '1 ms'
    ORDER BY id
    FOR UPDATE);

-- The leases that an agent held when it was restarted; they are locked.
-- name: leases_reclaim
WITH gone AS MATERIALIZED (
    SELECT *
    FROM held_leases
    WHERE agent = :agent
    ORDER BY id
    FOR UPDATE)
SELECT gone.*, e.hardware_digest
FROM gone
JOIN jobs j ON j.id = gone.job_id
JOIN environments e ON e.id = j.environment_id
ORDER BY gone.id;

-- Counts a loss for the config that was being measured, and adds an event to each job. The jobs are
-- locked in the order of their ids.
-- name: leases_note_losses
WITH gone AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY job_id ORDER BY id)::int AS k
    FROM unnest(:id::bigint[], :job_id::bigint[], :epoch::bigint[], :agent::text[],
                :device::text[], :config::bigint[])
         AS r(id, job_id, epoch, agent, device, config)),
loss AS (
    INSERT INTO losses (job_id, config, lease_id, epoch, agent, device)
    SELECT job_id, config, id, epoch, agent, device
    FROM gone
    WHERE config IS NOT NULL),
counted AS MATERIALIZED (
    SELECT jobs.id, n.n
    FROM (SELECT job_id, count(*)::int AS n FROM gone GROUP BY job_id) n
    JOIN jobs ON jobs.id = n.job_id
    ORDER BY jobs.id
    FOR NO KEY UPDATE OF jobs),
counter AS (
    UPDATE jobs
    SET events = events + counted.n
    FROM counted
    WHERE jobs.id = counted.id
    RETURNING jobs.id, jobs.events - counted.n AS before)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT gone.job_id, counter.before + gone.k, 'lease_lost',
       json_build_object('lease', gone.id::text, 'epoch', gone.epoch, 'agent', gone.agent,
                         'device', gone.device, 'config', gone.config)
FROM gone
JOIN counter ON counter.id = gone.job_id;

-- All losses of configs, including those that were just stored.
-- name: lease_loss_facts
SELECT r.n, count(*) AS losses, count(DISTINCT (o.agent, o.device)) AS devices,
       array_agg(DISTINCT o.agent) AS agents,
       (SELECT count(DISTINCT a.id)
        FROM jobs j
        JOIN environments e ON e.digest = j.device_class OR e.hardware_digest = j.device_class
        JOIN devices d ON d.environment_id = e.id
        JOIN agents a ON a.id = d.agent
        WHERE j.id = r.job
          AND COALESCE(a.drain_reason, d.drain_reason) IS NULL
          AND may_measure(d.runs, j.regime)
          AND agent_is_live(a, :live_ms::bigint)
          AND NOT EXISTS (SELECT FROM losses x
                          WHERE x.job_id = r.job AND x.config = r.config AND x.agent = a.id))
           AS other_agents
FROM unnest(:job_id::bigint[], :config::bigint[]) WITH ORDINALITY AS r(job, config, n)
JOIN losses o ON o.job_id = r.job AND o.config = r.config
GROUP BY r.n, r.job, r.config;

-- name: lease_avoid
UPDATE leases
SET avoid_agents = :agents::text[]
WHERE id = :lease::bigint;

-- A lease of its own for a config that was taken out of another lease. It is not granted to these
-- agents.
-- name: lease_set_apart
INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, owner_id,
                    priority, avoid_agents)
SELECT job_id, stage, round, process, :config::int8multirange, :config, device_class, owner_id,
       priority, :agents::text[]
FROM leases
WHERE id = :lease::bigint
RETURNING device_class, owner_id, priority, job_id, id;

-- Keeps why a lease is handed back. Its job gets an event for each reason that it has none of.
-- Reasons that differ in numbers only, as in how much memory is free, are the same.
-- name: lease_note_handed_back
WITH noted AS (
    UPDATE leases
    SET handed_back = left(:reason, 1000),
        handed_back_times = CASE WHEN without_numbers(handed_back)
                                      = without_numbers(left(:reason, 1000))
                                 THEN handed_back_times ELSE 0 END + 1
    WHERE id = :lease::bigint
    RETURNING id, job_id, epoch, agent, device, handed_back),
counter AS (
    UPDATE jobs
    SET events = events + 1
    FROM noted
    WHERE jobs.id = noted.job_id
      AND NOT EXISTS (SELECT
                      FROM job_events e
                      WHERE e.job_id = noted.job_id AND e.kind = 'handed_back'
                        AND without_numbers(e.detail ->> 'reason')
                            = without_numbers(noted.handed_back))
    RETURNING jobs.events, noted.*)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT job_id, events, 'handed_back',
       json_build_object('lease', id::text, 'epoch', epoch, 'agent', agent, 'device', device,
                         'reason', handed_back)
FROM counter;

-- A lease that is handed back because its device failed: a loss of the last config that its worker
-- did not survive, or of the one that was being measured.
-- name: lease_note_failed_device
INSERT INTO losses (job_id, config, lease_id, epoch, agent, device)
SELECT l.job_id, c.config, l.id, l.epoch, l.agent, l.device
FROM leases l
CROSS JOIN LATERAL (
    SELECT COALESCE((SELECT m.config
                     FROM measurements m
                     WHERE m.job_id = l.job_id AND m.lease_id = l.id AND m.epoch = l.epoch
                       AND m.seq > 0 AND NOT m.late AND m.outcome IN ('runtime', 'timeout')
                     ORDER BY m.seq DESC
                     LIMIT 1),
                    CASE WHEN l.current_config <@ l.remaining THEN l.current_config END)
        AS config) c
WHERE l.id = :lease::bigint
  AND c.config IS NOT NULL
ON CONFLICT (lease_id, epoch) DO NOTHING
RETURNING config;

-- Open leases that avoid every live agent that could measure them.
-- name: leases_unwanted
SELECT l.id, l.job_id
FROM leases l
JOIN jobs j ON j.id = l.job_id
JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE a.id <> ALL (l.avoid_agents)) AS willing
    FROM environments e
    JOIN devices d ON d.environment_id = e.id
    JOIN agents a ON a.id = d.agent
    WHERE (e.digest = l.device_class OR e.hardware_digest = l.device_class)
      AND COALESCE(a.drain_reason, d.drain_reason) IS NULL
      AND may_measure(d.runs, j.regime)
      AND (a.trusted_keys IS NULL
           OR (j.is_plain AND is_signed(j.kernel, a.trusted_keys)
               AND (j.build IS NULL OR is_signed(j.build, a.trusted_keys))))
      AND agent_is_live(a, :live_ms::bigint)) live
    ON live.n > 0 AND live.willing = 0
WHERE l.state = 'open' AND l.avoid_agents <> '{}'
ORDER BY l.id
LIMIT :limit::bigint;
