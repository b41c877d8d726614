-- What people do from a terminal: jobs that are listed and cancelled by their run or owner, jobs that are tried again, agents that
-- were removed, and pins and bans that last.

ALTER TABLE jobs
    -- The failed or cancelled job that this one tries again. That one has given its identity to this one, and has another run.
    ADD COLUMN retry_of bigint REFERENCES jobs (id),
    ADD COLUMN retried_at timestamptz, -- when another one took over its identity
    ADD CHECK (retried_at IS NULL OR state IN ('failed', 'cancelled'));
CREATE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_of_run ON jobs (run, id) WHERE run <> '';
CREATE INDEX jobs_of_owner ON jobs (submitted_by, id);

ALTER TABLE job_events DROP CONSTRAINT job_events_kind_check;
ALTER TABLE job_events ADD CONSTRAINT job_events_kind_check CHECK (
    kind IN ('queued', 'running', 'stage', 'lease_lost', 'poisoned', 'done', 'failed', 'cancelled', 'budget', 'late',
             'quarantined', 'flagged', 'retried')) NOT VALID;

-- Agents that an operator removed leave the list of agents; a heartbeat or an enrolment after that brings them back.
ALTER TABLE agents ADD COLUMN removed_at timestamptz, ADD COLUMN removed_by text, ADD COLUMN removed_by_id bigint;

-- Pins and bans of configs that releases obey until they are removed (server/release/override_rules.h).
CREATE TABLE overrides (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('pin', 'ban')),
    kernel text NOT NULL CHECK (kernel <> ''), -- a hash ("sha256:…") or a name, of which all kernels are meant
    key json, -- null: any
    environment json NOT NULL, -- partial; {}: any
    tag text CHECK (tag <> ''), -- null: any
    config json NOT NULL, -- of a pin all values; of a ban those that together are banned
    reason text NOT NULL CHECK (reason <> ''),
    until timestamptz, -- null: until it is removed
    made_by text NOT NULL,
    made_by_id bigint,
    made_at timestamptz NOT NULL DEFAULT now()
);
-- Keys, environments and configs are canonical texts.
CREATE UNIQUE INDEX overrides_once ON overrides (kind, kernel, COALESCE(key::text, ''), (environment::text), COALESCE(tag, ''),
                                                 (config::text));
