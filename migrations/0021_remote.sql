-- Compiled code by the folder of Triton's cache: what builds hold, and what containers wrote.

-- Which build has what Triton looks for in a folder. Of several builds the first that was pushed serves it.
CREATE TABLE build_caches (
    folder text PRIMARY KEY,
    build bytea NOT NULL REFERENCES builds (digest) ON DELETE CASCADE,
    files json NOT NULL -- digests by the files' names
);
CREATE INDEX build_caches_build ON build_caches (build);
INSERT INTO build_caches (folder, build, files)
    SELECT DISTINCT ON (cache ->> 'folder') cache ->> 'folder', b.digest, cache -> 'files'
    FROM builds b
    CROSS JOIN json_array_elements(b.build -> 'variants') variant
    CROSS JOIN json_array_elements(variant -> 'objects') object
    CROSS JOIN LATERAL (SELECT object #> '{metadata,cache}') AS c(cache)
    WHERE cache IS NOT NULL
    ORDER BY cache ->> 'folder', b.id;

-- What containers wrote under a token and for an image, as they name it. Served to none but that token and image, and
-- only where the operator opened that namespace (serve --remote-share).
CREATE TABLE remote_files (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL,
    image text NOT NULL,
    folder text NOT NULL,
    name text NOT NULL, -- of the file, or of a group's metadata
    is_group boolean NOT NULL,
    bytes bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at timestamptz NOT NULL DEFAULT now()
);
-- Code does not compress well after zlib's time is paid, and is read whole.
ALTER TABLE remote_files ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX remote_files_place ON remote_files (token_id, image, folder, name, is_group);
CREATE INDEX remote_files_used ON remote_files (used_at);
