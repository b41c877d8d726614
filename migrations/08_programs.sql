-- What programs and deployments write: keys that they missed, launches that they recorded, and
-- files that they share.

-- Keys that deployments requested, as counts; which program requested one is in its log.
CREATE TABLE demand (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), key json NOT NULL,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, -- as the deployment states it
    tag text NOT NULL CHECK (tag <> ''), hits bigint NOT NULL CHECK (hits >= 0),
    misses bigint NOT NULL CHECK (misses >= 0),
    tuning_ms double precision NOT NULL CHECK (tuning_ms >= 0), -- that deployments spent
    kernel_ms double precision CHECK (kernel_ms > 0), -- of one call, as it was reported last
    first_at timestamptz NOT NULL DEFAULT now(), last_at timestamptz NOT NULL DEFAULT now(),
    job_id bigint REFERENCES jobs (id), -- that was queued for it
    refused text, -- why no job could be queued
    decided_at timestamptz, regime text NOT NULL DEFAULT 'cold' CHECK (regime IN ('cold', 'warm')),
    last_by text, -- the token that reported it last
    last_by_id bigint,
    -- No job was queued because no agent was live: it stays listed, with the reason, until one
    -- enrols.
    waits boolean NOT NULL DEFAULT false,
    CONSTRAINT demand_place UNIQUE (kernel, key_digest, environment_digest, tag, regime)
) WITH (fillfactor = 70);
CREATE INDEX demand_open ON demand (last_at) WHERE job_id IS NULL AND misses > 0;

-- Who reported a key, of tokens that a policy named then, each with the image that it named last.
CREATE TABLE demand_reporters (
    demand bigint NOT NULL REFERENCES demand (id) ON DELETE CASCADE,
    token text NOT NULL, image text NOT NULL,
    PRIMARY KEY (demand, token)
);

-- Keys for which programs that start tuned had no config. Their functions need not be registered
-- kernels.
CREATE TABLE program_misses (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function bytea NOT NULL CHECK (octet_length(function) = 32), -- its closure
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), key json NOT NULL,
    name text NOT NULL,
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, tag text NOT NULL, regime text NOT NULL, misses bigint NOT NULL,
    why text NOT NULL, -- as it was reported last
    last_at timestamptz NOT NULL DEFAULT now(), last_by text, last_by_id bigint,
    tuning_ms double precision, -- as it was reported last; null: not known
    UNIQUE (function, key_digest, environment_digest, tag, regime)
) WITH (fillfactor = 70);
CREATE INDEX program_misses_last ON program_misses (last_at);

-- Files of compiled code that containers wrote, by their token and the image that they state. They
-- are served only to the same token and image, and only if the operator opened that namespace
-- (serve --remote-share).
CREATE TABLE remote_files (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL, image text NOT NULL, folder text NOT NULL,
    name text NOT NULL, -- of the file, or of the metadata in a group
    is_group boolean NOT NULL,
    bytes bytea NOT NULL, -- compressing code saves too little space for its time
    size bigint NOT NULL GENERATED ALWAYS AS (octet_length(bytes)) STORED,
    created_at timestamptz NOT NULL DEFAULT now(), used_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE remote_files ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX remote_files_place ON remote_files (token_id, image, folder, name, is_group);
CREATE INDEX remote_files_used ON remote_files (used_at);

-- How much each token stores of these files, so that a write need not sum them; in parts like
-- blob_usage.
CREATE TABLE remote_usage (
    token_id bigint NOT NULL, part int NOT NULL, files bigint NOT NULL, bytes bigint NOT NULL,
    PRIMARY KEY (token_id, part)
) WITH (fillfactor = 50);

-- Functions of launches that programs recorded, from which builders make kernels and builds. Texts
-- belong to the owner of the token that posted them.
CREATE TABLE captured_functions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL, closure bytea NOT NULL CHECK (octet_length(closure) = 32),
    name text NOT NULL, -- MODULE:QUALNAME
    document text NOT NULL, -- with the function's texts; canonical, as builders read it strictly
    seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX captured_functions_closure ON captured_functions (token_id, closure);
CREATE INDEX captured_functions_seen ON captured_functions (seen_at);

-- Keys of captured functions. One waits for a builder as long as it has neither a build nor a
-- refusal.
CREATE TABLE captured_launches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function_id bigint NOT NULL REFERENCES captured_functions (id) ON DELETE CASCADE,
    token_id bigint NOT NULL, -- the function's
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- of key, environment and image
    key json NOT NULL, -- values by the names of the autotuner's key
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), -- as jobs have it
    arch text NOT NULL, -- '' where the program did not know it
    triton text NOT NULL, document text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    seen bigint NOT NULL DEFAULT 1, -- how often it was posted
    epoch bigint NOT NULL DEFAULT 0, -- of the lease; grows with each
    leased_until timestamptz, leased_by text,
    build bytea REFERENCES builds (digest) ON DELETE SET NULL, -- without it, the launch waits again
    kernel bytea, -- of the build
    refused text CHECK (build IS NULL OR refused IS NULL), -- why no build can be made
    environment json NOT NULL, -- as the program states it
    image text NOT NULL, -- '' where the program did not know it
    space_digest bytea REFERENCES spaces (digest), -- of its job: what was compiled
    configs bigint, -- of that space
    job_id bigint REFERENCES jobs (id), -- that was made or found for it
    not_queued text, -- why no job could be made
    decided_at timestamptz,
    CHECK (build IS NULL
           OR (kernel IS NOT NULL AND space_digest IS NOT NULL AND configs IS NOT NULL))
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX captured_launches_digest ON captured_launches (function_id, digest);
CREATE INDEX captured_launches_waiting ON captured_launches (id)
    WHERE build IS NULL AND refused IS NULL;
CREATE INDEX captured_launches_build ON captured_launches (build);
CREATE INDEX captured_launches_seen ON captured_launches (seen_at);
CREATE INDEX captured_launches_made ON captured_launches (token_id, created_at);
CREATE INDEX captured_launches_without_job ON captured_launches (id)
    WHERE build IS NOT NULL AND job_id IS NULL;
