-- Agents, their devices, and the environments that these measure for.

-- Environments by the digest of their identity.
CREATE TABLE environments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    hardware_digest bytea NOT NULL CHECK (octet_length(hardware_digest) = 32),
    identity json NOT NULL
);

-- Agents. Whether one is live or lost follows from last_seen and ended_at, and whether it drains
-- from drain_reason: nothing else is stored.
CREATE TABLE agents (
    id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    boot text NOT NULL, -- nonce of the agent's process: another process hands its leases back
    name text NOT NULL, version text NOT NULL, drain_reason text,
    enrolled_at timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now(), -- in no index, so that heartbeats are HOT updates
    token_id bigint REFERENCES tokens (id), -- that enrolled it; null: not known
    machine text, -- what it stated of its machine: evidence, not proof
    refused_at timestamptz, -- the last enrolment of its id from another machine while it was live
    refused_machine text, refused_name text,
    trusted_keys bytea[] CHECK (trusted_keys <> '{}'), -- null: it takes unsigned code, too
    drained_by text, drained_by_id bigint,
    removed_at timestamptz, -- since then it is not listed, until a heartbeat or an enrolment
    removed_by text, removed_by_id bigint,
    ended_at timestamptz -- it stated that it ends: it is not live, and is not lost
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX agents_draining ON agents (id) WHERE drain_reason IS NOT NULL;
CREATE INDEX agents_of_token ON agents (token_id);
ALTER TABLE tokens ADD FOREIGN KEY (agent) REFERENCES agents (id);

-- Devices of agents.
CREATE TABLE devices (
    agent text NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    device text NOT NULL, backend text NOT NULL,
    environment_id bigint NOT NULL REFERENCES environments (id),
    facts json,
    drain_reason text, -- this device gets no leases; null: it does, unless its agent drains
    suspect_since timestamptz, -- it drifts: what it measured later is quarantined
    history_since timestamptz, -- what it measured before says nothing of how it is now
    drained_by text, drained_by_id bigint,
    PRIMARY KEY (agent, device)
);
CREATE INDEX devices_environment ON devices (environment_id);

-- What the baseline took in each lease, by which devices that drift from their history are found.
CREATE TABLE device_baselines (
    agent text NOT NULL, device text NOT NULL,
    -- The SHA-256 of all that must be equal for two of them to be comparable
    -- (server/measurement/drift.c).
    subject bytea NOT NULL CHECK (octet_length(subject) = 32),
    at timestamptz NOT NULL DEFAULT now(), lease_id bigint NOT NULL, epoch bigint NOT NULL,
    median_us double precision NOT NULL CHECK (median_us > 0),
    UNIQUE (lease_id, epoch)
);
CREATE INDEX device_baselines_history ON device_baselines (agent, device, subject, at DESC);
