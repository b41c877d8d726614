-- Kernels, their builds, and the signatures of both (kernels.c).

-- Fails when one of its files was removed meanwhile (kernel_files references blobs).
-- name: kernel_insert
WITH made AS (
    INSERT INTO kernels (hash, name, language, manifest, made_by, made_by_id)
    VALUES (:hash::bytea, :name, :language, :manifest::json, :author, :author_id::bigint)
    ON CONFLICT (hash) DO NOTHING
    RETURNING hash
), files AS (
    INSERT INTO kernel_files (kernel, digest)
    SELECT made.hash, file
    FROM made, unnest(:files::bytea[]) AS file
)
SELECT count(*) AS made
FROM made;

-- The reference of a captured kernel, which its hash does not cover.
-- name: kernel_set_reference
WITH made AS (
    UPDATE kernels
    SET manifest = :manifest::json
    WHERE hash = :hash::bytea
      AND manifest::jsonb <> :manifest::json::jsonb
    RETURNING hash
), files AS (
    INSERT INTO kernel_files (kernel, digest)
    SELECT made.hash, file
    FROM made, unnest(:files::bytea[]) AS file
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS made
FROM made;

-- name: build_insert
WITH made AS (
    INSERT INTO builds (digest, kernel, arch, triton, torch, rocm, variants, build, head, made_by,
                        made_by_id)
    VALUES (:digest::bytea, :kernel::bytea, :arch, :triton, :torch, :rocm, :variants::integer,
            :build::json, :head::json, :author, :author_id::bigint)
    ON CONFLICT (digest) DO NOTHING
    RETURNING digest
), files AS (
    INSERT INTO build_files (build, digest)
    SELECT made.digest, file
    FROM made, unnest(:files::bytea[]) AS file
)
SELECT count(*) AS made
FROM made;

-- One row for each hash, in the same order; the manifest is null if the kernel is not registered.
-- name: kernels_manifests
SELECT k.manifest
FROM unnest(:hashes::bytea[]) WITH ORDINALITY AS r(hash, n)
LEFT JOIN kernels k ON k.hash = r.hash
ORDER BY r.n;

-- name: kernel_select
SELECT hash, manifest, rfc3339(created_at) AS created_at, made_by, made_by_id,
       signatures_of(hash) AS signatures
FROM kernels
WHERE hash = :hash::bytea;

-- name: kernels_list
SELECT id, hash, name, language, rfc3339(created_at) AS created_at, made_by, made_by_id,
       signatures_of(hash) AS signatures
FROM kernels
WHERE (:name::text IS NULL OR name = :name)
  AND id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

-- name: build_select
SELECT build
FROM builds
WHERE kernel = :kernel::bytea
  AND digest = :digest::bytea;

-- name: builds_list
SELECT id, digest, head -> 'toolchain' AS toolchain, arch, variants,
       rfc3339(created_at) AS created_at, made_by, made_by_id, signatures_of(digest) AS signatures
FROM builds
WHERE kernel = :kernel::bytea
  AND id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

-- Why the build is not stored again; no row: it was not removed.
-- name: build_removed
SELECT removed_by, rfc3339(removed_at) AS removed_at
FROM removed_builds
WHERE digest = :digest::bytea;

-- What needs the build: channels whose release has a winner that it compiled, and open jobs.
-- Releases name builds by their digest in canonical JSON.
-- name: build_needed
SELECT (SELECT json_agg(DISTINCT c.name)
        FROM channels c
        JOIN releases r ON r.digest = c.release
        WHERE strpos(convert_from(r.bytes, 'UTF8'), digest_text(b.digest)) > 0) AS channels,
       (SELECT json_agg(id::text ORDER BY id)
        FROM (SELECT id
              FROM jobs
              WHERE state IN ('queued', 'running')
                AND build = b.digest
              ORDER BY id
              LIMIT 10) j) AS jobs
FROM builds b
WHERE b.digest = :digest::bytea
  AND b.kernel = :kernel::bytea
FOR UPDATE;

-- Launches that were built into it are refused: a builder would make the same build again. Its
-- files stay until they are collected.
-- name: build_remove
WITH noted AS (
    INSERT INTO removed_builds (digest, kernel, removed_by)
    VALUES (:digest::bytea, :kernel::bytea, :author)
    ON CONFLICT (digest) DO NOTHING
), launches AS (
    UPDATE captured_launches
    SET build = NULL,
        refused = 'its build ' || digest_text(:digest) || ' was removed by ' || :author
    WHERE build = :digest
), signatures AS (
    DELETE FROM code_signatures
    WHERE digest = :digest
)
DELETE FROM builds
WHERE digest = :digest;

-- name: code_is_registered
SELECT CASE WHEN :build::bytea IS NULL
            THEN EXISTS (SELECT FROM kernels WHERE hash = :kernel::bytea)
            ELSE EXISTS (SELECT FROM builds WHERE kernel = :kernel AND digest = :build)
       END AS is_registered;

-- Of two signatures by one key the one that expires later is kept. A signature by a further key is
-- not stored if the code has :most by other keys already: then has_room is false.
-- name: code_signature_store
WITH stored AS (
    INSERT INTO code_signatures AS c (digest, key, signature, expires_at, added_by, added_by_id)
    SELECT :digest::bytea, :key::bytea, :signature, :expires_at::timestamptz, :author,
           :author_id::bigint
    WHERE (SELECT count(*)
           FROM code_signatures
           WHERE digest = :digest
             AND key <> :key
             AND (expires_at IS NULL OR expires_at > now())) < :most::bigint
    ON CONFLICT (digest, key) DO UPDATE
    SET signature = excluded.signature, expires_at = excluded.expires_at, signed_at = now(),
        added_by = excluded.added_by, added_by_id = excluded.added_by_id
    WHERE c.expires_at < COALESCE(excluded.expires_at, 'infinity')
    RETURNING c.key
)
SELECT EXISTS (SELECT FROM stored) AS is_new,
       EXISTS (SELECT FROM stored)
           OR EXISTS (SELECT FROM code_signatures WHERE digest = :digest AND key = :key)
           AS has_room;

-- name: code_signatures_load
SELECT signatures_of(:digest::bytea) AS signatures;

-- is_able: all of them measure in the regime.
-- name: agents_refusing
SELECT count(DISTINCT a.id) AS n,
       bool_and(may_measure(d.runs, :regime)) AS is_able
FROM environments e
JOIN devices d ON d.environment_id = e.id
JOIN agents a ON a.id = d.agent
WHERE e.hardware_digest = :hardware::bytea
  AND COALESCE(a.drain_reason, d.drain_reason) IS NULL
  AND agent_is_live(a, :live_ms::bigint)
  AND (NOT may_measure(d.runs, :regime)
       OR (a.trusted_keys IS NOT NULL
           AND NOT (:is_plain::bool
                    AND is_signed(:kernel::bytea, a.trusted_keys)
                    AND (:build::bytea IS NULL OR is_signed(:build, a.trusted_keys)))));
