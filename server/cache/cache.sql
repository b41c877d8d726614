-- What containers ask for: compatibilities (compatibilities.h) and fetches (fetches.h).

-- A release that is removed meanwhile is left out.
-- name: fetches_store
INSERT INTO release_fetches (release, fetched_at)
SELECT r.digest, now()
FROM releases r
WHERE r.digest = ANY (:releases::bytea[])
ORDER BY r.digest
ON CONFLICT (release) DO UPDATE
SET fetched_at = excluded.fetched_at;
