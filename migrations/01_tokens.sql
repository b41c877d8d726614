-- Who may call: tokens, the record of what they wrote, and the functions that several subjects use.
--
-- Columns such as made_by and made_by_id name the token that wrote a row. They are null where the
-- row is older than the columns; "(server)" and "(command line)", which no token can be called,
-- have no id. They are no foreign keys, because tokens are never removed.

CREATE TYPE token_role AS ENUM (
    'reader', 'submitter', 'agent', 'admin', 'demand', 'enrol', 'cache-writer', 'builder',
    'publisher', 'operator');

-- Tokens, and identities that tokens of an identity provider name, such as CI's (serve --oidc):
-- these own jobs and have a name as any other token, but the provider's tokens are not stored. A
-- revoked row stays, so that the list says who had access and until when.
CREATE TABLE tokens (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL, role token_role NOT NULL,
    -- The SHA-256 of the token, of the certificate's name, or of the identity with its roles
    -- (server/oidc/oidc.sql).
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz CHECK (revoked_at >= created_at),
    expires_at timestamptz, -- null: never
    agent text, -- the agent that alone it acts for; null: it acts for no particular one
    replaces bigint REFERENCES tokens (id), -- ends soon after this one is first used; null: none
    uses_left integer CHECK (uses_left >= 0), -- of the role enrol: how many agents it may make
    agent_name text, -- of the role enrol: a pattern of fnmatch(3) for the agents' names; null: any
    environment json, -- of the role enrol: members that each device of the agents has; null: any
    also token_role[] NOT NULL DEFAULT '{}', -- roles beside the first
    channels text[] CHECK (cardinality(channels) > 0), -- of publishers: patterns of fnmatch(3)
    certificate text, -- the name of the client certificate that stands for it
    made_by text, made_by_id bigint, revoked_by text, revoked_by_id bigint,
    issuer text, -- the URL of the identity provider; null: an ordinary token
    CHECK ((role::text = 'enrol') = (uses_left IS NOT NULL)),
    CHECK (role::text = 'agent' OR agent IS NULL),
    CHECK (role::text = 'enrol' OR (agent_name IS NULL AND environment IS NULL)),
    CHECK (role::text NOT IN ('agent', 'enrol', 'admin') OR also = '{}'),
    CHECK (array_position(also::text[], 'agent') IS NULL
           AND array_position(also::text[], 'enrol') IS NULL
           AND array_position(also::text[], 'admin') IS NULL
           AND array_position(also::text[], role::text) IS NULL),
    CHECK ((role::text = 'publisher' OR array_position(also::text[], 'publisher') IS NOT NULL)
           = (channels IS NOT NULL)),
    CONSTRAINT tokens_name_check CHECK (
        CASE WHEN issuer IS NULL THEN name ~ '^[A-Za-z0-9._-]{1,64}$'
             ELSE name ~ '^[a-z0-9-]{1,16}:[!-~]+$' AND length(name) <= 200 END),
    CHECK (issuer IS NULL
           OR (expires_at IS NOT NULL AND role::text NOT IN ('agent', 'enrol', 'admin')))
);
-- Rules of a provider may give one identity other roles for another of its claims, so an identity
-- may have several rows.
CREATE UNIQUE INDEX tokens_live_name ON tokens (name) WHERE revoked_at IS NULL AND issuer IS NULL;
CREATE INDEX tokens_agent ON tokens (agent) WHERE agent IS NOT NULL AND revoked_at IS NULL;

-- Made by the first server that starts, and read by all: with it they name the leases that they
-- grant.
CREATE TABLE secrets (
    name text PRIMARY KEY,
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);

-- What was written, in the transaction that wrote it. Rows are only ever added: a role that serves
-- and is not the owner has no right to do anything else (wavetune-server migrate --serve-role); how
-- long they are kept is the owner's.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(), token text NOT NULL, token_id bigint,
    role text NOT NULL, -- of the token, as it was then
    peer text, -- the request's address: a proxy's, unless that is trusted to state its client's
    action text NOT NULL, object text NOT NULL, detail json NOT NULL
);
CREATE INDEX audit_token ON audit (token, id);
CREATE INDEX audit_object ON audit (object, id);
CREATE INDEX audit_at ON audit (at);
