-- What jobs took, and what open jobs will take, so that the summary of the fleet (server/fleet/)
-- need not read the leases of all jobs. Reads `leases` once.

-- As the summary writes times: milliseconds since 1970.
CREATE FUNCTION epoch_ms(at timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (extract(epoch FROM at) * 1000)::bigint;

-- How many configs a job measures when nothing stops it.
CREATE FUNCTION job_configs(job jobs) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN LEAST(job.configs, COALESCE(job.search_trials, job.configs));

-- Sums over the jobs that ended on a day (UTC). Each connection counts in one of 16 rows, because
-- transactions that change the same row wait for each other's commit.
CREATE TABLE job_usage (
    day date NOT NULL,
    kernel bytea NOT NULL,
    tag text NOT NULL,
    run text NOT NULL,
    owner text NOT NULL, -- the name of the token that submitted the jobs; '': it is not known
    part int NOT NULL,
    done bigint NOT NULL, -- jobs
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    configs bigint NOT NULL,
    measurements bigint NOT NULL,
    device_us bigint NOT NULL, -- with the time of opening kernels
    done_configs bigint NOT NULL, -- of configs and device_us, the part of jobs that are done
    done_us bigint NOT NULL,
    first_at timestamptz NOT NULL, -- when the first of the jobs was submitted
    last_at timestamptz NOT NULL, -- when the last of them ended
    PRIMARY KEY (day, kernel, tag, run, owner, part)
) WITH (fillfactor = 50);

-- Under which run a job is counted. A job that was tried again has a run of its own, RUN/retried-ID,
-- because its successor has its identity: all of these count under RUN/retried.
CREATE FUNCTION job_usage_run(run text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN regexp_replace(run, '/retried-[0-9]+$', '/retried');

-- Counts a job that has ended (times = 1), or counts it no longer (-1). What a lease measures after
-- that, because it was not cancelled yet, is not counted.
CREATE FUNCTION job_usage_add(job jobs, times int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO job_usage AS u
    SELECT (job.finished_at AT TIME ZONE 'UTC')::date, job.kernel, job.tag,
           job_usage_run(job.run), COALESCE(job.submitted_by, ''), pg_backend_pid() % 16,
           times * (job.state = 'done')::int, times * (job.state = 'failed')::int,
           times * (job.state = 'cancelled')::int, times * job_configs(job),
           times * t.measurements, times * t.us,
           CASE WHEN job.state = 'done' THEN times * job_configs(job) ELSE 0 END,
           CASE WHEN job.state = 'done' THEN times * t.us ELSE 0 END,
           job.created_at, job.finished_at
    FROM (SELECT COALESCE(sum(device_us + opening_us), 0)::bigint AS us,
                 COALESCE(sum(outcomes[1] + outcomes[2] + outcomes[3] + outcomes[4] + outcomes[5]
                              + outcomes[6]), 0)::bigint AS measurements
          FROM leases
          WHERE job_id = job.id) t
    ON CONFLICT (day, kernel, tag, run, owner, part) DO UPDATE
        SET done = u.done + excluded.done,
            failed = u.failed + excluded.failed,
            cancelled = u.cancelled + excluded.cancelled,
            configs = u.configs + excluded.configs,
            measurements = u.measurements + excluded.measurements,
            device_us = u.device_us + excluded.device_us,
            done_configs = u.done_configs + excluded.done_configs,
            done_us = u.done_us + excluded.done_us,
            first_at = LEAST(u.first_at, excluded.first_at),
            last_at = GREATEST(u.last_at, excluded.last_at);
END;

CREATE FUNCTION job_usage_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL THEN -- it is made open again, or gets another run
        PERFORM job_usage_add(OLD, -1);
    END IF;
    IF NEW.finished_at IS NOT NULL THEN
        PERFORM job_usage_add(NEW, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_usage_note AFTER UPDATE ON jobs
    FOR EACH ROW WHEN (OLD.finished_at IS DISTINCT FROM NEW.finished_at OR OLD.run <> NEW.run)
    EXECUTE FUNCTION job_usage_note();

-- Counts all jobs again.
CREATE FUNCTION job_usage_rebuild() RETURNS void LANGUAGE sql
BEGIN ATOMIC
    DELETE FROM job_usage;
    INSERT INTO job_usage
    SELECT (j.finished_at AT TIME ZONE 'UTC')::date, j.kernel, j.tag, job_usage_run(j.run),
           COALESCE(j.submitted_by, ''), 0,
           count(*) FILTER (WHERE j.state = 'done'), count(*) FILTER (WHERE j.state = 'failed'),
           count(*) FILTER (WHERE j.state = 'cancelled'), sum(job_configs(j)),
           COALESCE(sum(t.measurements), 0), COALESCE(sum(t.us), 0),
           COALESCE(sum(job_configs(j)) FILTER (WHERE j.state = 'done'), 0),
           COALESCE(sum(t.us) FILTER (WHERE j.state = 'done'), 0),
           min(j.created_at), max(j.finished_at)
    FROM jobs j
    LEFT JOIN (SELECT job_id, sum(device_us + opening_us) AS us,
                      sum(outcomes[1] + outcomes[2] + outcomes[3] + outcomes[4] + outcomes[5]
                          + outcomes[6]) AS measurements
               FROM leases
               GROUP BY job_id) t ON t.job_id = j.id
    WHERE j.finished_at IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5;
END;
-- After the trigger, whose making waits for all writes of jobs.
SELECT job_usage_rebuild();

-- The jobs that have not ended, with the device time that they took so far and will still take: a
-- config is expected to take as long as those of done jobs of the kernel, else of all kernels, else
-- what was predicted when the job was submitted. ahead_us: what the hardware will have measured
-- when the job is done.
CREATE VIEW open_jobs AS
WITH pace AS MATERIALIZED (
    SELECT kernel, sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us
    FROM job_usage
    GROUP BY kernel
), mean AS MATERIALIZED (
    SELECT sum(done_us)::float8 / nullif(sum(done_configs), 0)::float8 AS config_us
    FROM job_usage
)
SELECT o.*,
       sum(o.left_us) OVER (PARTITION BY o.device_class ORDER BY -o.priority, o.id) AS ahead_us
FROM (
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
    WHERE j.state IN ('queued', 'running')
) o;
