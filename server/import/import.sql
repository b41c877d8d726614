-- Imported tables, and the identities of images (imports.c).

-- External kernels, of which only the name is known. They are inserted in the order of their
-- hashes, so that two imports of the same kernels cannot deadlock.
-- name: import_kernels
INSERT INTO kernels (hash, name, language, manifest, made_by, made_by_id)
SELECT DISTINCT ON (hash) hash, name, 'external', manifest::json, :author, :author_id::bigint
FROM unnest(:hash::bytea[], :name::text[], :manifest::text[]) AS k(hash, name, manifest)
WHERE NOT EXISTS (SELECT FROM kernels known WHERE known.hash = k.hash)
ORDER BY hash
ON CONFLICT (hash) DO NOTHING;

-- A row replaces the one of the same kernel, key, environment and tag, unless it is equal. Every
-- import locks rows in the order of (kernel, key_digest).
-- name: imports_store
WITH stored AS (
    INSERT INTO imports AS i (kernel, key_digest, key, environment_digest, environment, tag, config,
                              ms, provenance, format, imported_by, imported_by_id)
    SELECT kernel, key_digest, key::json, :environment_digest::bytea, :environment::json, :tag,
           config::json, ms::double precision[], provenance::json, :format, :author,
           :author_id::bigint
    FROM unnest(:kernel::bytea[], :key_digest::bytea[], :key::text[], :config::text[], :ms::text[],
                :provenance::text[])
         WITH ORDINALITY AS r(kernel, key_digest, key, config, ms, provenance, n)
    ORDER BY n
    ON CONFLICT (kernel, key_digest, environment_digest, tag) DO UPDATE
    SET key = excluded.key, config = excluded.config, ms = excluded.ms,
        provenance = excluded.provenance, format = excluded.format,
        imported_by = excluded.imported_by, imported_by_id = excluded.imported_by_id,
        imported_at = now()
    WHERE (i.config::text, i.ms, i.provenance::text, i.format)
          IS DISTINCT FROM
          (excluded.config::text, excluded.ms, excluded.provenance::text, excluded.format)
    RETURNING i.xmax = 0 AS is_new
)
SELECT count(*) FILTER (WHERE is_new) AS added, count(*) FILTER (WHERE NOT is_new) AS changed
FROM stored;

-- name: imports_list
SELECT i.id, i.kernel, k.name, i.key, i.environment, i.tag, i.config, i.ms, i.provenance, i.format,
       i.imported_by, i.imported_by_id, rfc3339(i.imported_at) AS imported_at
FROM imports i
JOIN kernels k ON k.hash = i.kernel
WHERE i.id > :after::bigint
  AND (:kernel::bytea IS NULL OR i.kernel = :kernel)
  AND (:format::text IS NULL OR i.format = :format)
  AND (:tag::text IS NULL OR i.tag = :tag)
ORDER BY i.id
LIMIT :limit::bigint + 1;

-- name: image_insert
INSERT INTO images (digest, identity, put_by, put_by_id)
VALUES (:digest::bytea, :identity::json, :author, :author_id::bigint)
ON CONFLICT (digest) DO NOTHING;

-- name: image_select
SELECT identity
FROM images
WHERE digest = :digest::bytea;
