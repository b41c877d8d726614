-- Keys for which programs that start tuned had no config. Their functions need not be registered kernels.

CREATE TABLE program_misses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function bytea NOT NULL CHECK (octet_length(function) = 32), -- its closure
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), -- as evidence has it
    key json NOT NULL,
    name text NOT NULL,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL,
    tag text NOT NULL,
    regime text NOT NULL,
    misses bigint NOT NULL,
    why text NOT NULL, -- as it was reported last
    last_at timestamptz NOT NULL DEFAULT now(),
    last_by text, last_by_id bigint,
    UNIQUE (function, key_digest, environment_digest, tag, regime)
) WITH (fillfactor = 70);
CREATE INDEX program_misses_last ON program_misses (last_at);
