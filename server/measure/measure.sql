-- How leases of configs are granted and renewed (grants.h).

-- Grants the first open lease that the device may have, of the first of the given queues that has
-- one (lease_front.h): of a queue that of the oldest job, so that an owner's jobs end in the order
-- in which they were submitted. Grants none to a nonce that holds a lease, and none to a drained
-- agent or device. A device may have leases of two classes: those of its hardware, and in older
-- databases those of its whole environment. Each queue is searched from its front. The queues are
-- read in their order, so that the search ends at the first lease; and the inner LIMIT is a number,
-- so that the planner reads the index in order. No device gets a lease of a regime that it does not
-- run. An agent with trusted keys gets only code that one of them signed. No agent gets a lease that
-- avoids it. Until apart_until no device gets a final of a job if it holds, or has completed,
-- another final of that job. The UPDATE does not check again that the lease is open, because the
-- subquery locked it.
-- name: lease_take
UPDATE leases
SET state = 'held',
    epoch = epoch + 1,
    agent = :agent,
    device = :device,
    nonce = :nonce,
    token_id = :token::bigint,
    granted_at = now(),
    expires_at = clock_timestamp() + :lease_ms::bigint * interval '1 ms',
    due_at = clock_timestamp() + :lease_ms::bigint * interval '1 ms',
    current_config = NULL,
    is_split = false,
    fruitless = fruitless + 1,
    epoch_device_us = 0,
    epoch_opening_us = 0
WHERE id = (
    SELECT l.id
    FROM unnest(:queue_classes::bytea[], :queue_owners::int[], :queue_priorities::int[],
                :queue_jobs::bigint[], :queue_leases::bigint[])
         WITH ORDINALITY AS f(class, owner, priority, job, lease, n)
    JOIN agents a ON a.id = :agent
    JOIN devices d ON d.agent = a.id AND d.device = :device
    JOIN environments e ON e.id = d.environment_id AND f.class IN (e.hardware_digest, e.digest)
    CROSS JOIN LATERAL (
        SELECT o.id
        FROM leases o
        WHERE o.device_class = f.class
          AND o.owner_id = f.owner
          AND -o.priority = -f.priority
          AND o.state = 'open'
          AND (o.job_id, o.id) >= (f.job, f.lease)
          AND NOT o.avoid_agents @> ARRAY[a.id]
          AND (SELECT may_measure(d.runs, j.regime)
                      AND (a.trusted_keys IS NULL
                           OR j.is_plain AND is_signed(j.kernel, a.trusted_keys)
                              AND (j.build IS NULL OR is_signed(j.build, a.trusted_keys)))
               FROM jobs j
               WHERE j.id = o.job_id)
          AND (o.apart_until IS NULL OR o.apart_until < now()
               OR NOT EXISTS (SELECT FROM leases x
                              WHERE x.job_id = o.job_id
                                AND x.stage = 'final'
                                AND x.state IN ('held', 'done')
                                AND x.agent = a.id AND x.device = d.device))
        ORDER BY o.job_id, o.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED) l
    WHERE a.drain_reason IS NULL
      AND d.drain_reason IS NULL
      AND NOT EXISTS (SELECT FROM leases h
                      WHERE h.agent = :agent AND h.nonce = :nonce AND h.state = 'held')
    ORDER BY f.n
    LIMIT 1);

-- Whether no device of this hardware would get a lease now: none is open in its queues from their
-- fronts on, and this device holds none that could be split for another one.
-- name: lease_hardware_is_idle
SELECT NOT EXISTS (SELECT
                   FROM unnest(:queue_classes::bytea[], :queue_owners::int[],
                               :queue_priorities::int[], :queue_jobs::bigint[],
                               :queue_leases::bigint[]) AS f(class, owner, priority, job, lease)
                   CROSS JOIN LATERAL (
                       SELECT
                       FROM leases
                       WHERE device_class = f.class
                         AND owner_id = f.owner
                         AND -priority = -f.priority
                         AND state = 'open'
                         AND (job_id, id) >= (f.job, f.lease)
                       LIMIT 1) o)
       AND NOT EXISTS (SELECT FROM leases
                       WHERE device_class = :hardware_digest::bytea
                         AND state = 'held'
                         AND config_us IS NOT NULL
                         AND agent = :agent AND device = :device) AS is_idle;

-- The lease that a nonce of an agent holds, with the columns of its job that the answer to a grant
-- has. is_live: it has not expired and is held by this device.
-- name: lease_held
SELECT l.id, l.expires_at > now() AND l.device = :device AS is_live, l.granted_at = now() AS is_new,
       l.id::text AS lease, l.epoch, l.job_id AS job, l.remaining AS configs, l.stage, l.round,
       l.process, l.device_class, l.owner_id, l.priority,
       (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint AS expires_in_ms,
       l.config_us IS NOT NULL AS may_be_split,
       j.kernel, k.manifest, j.key, s.space, j.build, j.baseline, j.seed, j.regime, j.best_ratio,
       j.state AS job_state, j.search_strategy IS NOT NULL AS is_search,
       e.digest AS environment_digest, j.likely AS job_likely, j.final_devices,
       j.budget_device_ms IS NOT NULL AS has_budget,
       CASE WHEN a.trusted_keys IS NOT NULL THEN signatures_of(j.kernel) END AS signatures,
       CASE WHEN a.trusted_keys IS NOT NULL THEN
           CASE WHEN j.build IS NULL THEN '[]' ELSE signatures_of(j.build) END
       END AS build_signatures
FROM leases l
JOIN agents a ON a.id = l.agent
JOIN jobs j ON j.id = l.job_id
JOIN kernels k ON k.hash = j.kernel
JOIN spaces s ON s.digest = j.space_digest
JOIN environments e ON e.id = j.environment_id
WHERE l.agent = :agent AND l.nonce = :nonce AND l.state = 'held';

-- What a job has spent of its budget, and how many configs remain in its leases.
-- name: lease_budget
SELECT j.budget_device_ms * 1000 AS budget_us, b.spent_us, b.opening_us, b.openings, b.measured,
       b.final_us, b.final_processes,
       (SELECT sum(upper(r) - lower(r))
        FROM leases o, unnest(o.remaining) r
        WHERE o.job_id = j.id AND o.state IN ('open', 'held')) AS configs_left
FROM jobs j
CROSS JOIN LATERAL job_spending(j.id) b
WHERE j.id = :job::bigint;

-- No row: the lease is no longer held at this epoch. A lease that was split returns what remains.
-- name: leases_renew
UPDATE leases l
SET expires_at = clock_timestamp() + :lease_ms::bigint * interval '1 ms',
    current_config = h.config
FROM unnest(:task::bigint[], :epoch::bigint[], :config::bigint[]) AS h(task, epoch, config)
WHERE l.id = h.task AND l.epoch = h.epoch AND l.state = 'held'
  AND l.id = ANY (:task::bigint[])
RETURNING l.id, CASE WHEN l.is_split THEN l.remaining END AS remaining;
