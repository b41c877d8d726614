-- Prepares the table `measurements`, which may have a hundred million rows, for partitions by ranges
-- of jobs: nothing here reads or rewrites it. The next migration makes it the first partition.

-- Releases look at the jobs of one place, whatever their state is.
CREATE INDEX jobs_place ON jobs (tag, regime, environment_id);

-- The function is replaced in the next migration, which then needs no lock of `jobs`.
CREATE FUNCTION measurement_partition_needed()
    RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN NULL;
END $$;
CREATE TRIGGER measurement_partition_needed AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION measurement_partition_needed();

-- Which table stores the measurements of the jobs from first_job on and before end_job.
CREATE TABLE measurement_partitions (
    first_job bigint PRIMARY KEY,
    end_job bigint NOT NULL,
    partition text NOT NULL, -- ranges that were emptied may share one
    made_at timestamptz NOT NULL DEFAULT now(),
    emptied_at timestamptz, -- then all was removed but the finals of winners that may be served
    CHECK (end_job > first_job)
);

-- The first range ends behind the jobs that may be submitted until the next migration is applied:
-- as many as in the last day.
DO $$
DECLARE
    end_job bigint := (SELECT last_value FROM pg_sequences
                       WHERE schemaname = current_schema() AND sequencename = 'jobs_id_seq');
BEGIN
    end_job := COALESCE(end_job, 0) + 1
        + GREATEST(1000, (SELECT count(*) FROM jobs WHERE created_at > now() - interval '1 day'));
    INSERT INTO measurement_partitions (first_job, end_job, partition)
    VALUES (0, end_job, 'measurements_0');
    EXECUTE format('ALTER TABLE measurements ADD CONSTRAINT measurements_range
                    CHECK (job_id >= 0 AND job_id < %s) NOT VALID', end_job);
END $$;
