-- Leases: the claimable pieces of jobs, who held them, and which of them were lost. Lock order:
-- leases by id, then jobs. No transaction waits for a lease while it holds a job's row.

CREATE TYPE lease_state AS ENUM ('open', 'held', 'done', 'cancelled');

-- Leases. A lease that comes back grants only the configs that no accepted measurement covers yet.
CREATE TABLE leases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES jobs (id),
    stage stage NOT NULL, round integer NOT NULL, process integer NOT NULL,
    configs int8multirange NOT NULL CHECK (NOT isempty(configs)),
    remaining int8multirange NOT NULL, -- those that no accepted measurement covers
    state lease_state NOT NULL DEFAULT 'open',
    epoch bigint NOT NULL DEFAULT 0, -- grows with each grant, and fences former holders
    device_class bytea NOT NULL, -- the job's, like the priority: grants are ordered by them
    priority integer NOT NULL,
    avoid_agents text[] NOT NULL DEFAULT '{}', -- they lost a config of it, and do not get it again
    agent text, -- the one that holds it, or held it last
    device text, nonce text, granted_at timestamptz,
    expires_at timestamptz, -- in no index, so that renewals are HOT updates
    current_config bigint, -- which the agent stated that it measures
    posts integer NOT NULL DEFAULT 0, -- how often results were taken: tells a stale snapshot
    fruitless integer NOT NULL DEFAULT 0, -- grants in a row that measured nothing
    device_us bigint NOT NULL DEFAULT 0,
    -- Accepted measurements by outcome, in the order of the type.
    outcomes integer[] NOT NULL DEFAULT '{0,0,0,0,0,0}',
    config_us bigint CHECK (config_us > 0), -- of a screen lease that is worth splitting; else null
    is_split boolean NOT NULL DEFAULT false, -- its holder was granted more than `remaining` states
    apart_until timestamptz, -- until then for devices without a final of the job; null: for any
    -- That it was granted to. No foreign key: a grant would look it up, and tokens are never
    -- removed.
    token_id bigint,
    -- What opening the kernel took: its inputs, its reference, the baseline's warm-up; device_us is
    -- without it. In all epochs, and of it the most that was stated of the present one.
    opening_us bigint NOT NULL DEFAULT 0, epoch_opening_us bigint NOT NULL DEFAULT 0,
    owner_id int NOT NULL DEFAULT 0, -- the job's
    epoch_device_us bigint NOT NULL DEFAULT 0, -- of device_us: in the present epoch
    -- When a held lease is looked at: as it was granted, its end. Later ends are in no index, so
    -- that renewals are HOT updates; a lease that was renewed until after due_at gets its new end.
    due_at timestamptz,
    handed_back text, -- the reason that was given last
    handed_back_times integer NOT NULL DEFAULT 0, -- how often in a row, numbers aside
    CHECK (remaining <@ configs),
    CHECK (state <> 'held' OR (agent IS NOT NULL AND device IS NOT NULL AND nonce IS NOT NULL
                               AND expires_at IS NOT NULL AND NOT isempty(remaining))),
    CHECK (state <> 'open' OR NOT isempty(remaining)),
    CHECK (state <> 'done' OR isempty(remaining))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);
-- A queue has the open leases of one device class, owner and priority, in the order in which they
-- are granted. Every column is ascending, so that a search may begin at a place in it
-- (server/lease/lease_front.h): a comparison of rows needs one direction.
CREATE INDEX leases_open ON leases (device_class, owner_id, (-priority), job_id, id)
    WHERE state = 'open';
CREATE UNIQUE INDEX leases_held ON leases (agent, nonce) WHERE state = 'held';
CREATE INDEX leases_avoiding ON leases (id) WHERE state = 'open' AND avoid_agents <> '{}';
CREATE INDEX leases_splittable ON leases (device_class)
    WHERE state = 'held' AND config_us IS NOT NULL;
CREATE INDEX leases_job ON leases (job_id, state);
-- No statement that does not state due_at may use it: the planner takes any index of held leases
-- for them, and this one has an entry of each lease that ended while a transaction is forgotten.
CREATE INDEX leases_due ON leases (due_at) WHERE state = 'held' AND due_at IS NOT NULL;

-- Since when each queue has waited for a lease to be granted, if later than its first job was
-- submitted.
CREATE TABLE lease_queues (
    device_class bytea NOT NULL, owner_id int NOT NULL, priority int NOT NULL,
    waiting_since timestamptz NOT NULL,
    PRIMARY KEY (device_class, owner_id, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- Leases that agents lost, each with the config that was being measured.
CREATE TABLE losses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES jobs (id),
    config bigint NOT NULL,
    lease_id bigint NOT NULL REFERENCES leases (id),
    epoch bigint NOT NULL, agent text NOT NULL, device text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), judged_at timestamptz,
    -- What a judged loss is evidence against: digests of the config, of its kernel and, where the
    -- server knows it, of the compiled object, in this order.
    subjects bytea[] NOT NULL DEFAULT '{}',
    UNIQUE (lease_id, epoch)
);
CREATE INDEX losses_config ON losses (job_id, config);
CREATE INDEX losses_unjudged ON losses (id) WHERE judged_at IS NULL;
CREATE INDEX losses_at ON losses (at);
CREATE INDEX losses_subjects ON losses USING gin (subjects) WITH (fastupdate = off);

-- The ledger of poison: configs, compiled objects and kernels that lost leases, for all jobs on the
-- same hardware (server/poison/).
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
    released_by text, released_by_id bigint, release_reason text,
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
