-- Jobs, their events and their winners. Every change of a state is a compare-and-set; the checks
-- and unique indexes hold what must never be true, whatever the program does.

CREATE TYPE job_state AS ENUM ('queued', 'running', 'done', 'failed', 'cancelled');
CREATE TYPE stage AS ENUM ('screen', 'halving', 'final');
CREATE TYPE runner AS ENUM ('build', 'python');

-- Configuration spaces, each shared by all jobs of a campaign. They are text, not jsonb, because
-- the order of parameters means something.
CREATE TABLE spaces (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    space text NOT NULL
);

-- Jobs.
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key json NOT NULL, -- members in the kernel's order
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32),
    space_digest bytea NOT NULL REFERENCES spaces (digest),
    environment_id bigint NOT NULL REFERENCES environments (id),
    tag text NOT NULL CHECK (tag <> ''), run text NOT NULL,
    state job_state NOT NULL DEFAULT 'queued', stage stage NOT NULL DEFAULT 'screen',
    round integer NOT NULL DEFAULT 0 CHECK (round >= 0),
    priority integer NOT NULL CHECK (priority BETWEEN -1000 AND 1000),
    budget_device_ms bigint CHECK (budget_device_ms > 0),
    baseline bigint NOT NULL CHECK (baseline >= 0), seed bigint NOT NULL,
    configs bigint NOT NULL CHECK (configs > 0),
    runner runner NOT NULL DEFAULT 'build', -- agents have no other
    build bytea, -- compiled code that the job runs; null: the agent compiles from source
    device_class bytea NOT NULL CHECK (octet_length(device_class) = 32), -- the hardware's digest
    events integer NOT NULL DEFAULT 0, -- number of the newest event
    reason text, created_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz,
    baseline_from text NOT NULL DEFAULT 'default'
        CHECK (baseline_from IN ('incumbent', 'imported', 'default', 'first')),
    default_config bigint CHECK (default_config >= 0), -- the space's default; null: it has none
    config_us bigint NOT NULL DEFAULT 30000 CHECK (config_us > 0), -- predicted, of a config
    best_ratio double precision CHECK (best_ratio > 0), -- least of the accepted measurements so far
    likely bigint[] NOT NULL DEFAULT '{}', -- configs that win elsewhere, the likeliest first
    -- Null: every point is measured.
    search_strategy text CHECK (search_strategy IN ('random', 'descent', 'evolution')),
    search_trials integer CHECK (search_trials > 0),
    final_devices integer NOT NULL DEFAULT 1 CHECK (final_devices BETWEEN 1 AND 16),
    regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm')),
    -- Revalidate: a few configs of an earlier job are measured again; they are not the kernel's
    -- space.
    purpose text NOT NULL DEFAULT 'tune' CHECK (purpose IN ('tune', 'revalidate')),
    -- False: the space could rename what the kernel's sources use, and agents with trusted keys do
    -- not take it.
    is_plain boolean NOT NULL DEFAULT true, submitted_by text, submitted_by_id bigint,
    cancelled_by text, cancelled_by_id bigint,
    -- Configs that disagree, of a job that is done; null: none.
    disagreeing int8multirange,
    owner_id int NOT NULL DEFAULT 0, -- of the table owners
    -- The failed or cancelled job that this one tries again. That one has given its identity to
    -- this one, and has another run.
    retry_of bigint REFERENCES jobs (id),
    retried_at timestamptz, -- when another one took over its identity
    CONSTRAINT jobs_identity
        UNIQUE (kernel, key_digest, space_digest, environment_id, tag, run, regime),
    CONSTRAINT jobs_search CHECK ((search_strategy IS NULL) = (search_trials IS NULL)),
    CHECK ((state IN ('done', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'failed') <= (reason IS NOT NULL)),
    CHECK (retried_at IS NULL OR state IN ('failed', 'cancelled'))
) WITH (fillfactor = 80);
CREATE INDEX jobs_unfinished ON jobs (id) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_open_of_token ON jobs (submitted_by_id) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_done ON jobs (environment_id, tag, regime, kernel, key_digest, id)
    WHERE state = 'done';
CREATE INDEX jobs_place ON jobs (tag, regime, environment_id); -- releases: whatever their state is
-- What is known of a kernel: its newest winners, and how long a config takes.
CREATE INDEX jobs_kernel_done ON jobs (kernel, id) WHERE state = 'done';
CREATE INDEX jobs_of_run ON jobs (run, id) WHERE run <> '';
CREATE INDEX jobs_of_owner ON jobs (submitted_by, id);
CREATE INDEX jobs_of_owner_finished ON jobs (submitted_by, finished_at);
CREATE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;

-- What happened to each job.
CREATE TABLE job_events (
    job_id bigint NOT NULL REFERENCES jobs (id),
    event integer NOT NULL,
    kind text NOT NULL CHECK (
        kind IN ('queued', 'running', 'stage', 'lease_lost', 'handed_back', 'poisoned', 'done',
                 'failed', 'cancelled', 'budget', 'late', 'quarantined', 'flagged', 'retried')),
    at timestamptz NOT NULL DEFAULT now(), detail json NOT NULL,
    PRIMARY KEY (job_id, event)
);

-- The config that each done job chose.
CREATE TABLE winners (
    job_id bigint PRIMARY KEY REFERENCES jobs (id),
    config bigint NOT NULL CHECK (config >= 0),
    config_values json NOT NULL, -- parameters in the space's order
    verdict json NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    quarantined text, -- why the samples that it was decided from are not trusted
    flagged json, -- {"job", "ratio", "lower", "upper", "at"}: a later job measured it as slower
    -- How it agrees with the program's default config and with Triton's interpreter, where the
    -- kernel has no reference (common/verdict/agreement.h); null: it was decided before this was
    -- stored.
    agreement text
        CHECK (agreement IN ('none', 'bitwise', 'interpreted', 'agrees', 'disagrees')),
    -- The interpreter agrees, which may also be so of a bitwise one.
    interpreted boolean NOT NULL DEFAULT false,
    -- The rest of the equivalence set, the best first: [{"config", "config_values", "agreement",
    -- "interpreted"}]; null: the kernel has a reference.
    others json
);
CREATE INDEX winners_newest ON winners (at);

-- Owners of jobs: names of the tokens that submitted them. Within a priority leases are granted by
-- what each owner's leases used, divided by its weight (server/lease/fair_share.h). Owner 0 has the
-- jobs without a submitter.
CREATE TABLE owners (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    device_seconds_per_day double precision CHECK (device_seconds_per_day > 0), -- null: no limit
    used_us double precision NOT NULL DEFAULT 0, -- halves every ten minutes; as it was at used_at
    leases double precision NOT NULL DEFAULT 0, -- likewise
    used_at timestamptz NOT NULL DEFAULT now(),
    day date NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
    day_us double precision NOT NULL DEFAULT 0 -- of that day (UTC)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
