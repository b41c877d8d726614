-- How many leases are open and held, for /metrics.

-- Two rows. An open lease has no time of its own: it is as old as its job's stage, whose begin is in
-- an event, except for the first. Open leases are grouped before jobs are read: a job has many.
-- name: leases_count
WITH waiting AS MATERIALIZED (
    SELECT job_id, count(*) AS n
    FROM leases
    WHERE state = 'open'
    GROUP BY job_id),
since AS (
    SELECT w.n, COALESCE(CASE WHEN j.stage <> 'screen' OR j.round > 0 THEN (
                                  SELECT e.at
                                  FROM job_events e
                                  WHERE e.job_id = w.job_id AND e.kind = 'stage'
                                  ORDER BY e.event DESC
                                  LIMIT 1)
                         END, j.created_at) AS at
    FROM waiting w
    JOIN jobs j ON j.id = w.job_id)
SELECT 'open' AS state, COALESCE(sum(n), 0)::bigint AS n,
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(at)), 0), 0)::float8
           AS oldest_s
FROM since
UNION ALL
SELECT 'held', count(*),
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(granted_at)), 0), 0)::float8
FROM leases
WHERE state = 'held';
