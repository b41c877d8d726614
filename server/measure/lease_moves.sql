-- Moves configs between the screen leases of a job: the last ones of a held lease to an idle
-- device, and warm-start configs, or the first batch of a search with them, to the lease that is
-- granted first. No statement here waits for a lock.

-- Of the held leases whose last configs the device may take over, the one with the most predicted
-- device time left; it is locked. The predicted time of a config is the mean device time of the
-- lease's measurements, or, once there are :configs_min of them, the time since the grant divided
-- by their number, if that is longer, because compiling and checking take time, too. Before there
-- are any, it is the time that configs of the kernel took in earlier jobs. The job's row is locked,
-- too, so that the job cannot end before the new lease can be cancelled with it.
-- name: leases_split_choose
SELECT l.id, l.remaining
FROM agents a
JOIN devices d ON d.agent = a.id AND d.device = :device
JOIN environments e ON e.id = d.environment_id
CROSS JOIN LATERAL (VALUES (e.hardware_digest), (nullif(e.digest, e.hardware_digest)))
    AS c(class)
CROSS JOIN LATERAL (
    SELECT h.id, h.remaining, predicted.us
    FROM leases h
    JOIN jobs j ON j.id = h.job_id
    CROSS JOIN LATERAL (
        SELECT (SELECT sum(upper(r) - lower(r)) FROM unnest(h.remaining) r) AS configs,
               (SELECT sum(o) FROM unnest(h.outcomes) o) AS measured,
               extract(epoch FROM now() - h.granted_at) * 1e6 AS age_us) f
    CROSS JOIN LATERAL (
        SELECT f.configs
               * GREATEST(CASE WHEN f.measured > 0 THEN h.device_us / f.measured
                               ELSE h.config_us END,
                          CASE WHEN f.measured >= :configs_min::bigint THEN f.age_us / f.measured
                               ELSE 0 END) AS us) predicted
    WHERE h.device_class = c.class
      AND h.state = 'held'
      AND h.config_us IS NOT NULL
      AND h.expires_at > now()
      AND j.state = 'running'
      AND j.stage = h.stage
      AND f.age_us > 1000 * :age_ms::bigint
      AND f.configs >= :split_configs_min::bigint
      AND predicted.us > :left_us::bigint
      AND (h.agent <> a.id OR h.device <> d.device)
      AND may_measure(d.runs, j.regime)
      AND (a.trusted_keys IS NULL
           OR (j.is_plain AND is_signed(j.kernel, a.trusted_keys)
               AND (j.build IS NULL OR is_signed(j.build, a.trusted_keys))))
    ORDER BY predicted.us DESC, h.id
    LIMIT 1
    FOR UPDATE OF h SKIP LOCKED
    FOR SHARE OF j SKIP LOCKED) l
WHERE a.id = :agent
ORDER BY l.us DESC, l.id
LIMIT 1;

-- A lease of its own for configs that were taken out of another lease.
-- name: leases_split
INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, owner_id,
                    priority, config_us)
SELECT job_id, stage, round, process, :tail::int8multirange, :tail, device_class, owner_id,
       priority, CASE WHEN :is_large::boolean THEN config_us END
FROM leases
WHERE id = :lease::bigint
RETURNING device_class, owner_id, priority, job_id, id;

-- The job's open screen leases with some of these configs; they are locked.
-- name: lease_gather
SELECT l.id, l.remaining * :wanted::int8multirange AS taken, l.remaining <@ :wanted AS is_all
FROM leases l
WHERE l.job_id = :job::bigint
  AND is_open(l.state)
  AND l.stage = 'screen'
  AND l.remaining && :wanted
ORDER BY l.id
FOR UPDATE OF l SKIP LOCKED;

-- What all leases of a job have; those that are open are locked and may change, but for those that
-- another transaction has locked.
-- name: lease_batch
SELECT l.id, l.remaining, o.id IS NOT NULL AS may_change
FROM leases l
LEFT JOIN (SELECT id
           FROM leases
           WHERE job_id = :job::bigint
             AND is_open(state)
           ORDER BY id
           FOR UPDATE SKIP LOCKED) o ON o.id = l.id
WHERE l.job_id = :job
ORDER BY l.id;
