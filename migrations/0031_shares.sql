-- Owners of jobs: names of the tokens that submitted them. Within a priority leases are granted by what each owner's leases used,
-- divided by its weight (server/lease/fair_share.h). `used_us` and `leases` halve every ten minutes and hold for used_at; `day_us` is
-- of one day (UTC). Owner 0 has the jobs without a submitter.
CREATE TABLE owners (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    device_seconds_per_day double precision CHECK (device_seconds_per_day > 0), -- null: no limit
    used_us double precision NOT NULL DEFAULT 0,
    leases double precision NOT NULL DEFAULT 0,
    used_at timestamptz NOT NULL DEFAULT now(),
    day date NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    day_us double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
INSERT INTO owners (id, name) OVERRIDING SYSTEM VALUE VALUES (0, '');

CREATE FUNCTION share_decayed(amount double precision, at timestamptz) RETURNS double precision LANGUAGE sql STABLE
AS $$
SELECT CASE WHEN amount > 1e-6 AND at > now() - interval '10 hours' -- else there might be an underflow
            THEN amount * power(0.5::double precision, GREATEST(extract(epoch FROM now() - at)::double precision, 0) / 600)
            ELSE 0 END
$$;

ALTER TABLE jobs ADD COLUMN owner_id int NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN owner_id int NOT NULL DEFAULT 0;
INSERT INTO owners (name)
    SELECT DISTINCT submitted_by FROM jobs WHERE state IN ('queued', 'running') AND submitted_by IS NOT NULL ORDER BY 1;
UPDATE jobs SET owner_id = o.id FROM owners o WHERE o.name = jobs.submitted_by AND jobs.state IN ('queued', 'running');
UPDATE leases SET owner_id = j.owner_id FROM jobs j WHERE j.id = leases.job_id AND j.owner_id <> 0 AND leases.state IN ('open', 'held');

-- A queue has the open leases of one device class, owner and priority, in the order in which they are granted.
DROP INDEX leases_open;
CREATE INDEX leases_open ON leases (device_class, owner_id, (-priority), job_id, id) WHERE state = 'open';

-- Since when each queue has waited for a lease to be granted, if later than its first job was submitted.
CREATE TABLE lease_queues (
    device_class bytea NOT NULL,
    owner_id int NOT NULL,
    priority int NOT NULL,
    waiting_since timestamptz NOT NULL,
    PRIMARY KEY (device_class, owner_id, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- How long a queue has waited, whose first open lease is of the job.
CREATE FUNCTION queue_waited_ms(class bytea, owner int, of_priority int, job bigint) RETURNS bigint LANGUAGE sql STABLE
AS $$
SELECT (extract(epoch FROM now() - GREATEST((SELECT created_at FROM jobs WHERE id = job),
                                            (SELECT waiting_since FROM lease_queues
                                             WHERE device_class = class AND owner_id = owner AND priority = of_priority))) * 1000)::bigint
$$;
