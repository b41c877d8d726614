-- Who may call, and the content-addressed ground that everything refers to: files, kernels, builds.

CREATE TYPE token_role AS ENUM ('reader', 'submitter', 'agent', 'admin');

-- Of a token only its SHA-256 is stored. A revoked row stays, so that the list says who had access and until when.
CREATE TABLE tokens (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9._-]{1,64}$'),
    role token_role NOT NULL,
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz CHECK (revoked_at >= created_at)
);
CREATE UNIQUE INDEX tokens_live_name ON tokens (name) WHERE revoked_at IS NULL;

CREATE TABLE blobs (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    size bigint NOT NULL CHECK (size BETWEEN 0 AND 67108864),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- 256 KiB of the file each, compressed with zstd; PostgreSQL need not try again.
CREATE TABLE blob_chunks (
    digest bytea NOT NULL REFERENCES blobs (digest) ON DELETE CASCADE,
    ordinal integer NOT NULL CHECK (ordinal BETWEEN 0 AND 255),
    bytes bytea NOT NULL,
    PRIMARY KEY (digest, ordinal)
);
ALTER TABLE blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE kernels (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of the list
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    name text NOT NULL CHECK (name <> ''),
    language text NOT NULL CHECK (language IN ('hip', 'triton', 'c')),
    manifest json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX kernels_name ON kernels (name, id);

CREATE TABLE kernel_files (
    kernel bytea NOT NULL REFERENCES kernels (hash) ON DELETE CASCADE,
    digest bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (kernel, digest)
);
CREATE INDEX kernel_files_digest ON kernel_files (digest);

CREATE TABLE builds (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kernel bytea NOT NULL REFERENCES kernels (hash),
    arch text NOT NULL,
    triton text, -- of the toolchain; null where the build does not say
    torch text,
    rocm text,
    variants integer NOT NULL CHECK (variants >= 1),
    build json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX builds_kernel ON builds (kernel, id);

CREATE TABLE build_files (
    build bytea NOT NULL REFERENCES builds (digest) ON DELETE CASCADE,
    digest bytea NOT NULL REFERENCES blobs (digest),
    PRIMARY KEY (build, digest)
);
CREATE INDEX build_files_digest ON build_files (digest);
