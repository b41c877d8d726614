-- What is served before an open job depends on the shares of the owners of jobs, which the summary
-- of the fleet knows (server/fleet/fleet_make.c). So the view of open jobs has no ahead_us, which was
-- by priority and age alone.
DROP VIEW open_jobs;

-- The jobs that have not ended, with the device time that they took so far and will still take: a
-- config is expected to take as long as those of done jobs of the kernel, else of all kernels, else
-- what was predicted when the job was submitted.
CREATE VIEW open_jobs AS
WITH pace AS MATERIALIZED (
    SELECT kernel, sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us
    FROM job_usage
    GROUP BY kernel
), mean AS MATERIALIZED (
    SELECT sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us
    FROM job_usage
)
SELECT j.id, j.kernel, j.tag, j.run, COALESCE(j.submitted_by, '') AS owner, j.state,
       j.created_at, j.device_class, j.priority, job_configs(j) AS configs,
       COALESCE(spent.measurements, 0) AS measurements, COALESCE(spent.us, 0) AS spent_us,
       pace.config_us IS NOT NULL AS is_known,
       GREATEST(0, LEAST(job_configs(j) * COALESCE(pace.config_us, (SELECT config_us FROM mean),
                                                   j.config_us::float8),
                         1000.0::float8 * j.budget_device_ms)
                   - COALESCE(spent.us, 0)) AS left_us
FROM jobs j
LEFT JOIN pace ON pace.kernel = j.kernel
CROSS JOIN LATERAL (
    SELECT sum(device_us + opening_us)::float8 AS us,
           sum(outcomes[1] + outcomes[2] + outcomes[3] + outcomes[4] + outcomes[5]
               + outcomes[6])::bigint AS measurements
    FROM leases
    WHERE job_id = j.id
      AND j.state = 'running') spent -- else no lease is read
WHERE j.state IN ('queued', 'running');
