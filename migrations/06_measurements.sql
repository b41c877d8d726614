-- What agents measured, in partitions by ranges of jobs, so that old measurements are removed by
-- dropping a table.

CREATE TYPE outcome AS ENUM (
    'correct', 'compile', 'runtime', 'correctness', 'timeout', 'constraints');

-- Measurements. Keys with job_id are unique in the whole table. (lease_id, epoch, seq) is unique in
-- each partition, and so in the whole table, because a lease belongs to one job. Leases are no
-- foreign key: the transaction that stores measurements holds the lease's row locked, and leases
-- are never deleted.
CREATE TABLE measurements (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY, job_id bigint NOT NULL,
    lease_id bigint NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL,
    body_digest bytea CHECK (octet_length(body_digest) = 32), -- null: the server wrote it
    config bigint NOT NULL CHECK (config >= 0), stage stage NOT NULL, round integer NOT NULL,
    process integer NOT NULL, agent text, device text, outcome outcome NOT NULL, detail text,
    timer text,
    regime text, -- the job's
    samples_us real[] NOT NULL DEFAULT '{}', baseline_us real[] NOT NULL DEFAULT '{}',
    ratio double precision, -- median of samples_us[i] / baseline_us[i]: the screen's rank
    clock_mhz double precision, compile_ms bigint, device_us bigint, vgprs integer, agprs integer,
    spills integer, lds_bytes integer, occupancy integer,
    -- Evidence that changes nothing: from a lease that had ended, or of a config that was covered.
    late boolean NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    conditions json, -- the state of the device meanwhile
    "end" text, -- why sampling ended
    quarantined boolean NOT NULL DEFAULT false,
    temperature_c real, -- of the device when it ended; null: it states none
    -- Whether it came when its lease was no longer its holder's, and was refused (409) but kept: a
    -- repetition of that post is refused, too. `late` alone does not tell it from a measurement
    -- that was accepted after its config had moved to another device.
    refused boolean NOT NULL DEFAULT false,
    PRIMARY KEY (job_id, id),
    CHECK ((seq > 0) = (body_digest IS NOT NULL)),
    CHECK (cardinality(samples_us) = cardinality(baseline_us)),
    CHECK ((outcome = 'correct') <= (cardinality(samples_us) > 0 AND ratio IS NOT NULL))
) PARTITION BY RANGE (job_id);
-- No config counts twice in a process of a stage.
CREATE UNIQUE INDEX measurements_once ON measurements (job_id, stage, round, process, config)
    WHERE NOT late;

-- The compiled code that was timed. Measurements are no foreign key, because removing a partition
-- would look up each of its rows: the transaction that stores an object stores its measurement, and
-- the function that removes measurements removes their objects.
CREATE TABLE measurement_objects (
    job_id bigint NOT NULL, measurement bigint NOT NULL,
    object bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (job_id, measurement)
);
CREATE INDEX measurement_objects_object ON measurement_objects (object);

-- Which table stores the measurements of the jobs from first_job on and before end_job.
CREATE TABLE measurement_partitions (
    first_job bigint PRIMARY KEY,
    end_job bigint NOT NULL,
    partition text NOT NULL, -- ranges that were emptied may share one
    made_at timestamptz NOT NULL DEFAULT now(),
    emptied_at timestamptz, -- then all was removed but the finals of winners that may be served
    CHECK (end_job > first_job)
);

-- When one of the servers with --keep-days collects next.
CREATE TABLE collection_due (
    at timestamptz NOT NULL,
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only)
);
