-- What jobs took, and what open jobs will take, so that the summary of the fleet (server/fleet/)
-- need not read the leases of all jobs.

-- Sums over the jobs that ended on a day (UTC). Each connection counts in one of 16 rows, because
-- transactions that change the same row wait for each other's commit.
CREATE TABLE job_usage (
    day date NOT NULL, kernel bytea NOT NULL, tag text NOT NULL, run text NOT NULL,
    owner text NOT NULL, -- the name of the token that submitted the jobs; '': it is not known
    part int NOT NULL,
    done bigint NOT NULL, -- jobs
    failed bigint NOT NULL, cancelled bigint NOT NULL, configs bigint NOT NULL,
    measurements bigint NOT NULL,
    device_us bigint NOT NULL, -- with the time of opening kernels
    done_configs bigint NOT NULL, -- of configs and device_us, the part of jobs that are done
    done_us bigint NOT NULL,
    first_at timestamptz NOT NULL, -- when the first of the jobs was submitted
    last_at timestamptz NOT NULL, -- when the last of them ended
    PRIMARY KEY (day, kernel, tag, run, owner, part)
) WITH (fillfactor = 50);
