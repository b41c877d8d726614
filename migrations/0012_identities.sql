-- An agent is an identity. A token with the role enrol makes agents and can do nothing else; each agent gets a token of its
-- own, which acts as that agent alone. Whoever was granted a lease is remembered with the token that asked for it.

ALTER TYPE token_role ADD VALUE 'enrol';

ALTER TABLE tokens
    ADD COLUMN expires_at timestamptz, -- null: never
    ADD COLUMN agent text REFERENCES agents (id), -- whose it is alone; null: of nobody in particular
    ADD COLUMN replaces bigint REFERENCES tokens (id), -- ends soon after this one was first used; null: it has been, or there is none
    -- Of the role enrol:
    ADD COLUMN uses_left integer CHECK (uses_left >= 0),
    ADD COLUMN agent_name text, -- a pattern of fnmatch(3) for the names of the agents; null: any
    ADD COLUMN environment json, -- members that every device of the agents has; null: any
    ADD CHECK ((role::text = 'enrol') = (uses_left IS NOT NULL)),
    ADD CHECK (role::text = 'agent' OR agent IS NULL),
    ADD CHECK (role::text = 'enrol' OR (agent_name IS NULL AND environment IS NULL));
CREATE INDEX tokens_agent ON tokens (agent) WHERE agent IS NOT NULL AND revoked_at IS NULL;

ALTER TABLE agents
    ADD COLUMN token_id bigint REFERENCES tokens (id), -- that enrolled it; null: nobody since this column is there
    ADD COLUMN machine text, -- what it said of its machine: evidence, not proof
    -- The last enrolment of its id from another machine while it was live.
    ADD COLUMN refused_at timestamptz,
    ADD COLUMN refused_machine text,
    ADD COLUMN refused_name text;

-- The token that the lease was granted to. No foreign key: a grant would look it up, and tokens are never removed.
ALTER TABLE leases ADD COLUMN token_id bigint;

-- Made by the first server that starts, read by all: with it they say which leases they granted to whom.
CREATE TABLE secrets (
    name text PRIMARY KEY,
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);
