-- Jobs, the leases they are cut into, and what agents measured. Every state change is a compare-and-set; the checks and
-- unique indexes below hold what must never be true whatever the program does.
-- Lock order: leases by id, then jobs. Nothing waits for a lease while it holds a job's row.

CREATE TYPE job_state AS ENUM ('queued', 'running', 'done', 'failed', 'cancelled');
CREATE TYPE stage AS ENUM ('screen', 'halving', 'final');
CREATE TYPE lease_state AS ENUM ('open', 'held', 'done', 'cancelled');
CREATE TYPE outcome AS ENUM ('correct', 'compile', 'runtime', 'correctness', 'timeout', 'constraints');
CREATE TYPE runner AS ENUM ('build', 'python');

CREATE TABLE environments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    hardware_digest bytea NOT NULL CHECK (octet_length(hardware_digest) = 32),
    identity json NOT NULL
);

-- Whether an agent is live or lost follows from last_seen, draining from drain_reason: nothing else is stored.
CREATE TABLE agents (
    id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    boot text NOT NULL, -- nonce of the agent process: another one hands its leases back
    name text NOT NULL,
    version text NOT NULL,
    drain_reason text,
    enrolled_at timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now() -- in no index, so that heartbeats are HOT updates
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX agents_draining ON agents (id) WHERE drain_reason IS NOT NULL;

CREATE TABLE devices (
    agent text NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    device text NOT NULL,
    backend text NOT NULL,
    environment_id bigint NOT NULL REFERENCES environments (id),
    facts json,
    PRIMARY KEY (agent, device)
);
CREATE INDEX devices_environment ON devices (environment_id);

-- Shared by all jobs of a campaign. Text, not jsonb: the order of parameters means something.
CREATE TABLE spaces (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    space text NOT NULL
);

CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key json NOT NULL, -- members in the kernel's order
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32),
    space_digest bytea NOT NULL REFERENCES spaces (digest),
    environment_id bigint NOT NULL REFERENCES environments (id),
    tag text NOT NULL CHECK (tag <> ''),
    run text NOT NULL,
    state job_state NOT NULL DEFAULT 'queued',
    stage stage NOT NULL DEFAULT 'screen',
    round integer NOT NULL DEFAULT 0 CHECK (round >= 0),
    priority integer NOT NULL CHECK (priority BETWEEN -1000 AND 1000),
    budget_device_ms bigint CHECK (budget_device_ms > 0),
    baseline bigint NOT NULL CHECK (baseline >= 0),
    seed bigint NOT NULL,
    configs bigint NOT NULL CHECK (configs > 0),
    runner runner NOT NULL,
    build bytea, -- compiled code that this job runs; null: the agent compiles from source
    device_class bytea NOT NULL CHECK (octet_length(device_class) = 32), -- hardware digest; for python the environment's
    events integer NOT NULL DEFAULT 0, -- number of the newest event
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    UNIQUE (kernel, key_digest, space_digest, environment_id, tag, run),
    CHECK ((state IN ('done', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'failed') <= (reason IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX jobs_unfinished ON jobs (id) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_done ON jobs (environment_id, tag, kernel, key_digest, id) WHERE state = 'done';

CREATE TABLE job_events (
    job_id bigint NOT NULL REFERENCES jobs (id),
    event integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('queued', 'running', 'stage', 'lease_lost', 'poisoned', 'done', 'failed',
                                       'cancelled', 'budget', 'late')),
    at timestamptz NOT NULL DEFAULT now(),
    detail json NOT NULL,
    PRIMARY KEY (job_id, event)
);

-- A row is a claimable piece of a job. `remaining` is what no accepted measurement covers yet: a lease that comes back
-- hands out only that. The epoch grows with every grant and fences whoever held the lease before.
CREATE TABLE leases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES jobs (id),
    stage stage NOT NULL,
    round integer NOT NULL,
    process integer NOT NULL,
    configs int8multirange NOT NULL CHECK (NOT isempty(configs)),
    remaining int8multirange NOT NULL,
    state lease_state NOT NULL DEFAULT 'open',
    epoch bigint NOT NULL DEFAULT 0,
    device_class bytea NOT NULL, -- copied from the job, like the priority: what the grant orders by
    priority integer NOT NULL,
    avoid_agents text[] NOT NULL DEFAULT '{}', -- lost a config of this lease: never get it again
    agent text, -- who holds it, or held it last
    device text,
    nonce text,
    granted_at timestamptz,
    expires_at timestamptz, -- in no index, so that renewals are HOT updates
    current_config bigint,  -- what the agent said that it measures
    posts integer NOT NULL DEFAULT 0,     -- times results were taken: tells a stale snapshot
    fruitless integer NOT NULL DEFAULT 0, -- grants in a row that measured nothing
    device_us bigint NOT NULL DEFAULT 0,
    outcomes integer[] NOT NULL DEFAULT '{0,0,0,0,0,0}', -- accepted measurements by outcome, in the order of the type
    CHECK (remaining <@ configs),
    CHECK (state <> 'held' OR (agent IS NOT NULL AND device IS NOT NULL AND nonce IS NOT NULL AND expires_at IS NOT NULL
                               AND NOT isempty(remaining))),
    CHECK (state <> 'open' OR NOT isempty(remaining)),
    CHECK (state <> 'done' OR isempty(remaining))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX leases_open ON leases (device_class, priority DESC, id) WHERE state = 'open';
CREATE UNIQUE INDEX leases_held ON leases (agent, nonce) WHERE state = 'held';
CREATE INDEX leases_avoiding ON leases (id) WHERE state = 'open' AND avoid_agents <> '{}';
CREATE INDEX leases_job ON leases (job_id, state);

-- `late`: evidence that moves nothing, from a lease that had ended or of a config that was covered already.
CREATE TABLE measurements (
    id bigint GENERATED ALWAYS AS IDENTITY,
    job_id bigint NOT NULL,
    lease_id bigint NOT NULL REFERENCES leases (id),
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    body_digest bytea CHECK (octet_length(body_digest) = 32), -- null: the server wrote it (poisoned, given up)
    config bigint NOT NULL CHECK (config >= 0),
    stage stage NOT NULL,
    round integer NOT NULL,
    process integer NOT NULL,
    agent text,
    device text,
    outcome outcome NOT NULL,
    detail text,
    timer text,
    regime text,
    samples_us real[] NOT NULL DEFAULT '{}',
    baseline_us real[] NOT NULL DEFAULT '{}',
    ratio double precision, -- median of samples_us[i] / baseline_us[i]: the screen's rank
    clock_mhz double precision,
    compile_ms bigint,
    device_us bigint,
    vgprs integer,
    agprs integer,
    spills integer,
    lds_bytes integer,
    occupancy integer,
    late boolean NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, id),
    UNIQUE (lease_id, epoch, seq),
    CHECK ((seq > 0) = (body_digest IS NOT NULL)),
    CHECK (cardinality(samples_us) = cardinality(baseline_us)),
    CHECK ((outcome = 'correct') <= (cardinality(samples_us) > 0 AND ratio IS NOT NULL))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
-- No config counts twice in a process of a stage.
CREATE UNIQUE INDEX measurements_once ON measurements (job_id, stage, round, process, config) WHERE NOT late;

CREATE TABLE losses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL REFERENCES jobs (id),
    config bigint NOT NULL,
    lease_id bigint NOT NULL REFERENCES leases (id),
    epoch bigint NOT NULL,
    agent text NOT NULL,
    device text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (lease_id, epoch)
);
CREATE INDEX losses_config ON losses (job_id, config);

CREATE TABLE winners (
    job_id bigint PRIMARY KEY REFERENCES jobs (id),
    config bigint NOT NULL CHECK (config >= 0),
    config_values json NOT NULL, -- parameters in the space's order
    verdict json NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
