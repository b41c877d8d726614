-- The ledger of poison: configs, compiled objects and kernels that lost leases, for all jobs on the
-- same hardware (server/poison/).

-- What a loss is evidence against, once it was judged: digests of the config, of its kernel and,
-- where the server knows it, of the compiled object, in this order. The losses before this
-- migration are judged by their jobs alone, as they were.
ALTER TABLE losses
    ADD COLUMN judged_at timestamptz,
    ADD COLUMN subjects bytea[] NOT NULL DEFAULT '{}';
UPDATE losses SET judged_at = now();
CREATE INDEX losses_unjudged ON losses (id) WHERE judged_at IS NULL;
CREATE INDEX losses_at ON losses (at);
CREATE INDEX losses_subjects ON losses USING gin (subjects) WITH (fastupdate = off);

CREATE TABLE poison (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope text NOT NULL CHECK (scope IN ('config', 'object', 'kernel')),
    subject bytea NOT NULL CHECK (octet_length(subject) = 32),
    device_class bytea NOT NULL CHECK (octet_length(device_class) = 32),
    environment_id bigint NOT NULL REFERENCES environments (id), -- of the newest job: for people
    kernel bytea NOT NULL REFERENCES kernels (hash), -- of an object: in which it was lost last
    build bytea, -- null: the agents compile from source
    object bytea CHECK (octet_length(object) = 32), -- of an object
    config_values json, -- of a config and an object: parameters in the space's order
    reason text NOT NULL,
    evidence json NOT NULL, -- the newest losses that count: [{"job", "lease", "epoch", …}]
    at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz, -- null: jobs that were open then may still have leases with it
    released_at timestamptz, -- null: it is in force
    released_by text,
    released_by_id bigint,
    release_reason text,
    last_loss bigint, -- of a released one: it and earlier losses are no evidence any more
    CHECK ((scope = 'object') = (object IS NOT NULL)),
    CHECK ((scope = 'kernel') = (config_values IS NULL)),
    CHECK ((released_at IS NOT NULL) = (last_loss IS NOT NULL)),
    CHECK ((released_at IS NOT NULL) = (release_reason IS NOT NULL))
);
CREATE UNIQUE INDEX poison_in_force ON poison (subject) WHERE released_at IS NULL;
CREATE INDEX poison_released ON poison (subject) WHERE released_at IS NOT NULL;
CREATE INDEX poison_of_hardware ON poison (device_class) WHERE released_at IS NULL;
CREATE INDEX poison_unsettled ON poison (id) WHERE released_at IS NULL AND settled_at IS NULL;
