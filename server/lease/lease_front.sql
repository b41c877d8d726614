-- The first open lease of each class (lease_front.h). Row comparisons begin a search of the index
-- leases_open within it.

-- The first open lease of a class from a place on.
-- name: lease_front_next
SELECT priority, job_id, id
FROM leases
WHERE device_class = :class::bytea
  AND state = 'open'
  AND (-priority, job_id, id) >= (-:priority::int, :job::bigint, :lease::bigint)
ORDER BY -priority, job_id, id
LIMIT 1;

-- The first open lease of every class that has one. Each step begins at the next class.
-- name: lease_fronts_survey
WITH RECURSIVE first AS (
    (SELECT device_class, priority, job_id, id
     FROM leases
     WHERE state = 'open'
     ORDER BY device_class, -priority, job_id, id
     LIMIT 1)
    UNION ALL
    SELECT next.*
    FROM first
    CROSS JOIN LATERAL (
        SELECT device_class, priority, job_id, id
        FROM leases
        WHERE state = 'open'
          AND device_class > first.device_class
        ORDER BY device_class, -priority, job_id, id
        LIMIT 1) next)
SELECT *
FROM first;
