-- The code of builds is served by the choices of a release that states it (server/remote/remote.h), so
-- several builds may have one folder of Triton's cache, and none is found by its folder.
DROP TABLE build_caches;

-- Builds that an operator removed: they are not stored again, which a builder would do, because
-- the same launch gives the same build.
CREATE TABLE removed_builds (
    id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    kernel bytea NOT NULL,
    removed_at timestamptz NOT NULL DEFAULT now(),
    removed_by text NOT NULL
);
