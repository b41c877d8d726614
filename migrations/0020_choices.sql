-- Signatures of publishers over the choices of a release (format `choices`).
CREATE TABLE choices_signatures (
    release bytea NOT NULL REFERENCES releases (digest) ON DELETE CASCADE,
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- the id of the key
    choices bytea NOT NULL CHECK (octet_length(choices) = 32), -- the digest; another version may render other choices
    signature text NOT NULL,
    signed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (release, key)
);

-- What containers measured themselves: hints that are not trusted, one row for each node and key. They become choices for
-- others only under the operator's rule (serve --agreed).
CREATE TABLE evidence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL,
    tag text NOT NULL,
    regime text NOT NULL,
    function bytea NOT NULL CHECK (octet_length(function) = 32), -- its closure
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32),
    token_id bigint NOT NULL,
    node text NOT NULL, -- as the container names it
    name text NOT NULL,
    key json NOT NULL, -- an array of texts
    near json NOT NULL, -- configs within 2 % of the best, the best first, each canonical
    configs bigint NOT NULL,
    ms double precision,
    tuning_ms double precision,
    last_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX evidence_of_node ON evidence (environment_digest, tag, regime, function, key_digest, token_id, node);
CREATE INDEX evidence_last ON evidence (last_at);
CREATE INDEX evidence_token ON evidence (token_id);
