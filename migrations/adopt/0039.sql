-- Brings the tables of a database of commit 9b92b43d, the 39th migration before the base, to the
-- base; 11_functions.sql follows. The rows are kept, but of what the base no longer has.

-- Agents, leases and jobs
ALTER TABLE agents ADD COLUMN ended_at timestamptz;
ALTER TABLE leases
    ADD COLUMN handed_back text,
    ADD COLUMN handed_back_times integer NOT NULL DEFAULT 0;
ALTER TABLE job_events DROP CONSTRAINT job_events_kind_check, ADD CHECK (
    kind IN ('queued', 'running', 'stage', 'lease_lost', 'handed_back', 'poisoned', 'done',
             'failed', 'cancelled', 'budget', 'late', 'quarantined', 'flagged', 'retried'));
ALTER TABLE jobs VALIDATE CONSTRAINT jobs_baseline_from_check;
DROP INDEX jobs_of_policy;
CREATE INDEX jobs_of_owner_finished ON jobs (submitted_by, finished_at);

-- An agent that stated no regime was taken for cold, also in warm jobs, and any text was accepted.
ALTER TABLE measurements ADD COLUMN refused boolean NOT NULL DEFAULT false;
UPDATE measurements m SET regime = j.regime
FROM jobs j WHERE j.id = m.job_id AND m.regime <> j.regime;

-- Code of builds was found by its folder, and what containers agreed on by closures and evidence.
DROP TABLE build_caches, evidence;
DROP TRIGGER builds_closure ON builds;
DROP FUNCTION builds_set_closure();
ALTER TABLE builds DROP COLUMN closure;
CREATE TABLE removed_builds (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kernel bytea NOT NULL, removed_at timestamptz NOT NULL DEFAULT now(), removed_by text NOT NULL
);

-- What programs miss
ALTER TABLE demand ADD COLUMN waits boolean NOT NULL DEFAULT false;
CREATE TABLE demand_reporters (
    demand bigint NOT NULL REFERENCES demand (id) ON DELETE CASCADE,
    token text NOT NULL, image text NOT NULL,
    PRIMARY KEY (demand, token)
);
INSERT INTO demand_reporters (demand, token, image)
SELECT id, policy_token, COALESCE(policy_image, '') FROM demand WHERE policy_token IS NOT NULL;
ALTER TABLE demand DROP COLUMN policy_token, DROP COLUMN policy_image;
CREATE TABLE program_misses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function bytea NOT NULL CHECK (octet_length(function) = 32),
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32),
    key json NOT NULL, name text NOT NULL,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, tag text NOT NULL, regime text NOT NULL,
    misses bigint NOT NULL, why text NOT NULL, last_at timestamptz NOT NULL DEFAULT now(),
    last_by text, last_by_id bigint, tuning_ms double precision,
    UNIQUE (function, key_digest, environment_digest, tag, regime)
) WITH (fillfactor = 70);
CREATE INDEX program_misses_last ON program_misses (last_at);

-- There was one policy, of the server; set_at is null where it was never set.
ALTER TABLE policy RENAME TO policies;
DELETE FROM policies WHERE set_at IS NULL;
ALTER TABLE policies
    DROP COLUMN is_only,
    ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ALTER COLUMN set_at SET NOT NULL,
    ALTER COLUMN set_by SET NOT NULL,
    ADD UNIQUE (set_by),
    ADD UNIQUE (channel),
    ADD COLUMN jobs_per_hour bigint CHECK (jobs_per_hour > 0),
    ADD COLUMN device_seconds_per_job double precision CHECK (device_seconds_per_job > 0),
    ADD COLUMN run text NOT NULL DEFAULT 'policy';
ALTER TABLE policies RENAME CONSTRAINT policy_mode_check TO policies_mode_check;
ALTER TABLE policies
    RENAME CONSTRAINT policy_device_seconds_per_day_check TO policies_device_seconds_per_day_check;
ALTER TABLE policies RENAME CONSTRAINT policy_configs_max_check TO policies_configs_max_check;
ALTER TABLE policies RENAME CONSTRAINT policy_require_check TO policies_require_check;
-- It acts as it did, also if the token that set it has ended since.
UPDATE policies SET set_by_id = NULL
WHERE NOT EXISTS (SELECT FROM tokens t WHERE t.name = set_by AND token_is_live(t));

DELETE FROM schema_migrations; -- the base is noted next
