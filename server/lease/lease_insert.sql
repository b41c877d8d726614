-- The leases of jobs that were just submitted, and those of jobs whose priority was raised
-- (server/lease/lease_insert.c).

-- name: leases_insert_screen
INSERT INTO leases (job_id, stage, round, process, configs, remaining, device_class, priority,
    config_us)
SELECT j.id, 'screen', 0, 0, l.configs, l.configs, j.device_class, j.priority,
    CASE WHEN l.is_large THEN j.config_us END
FROM unnest(:job::bigint[], :configs::int8multirange[], :is_large::boolean[])
     WITH ORDINALITY AS l(job, configs, is_large, n)
JOIN jobs j ON j.id = l.job
ORDER BY l.n;

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
)
UPDATE leases l
SET priority = below.priority
FROM below
WHERE l.id = below.id;
