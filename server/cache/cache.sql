-- Compatibilities (compatibilities.c) and fetches (fetches.h).

-- Releases that were removed meanwhile are left out.
-- name: fetches_store
INSERT INTO release_fetches (release, fetched_at)
SELECT r.digest, now()
FROM releases r
WHERE r.digest = ANY (:releases::bytea[])
ORDER BY r.digest
ON CONFLICT (release) DO UPDATE
SET fetched_at = excluded.fetched_at;

-- name: compatibilities_load
SELECT id, asked, served, reason
FROM compatibilities
ORDER BY id;

-- Reads one row more than a page has, to see whether there is another page.
-- name: compatibilities_list
SELECT id, asked, served, reason, made_by, made_by_id, rfc3339(made_at) AS made_at
FROM compatibilities
WHERE id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

-- A pair that is declared already keeps its id and gets the newer reason. No row: there are :most
-- compatibilities already.
-- name: compatibility_add
INSERT INTO compatibilities (asked, served, reason, made_by, made_by_id)
SELECT :asked::text::json, :served::text::json, :reason, :author, :author_id::bigint
WHERE (SELECT count(*) FROM compatibilities) < :most::bigint
   OR EXISTS (
          SELECT
          FROM compatibilities
          WHERE (asked::text, served::text) = (:asked, :served))
ON CONFLICT ((asked::text), (served::text)) DO UPDATE
SET reason = excluded.reason, made_by = excluded.made_by, made_by_id = excluded.made_by_id
RETURNING id;

-- name: compatibility_remove
DELETE FROM compatibilities
WHERE id = :id::bigint
RETURNING json_build_object('asked', asked, 'served', served, 'reason', reason) AS detail;
