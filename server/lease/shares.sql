-- What the leases of each owner used (server/lease/shares.h).

-- Adds device time and ended leases. The rows are locked in the order of their ids.
-- name: owners_charge
WITH due AS MATERIALIZED (
    SELECT o.id, c.us, c.device_us, c.leases
    FROM unnest(:owner::int[], :us::bigint[], :device_us::bigint[], :leases::bigint[])
         AS c(owner, us, device_us, leases)
    JOIN owners o ON o.id = c.owner
    ORDER BY o.id
    FOR NO KEY UPDATE OF o)
UPDATE owners o
SET used_us = share_decayed(o.used_us, o.used_at) + due.us,
    leases = share_decayed(o.leases, o.used_at) + due.leases,
    used_at = now(),
    day = (now() AT TIME ZONE 'UTC')::date,
    day_us = CASE WHEN o.day = (now() AT TIME ZONE 'UTC')::date THEN o.day_us ELSE 0 END
             + due.device_us
FROM due
WHERE o.id = due.id;

-- name: owners_read
SELECT o.id, o.weight, share_decayed(o.used_us, o.used_at) AS used_us,
       share_decayed(o.leases, o.used_at) AS leases,
       COALESCE(o.day = (now() AT TIME ZONE 'UTC')::date
                AND o.day_us >= o.device_seconds_per_day * 1e6, false) AS is_quota_used,
       COALESCE(h.held, 0) AS held
FROM owners o
LEFT JOIN (SELECT owner_id, count(*) AS held
           FROM leases
           WHERE state = 'held'
           GROUP BY owner_id) h
     ON h.owner_id = o.id
ORDER BY o.id;

-- Queues that got leases. Other servers may have served them later.
-- name: lease_queues_store
INSERT INTO lease_queues AS q (device_class, owner_id, priority, waiting_since)
SELECT class, owner, priority, now() - waited_ms * interval '1 ms'
FROM unnest(:class::bytea[], :owner::int[], :priority::int[], :waited_ms::bigint[])
     AS s(class, owner, priority, waited_ms)
ORDER BY class, owner, priority
ON CONFLICT (device_class, owner_id, priority)
DO UPDATE SET waiting_since = GREATEST(q.waiting_since, excluded.waiting_since);

-- A new owner of jobs.
-- name: owners_add
INSERT INTO owners (name)
SELECT :author::text
WHERE NOT EXISTS (SELECT FROM owners WHERE name = :author::text)
ON CONFLICT (name) DO NOTHING;
