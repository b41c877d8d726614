-- Imported tables: configs that somebody tuned elsewhere, the first incumbents of keys that were never measured here.
-- Unverified until a job's winner replaces them. And what container images know of themselves.

-- A kernel known by name only, with no code.
ALTER TABLE kernels DROP CONSTRAINT kernels_language_check;
ALTER TABLE kernels ADD CONSTRAINT kernels_language_check CHECK (language IN ('hip', 'triton', 'c', 'external'));

ALTER TABLE jobs DROP CONSTRAINT jobs_baseline_from_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_baseline_from_check CHECK (
    baseline_from IN ('incumbent', 'imported', 'default', 'first')) NOT VALID; -- a superset of what rows have

-- The newest import of a (kernel, key, environment, tag). An import of the same again changes nothing, not even the time.
CREATE TABLE imports (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of the list
    kernel bytea NOT NULL REFERENCES kernels (hash),
    key_digest bytea NOT NULL CHECK (octet_length(key_digest) = 32), -- as jobs' key_digest
    key json NOT NULL, -- members in the kernel's order
    environment_digest bytea NOT NULL CHECK (octet_length(environment_digest) = 32),
    environment json NOT NULL, -- as the tables state it: members may be missing
    tag text NOT NULL CHECK (tag <> ''),
    config json NOT NULL, -- canonical text, like provenance: equal ones compare equal
    ms double precision[] NOT NULL CHECK (cardinality(ms) IN (0, 1, 3)), -- median, 20th and 80th percentile
    provenance json NOT NULL, -- flat; what the format wants back on export
    format text NOT NULL CHECK (format <> ''),
    imported_by text NOT NULL, -- the token's name
    imported_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kernel, key_digest, environment_digest, tag)
);
CREATE INDEX imports_release ON imports (tag, environment_digest); -- candidates of a release, and its environments
CREATE INDEX imports_kernel_id ON imports (kernel, id);

-- identity.json of container images, in canonical bytes.
CREATE TABLE images (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    identity json NOT NULL,
    put_by text NOT NULL,
    put_at timestamptz NOT NULL DEFAULT now(),
    CHECK (sha256(convert_to(identity::text, 'UTF8')) = digest)
);
