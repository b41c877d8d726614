-- Launches that programs recorded, from which builders make kernels and builds. Texts belong to the owner of the token that
-- posted them.
CREATE TABLE captured_functions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL,
    closure bytea NOT NULL CHECK (octet_length(closure) = 32),
    name text NOT NULL, -- MODULE:QUALNAME
    document text NOT NULL, -- with the function's texts; canonical JSON, which builders read strictly
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX captured_functions_closure ON captured_functions (token_id, closure);
CREATE INDEX captured_functions_seen ON captured_functions (seen_at);

-- One key of a function. It waits for a builder as long as it has neither a build nor a refusal.
CREATE TABLE captured_launches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function_id bigint NOT NULL REFERENCES captured_functions (id) ON DELETE CASCADE,
    token_id bigint NOT NULL, -- the function's
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- of key, environment and image
    key json NOT NULL, -- values by the names of the autotuner's key
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), -- as jobs have it
    arch text NOT NULL, -- '' where the program did not know it
    triton text NOT NULL,
    document text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    seen bigint NOT NULL DEFAULT 1, -- how often it was posted
    epoch bigint NOT NULL DEFAULT 0, -- of the lease; grows with each
    leased_until timestamptz,
    leased_by text,
    build bytea REFERENCES builds (digest) ON DELETE SET NULL, -- without it, the launch waits again
    kernel bytea, -- of the build
    refused text CHECK (build IS NULL OR refused IS NULL) -- why no build can be made
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX captured_launches_digest ON captured_launches (function_id, digest);
CREATE INDEX captured_launches_waiting ON captured_launches (id) WHERE build IS NULL AND refused IS NULL;
CREATE INDEX captured_launches_build ON captured_launches (build);
CREATE INDEX captured_launches_seen ON captured_launches (seen_at);
CREATE INDEX captured_launches_made ON captured_launches (token_id, created_at);
