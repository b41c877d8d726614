-- Content-addressed files, and the kernels and builds that consist of them.

-- Files. Their digest is the SHA-256 of their bytes.
CREATE TABLE blobs (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    size bigint NOT NULL CHECK (size BETWEEN 0 AND 67108864),
    created_at timestamptz NOT NULL DEFAULT now(), put_by text, put_by_id bigint
);

-- The bytes of files, 256 KiB each, compressed with zstd; PostgreSQL need not try again.
CREATE TABLE blob_chunks (
    digest bytea NOT NULL REFERENCES blobs (digest) ON DELETE CASCADE,
    ordinal integer NOT NULL CHECK (ordinal BETWEEN 0 AND 255), bytes bytea NOT NULL,
    PRIMARY KEY (digest, ordinal)
);
ALTER TABLE blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- How much each token stored, for its limit. Each connection counts in one of 16 rows of the token,
-- because writes that change the same row wait for each other's commit. A file counts 4 KiB more
-- than its size, for its rows.
CREATE TABLE blob_usage (
    token_id bigint NOT NULL, part int NOT NULL, bytes bigint NOT NULL,
    PRIMARY KEY (token_id, part)
) WITH (fillfactor = 50);

-- Kernels by the SHA-256 of their manifest.
CREATE TABLE kernels (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of the list
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    name text NOT NULL CHECK (name <> ''),
    -- external: known by name only, with no code (imported tables)
    language text NOT NULL CHECK (language IN ('hip', 'triton', 'c', 'external')),
    manifest json NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
    made_by text, made_by_id bigint
);
CREATE INDEX kernels_name ON kernels (name, id);

-- The sources of kernels.
CREATE TABLE kernel_files (
    kernel bytea NOT NULL REFERENCES kernels (hash) ON DELETE CASCADE,
    digest bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (kernel, digest)
);
CREATE INDEX kernel_files_digest ON kernel_files (digest);

-- Compiled code of kernels.
CREATE TABLE builds (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kernel bytea NOT NULL REFERENCES kernels (hash),
    arch text NOT NULL,
    triton text, -- of the toolchain, like torch and rocm; null: the build does not state it
    torch text, rocm text, variants integer NOT NULL CHECK (variants >= 1), build json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The build without the variants' code. Builds are large, and submitting a job need not read
    -- them.
    head json NOT NULL, made_by text, made_by_id bigint
);
CREATE INDEX builds_kernel ON builds (kernel, id);

-- The objects and other files of builds.
CREATE TABLE build_files (
    build bytea NOT NULL REFERENCES builds (digest) ON DELETE CASCADE,
    digest bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (build, digest)
);
CREATE INDEX build_files_digest ON build_files (digest);

-- Builds that an operator removed: they are not stored again, which a builder would do, because the
-- same launch gives the same build.
CREATE TABLE removed_builds (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kernel bytea NOT NULL, removed_at timestamptz NOT NULL DEFAULT now(), removed_by text NOT NULL
);

-- Signatures of kernels and builds. The server chooses by them what it offers to an agent; agents
-- verify them.
CREATE TABLE code_signatures (
    digest bytea NOT NULL CHECK (octet_length(digest) = 32), -- a kernel's hash or a build's digest
    key bytea NOT NULL CHECK (octet_length(key) = 32), -- the id of the key
    signature text NOT NULL,
    expires_at timestamptz, -- null: never
    signed_at timestamptz NOT NULL DEFAULT now(), added_by text, added_by_id bigint,
    PRIMARY KEY (digest, key)
);

-- Configs of tables that were tuned elsewhere, the first incumbents of keys that were never
-- measured here: the newest import of each (kernel, key, environment, tag). An import of the same
-- again changes nothing, not even the time. They are unverified until a job's winner replaces them.
CREATE TABLE imports (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of the list
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), -- as jobs have it
    key json NOT NULL, -- members in the kernel's order
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, -- as the tables state it: members may be missing
    tag text NOT NULL CHECK (tag <> ''),
    config json NOT NULL, -- canonical text, like provenance: equal ones compare equal
    ms double precision[] NOT NULL CHECK (cardinality(ms) IN (0, 1, 3)), -- median, 20th and 80th %
    provenance json NOT NULL, -- flat; what the format wants back on export
    format text NOT NULL CHECK (format <> ''), imported_by text NOT NULL,
    imported_at timestamptz NOT NULL DEFAULT now(), imported_by_id bigint,
    UNIQUE (kernel, key_digest, environment_digest, tag)
);
CREATE INDEX imports_release ON imports (tag, environment_digest); -- candidates of a release
CREATE INDEX imports_kernel_id ON imports (kernel, id);

-- What container images state of themselves: identity.json in canonical bytes.
CREATE TABLE images (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    identity json NOT NULL, put_by text NOT NULL, put_at timestamptz NOT NULL DEFAULT now(),
    put_by_id bigint,
    CHECK (sha256(convert_to(identity::text, 'UTF8')) = digest)
);
