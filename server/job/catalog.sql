-- What submitted jobs refer to (server/job/catalog.c).

-- name: job_kernels_load
SELECT r.n, k.manifest
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(hash, n)
JOIN kernels k ON k.hash = r.hash;

-- Newest first.
-- name: job_builds_load
SELECT digest, head
FROM builds
WHERE kernel = :kernel
ORDER BY id DESC
LIMIT 256;

-- Mean device time of a config in the screens of each kernel's newest jobs, which are read as by
-- winners_past.
-- name: kernels_pace
SELECT r.n, (sum(l.device_us) / nullif(sum(l.n), 0))::bigint AS config_us
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(kernel, n)
CROSS JOIN LATERAL (
    SELECT id
    FROM jobs
    WHERE (kernel, id) >= (r.kernel, 0) AND (kernel, id) <= (r.kernel, 9223372036854775807)
      AND state = 'done'
    ORDER BY kernel DESC, id DESC
    LIMIT :limit
) j
CROSS JOIN LATERAL (
    SELECT sum(device_us) AS device_us, sum((SELECT sum(o) FROM unnest(outcomes) o)) AS n
    FROM leases
    WHERE job_id = j.id AND stage = 'screen'
) l
GROUP BY r.n;

-- A kernel's newest jobs are read as a range of one key in the order of jobs_kernel_done. By the id
-- alone, they would be searched among the newest jobs of all kernels. The LIMIT keeps the lookup of
-- a winner from becoming a join that reads all winners.
-- name: winners_past
SELECT r.n, j.key, e.digest AS environment, w.config_values
FROM unnest(:kernel::bytea[]) WITH ORDINALITY AS r(kernel, n)
CROSS JOIN LATERAL (
    SELECT id, key, environment_id
    FROM jobs
    WHERE (kernel, id) >= (r.kernel, 0) AND (kernel, id) <= (r.kernel, 9223372036854775807)
      AND state = 'done'
    ORDER BY kernel DESC, id DESC
    LIMIT :limit
) j
CROSS JOIN LATERAL (SELECT config_values FROM winners WHERE job_id = j.id LIMIT 1) w
JOIN environments e ON e.id = j.environment_id
ORDER BY r.n, j.id DESC;

-- The warm-start configs of a job that has none.
-- name: job_set_likely
UPDATE jobs
SET likely = :likely::bigint[]
WHERE id = :job
  AND likely = '{}';
