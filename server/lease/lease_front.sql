-- The first open lease of each queue (lease_front.h). Row comparisons begin a search of the index
-- leases_open within it.

-- The first open lease of a queue from a place on.
-- name: lease_front_next
SELECT job_id, id
FROM leases
WHERE device_class = :class::bytea
  AND owner_id = :owner::int
  AND -priority = -:priority::int
  AND state = 'open'
  AND (job_id, id) >= (:job::bigint, :lease::bigint)
ORDER BY job_id, id
LIMIT 1;

-- The first open lease of every queue that has one, but of the queues of a class and an owner only
-- the :priorities of the highest priority. Each step begins at the next queue, or at the next
-- owner's.
-- name: lease_fronts_survey
WITH RECURSIVE first AS (
    (SELECT device_class, owner_id, priority, job_id, id, 1 AS n
     FROM leases
     WHERE state = 'open'
     ORDER BY device_class, owner_id, -priority, job_id, id
     LIMIT 1)
    UNION ALL
    SELECT next.*,
           CASE WHEN (next.device_class, next.owner_id) = (first.device_class, first.owner_id)
                THEN first.n + 1 ELSE 1 END
    FROM first
    CROSS JOIN LATERAL (
        SELECT device_class, owner_id, priority, job_id, id
        FROM leases
        WHERE state = 'open'
          AND (device_class, owner_id, -priority)
              > (first.device_class, first.owner_id,
                 CASE WHEN first.n < :priorities::int THEN -first.priority ELSE 10000 END)
        ORDER BY device_class, owner_id, -priority, job_id, id
        LIMIT 1) next)
SELECT f.device_class, f.owner_id, f.priority, f.job_id, f.id,
       queue_waited_ms(f.device_class, f.owner_id, f.priority, f.job_id) AS waited_ms
FROM first f;

-- The same for one class.
-- name: lease_fronts_survey_class
WITH RECURSIVE first AS (
    (SELECT owner_id, priority, job_id, id, 1 AS n
     FROM leases
     WHERE state = 'open' AND device_class = :class::bytea
     ORDER BY owner_id, -priority, job_id, id
     LIMIT 1)
    UNION ALL
    SELECT next.*, CASE WHEN next.owner_id = first.owner_id THEN first.n + 1 ELSE 1 END
    FROM first
    CROSS JOIN LATERAL (
        SELECT owner_id, priority, job_id, id
        FROM leases
        WHERE state = 'open'
          AND device_class = :class::bytea
          AND (owner_id, -priority)
              > (first.owner_id,
                 CASE WHEN first.n < :priorities::int THEN -first.priority ELSE 10000 END)
        ORDER BY owner_id, -priority, job_id, id
        LIMIT 1) next)
SELECT :class::bytea AS device_class, f.owner_id, f.priority, f.job_id, f.id,
       queue_waited_ms(:class::bytea, f.owner_id, f.priority, f.job_id) AS waited_ms
FROM first f;
