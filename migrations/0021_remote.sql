-- Compiled code by the folder of Triton's cache: code of builds, and code that containers wrote.

-- Which build has the files of a folder. Of several builds the one that was pushed first serves them.
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
    WHERE cache ->> 'folder' IS NOT NULL
    ORDER BY cache ->> 'folder', b.id;

-- What containers wrote, by their token and the image that they state. It is served only to the same token and image, and
-- only if the operator opened that namespace (serve --remote-share).
CREATE TABLE remote_files (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL,
    image text NOT NULL,
    folder text NOT NULL,
    name text NOT NULL, -- of the file, or of the metadata in a group
    is_group boolean NOT NULL,
    bytes bytea NOT NULL,
    size bigint NOT NULL GENERATED ALWAYS AS (octet_length(bytes)) STORED,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at timestamptz NOT NULL DEFAULT now()
);
-- Compressing code saves too little space for its time.
ALTER TABLE remote_files ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX remote_files_place ON remote_files (token_id, image, folder, name, is_group);
CREATE INDEX remote_files_used ON remote_files (used_at);
CREATE INDEX remote_files_size ON remote_files (token_id) INCLUDE (size);
