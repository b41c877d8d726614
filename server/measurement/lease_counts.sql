-- How many leases are open and held, for /metrics.

-- One row. An open lease has no time of its own: it is as old as its job's stage, whose begin is in
-- an event, except for the first. Leases are grouped before jobs are read: a job has many. Leases
-- of jobs that have ended are about to be cancelled, and do not count.
-- name: leases_count
WITH counted AS MATERIALIZED (
    SELECT job_id, open, held, held_since
    FROM job_leases)
SELECT COALESCE(sum(c.open), 0)::bigint AS open, COALESCE(sum(c.held), 0)::bigint AS held,
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(s.open_since)), 0), 0)::float8
           AS oldest_open_s,
       COALESCE(GREATEST(extract(epoch FROM clock_timestamp() - min(c.held_since)), 0), 0)::float8
           AS oldest_held_s
FROM counted c
JOIN jobs j ON j.id = c.job_id
           AND j.state IN ('queued', 'running')
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.open > 0 THEN COALESCE(
               CASE WHEN j.stage <> 'screen' OR j.round > 0 THEN (
                        SELECT e.at
                        FROM job_events e
                        WHERE e.job_id = c.job_id AND e.kind = 'stage'
                        ORDER BY e.event DESC
                        LIMIT 1)
               END, j.created_at) END AS open_since) s;
