-- Content-addressed files (blobs.h), and the removal of unneeded releases, files and demand
-- (collect.c).

-- A file that is stored already and sent again is about to be named, so it is kept as long as a new
-- one.
-- name: blob_insert
INSERT INTO blobs AS b (digest, size, put_by, put_by_id)
VALUES (:digest::bytea, :size::bigint, :author, :author_id::bigint)
ON CONFLICT (digest) DO UPDATE
SET created_at = now()
WHERE b.created_at < now() - interval '1 hour'
RETURNING xmax = 0 AS is_new;

-- name: blob_usage
SELECT COALESCE(sum(bytes), 0)::bigint AS bytes
FROM blob_usage
WHERE token_id = :token::bigint;

-- name: blob_chunk_insert
INSERT INTO blob_chunks (digest, ordinal, bytes)
VALUES (:digest::bytea, :ordinal::integer, :bytes::bytea);

-- name: blob_size
SELECT size
FROM blobs
WHERE digest = :digest::bytea;

-- name: blob_chunk
SELECT bytes
FROM blob_chunks
WHERE digest = :digest::bytea
  AND ordinal = :ordinal::integer;

-- The indices, from 0, of the digests that are not stored.
-- name: blobs_missing
SELECT i - 1 AS i
FROM unnest(:digests::bytea[]) WITH ORDINALITY AS wanted (digest, i)
WHERE NOT EXISTS (SELECT FROM blobs WHERE blobs.digest = wanted.digest)
ORDER BY i;

-- The releases that are due; removed where :remove is true. A channel keeps its last :entries
-- releases, not entries, because a renewal makes another entry of the same release. Releases that
-- another server removes meanwhile are left out.
-- name: collect_releases
WITH due AS (
    SELECT digest
    FROM releases r
    WHERE created_at < now() - make_interval(days => :keep_days::int)
      AND NOT EXISTS (SELECT FROM channels c WHERE c.release = r.digest)
      AND NOT EXISTS (SELECT FROM proposals p WHERE p.release = r.digest AND p.state = 'open')
      AND NOT EXISTS (
          SELECT
          FROM (SELECT release,
                       row_number() OVER (PARTITION BY name, tag, regime, environment_digest
                                          ORDER BY max(counter) DESC) AS n
                FROM channel_entries
                GROUP BY name, tag, regime, environment_digest, release) e
          WHERE e.release = r.digest
            AND e.n <= :entries::bigint)
      AND NOT EXISTS (
          SELECT
          FROM release_fetches f
          WHERE f.release = r.digest
            AND f.fetched_at >= now() - make_interval(days => :keep_days))
    ORDER BY id
    LIMIT :at_once::bigint
), locked AS (
    SELECT digest
    FROM releases
    WHERE :remove::bool
      AND digest IN (SELECT digest FROM due)
    ORDER BY id
    FOR UPDATE
), gone AS (
    DELETE FROM releases
    WHERE digest IN (SELECT digest FROM locked)
    RETURNING digest
)
SELECT digest, tag, winners, length(bytes) AS bytes, rfc3339(created_at) AS created_at
FROM releases
WHERE digest IN (SELECT digest FROM due)
  AND (NOT :remove OR digest IN (SELECT digest FROM gone))
ORDER BY id;

-- The time is compared again under the lock, because the file may have been sent again meanwhile.
-- name: collect_files
WITH due AS (
    SELECT digest, size
    FROM blobs b
    WHERE created_at < now() - make_interval(days => :keep_days::int)
      AND NOT EXISTS (SELECT FROM kernel_files k WHERE k.digest = b.digest)
      AND NOT EXISTS (SELECT FROM build_files f WHERE f.digest = b.digest)
      AND NOT EXISTS (SELECT FROM measurement_objects o WHERE o.object = b.digest)
    ORDER BY digest
    LIMIT :at_once::bigint
), locked AS (
    SELECT digest
    FROM blobs
    WHERE :remove::bool
      AND digest IN (SELECT digest FROM due)
      AND created_at < now() - make_interval(days => :keep_days)
    ORDER BY digest
    FOR UPDATE
), gone AS (
    DELETE FROM blobs
    WHERE digest IN (SELECT digest FROM locked)
    RETURNING digest
)
SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes
FROM due
WHERE NOT :remove OR digest IN (SELECT digest FROM gone);

-- Locks the rows in the same order as reports of demand do. After waiting for a row that a report
-- changed, PostgreSQL reads it again.
-- name: collect_demand
WITH locked AS (
    SELECT id
    FROM demand
    WHERE :remove::bool
      AND last_at < now() - make_interval(days => :keep_days::int)
    ORDER BY kernel, key_digest
    FOR UPDATE
), gone AS (
    DELETE FROM demand
    WHERE id IN (SELECT id FROM locked)
    RETURNING id
)
SELECT CASE WHEN :remove
            THEN (SELECT count(*) FROM gone)
            ELSE (SELECT count(*) FROM demand
                  WHERE last_at < now() - make_interval(days => :keep_days))
       END AS n;

-- Locks the rows in the same order as fetches_store does.
-- name: collect_fetches
WITH locked AS (
    SELECT id
    FROM release_fetchers
    WHERE :remove::bool
      AND last_at < now() - make_interval(days => :keep_days::int)
    ORDER BY release, fetched_by_id, fetched_by, kind, channel, rule
    LIMIT :at_once::bigint
    FOR UPDATE
), gone AS (
    DELETE FROM release_fetchers
    WHERE id IN (SELECT id FROM locked)
    RETURNING id
)
SELECT CASE WHEN :remove
            THEN (SELECT count(*) FROM gone)
            ELSE (SELECT count(*) FROM release_fetchers
                  WHERE last_at < now() - make_interval(days => :keep_days))
       END AS n;

-- The update finds no row unless a collection is due: of several servers one gets it.
-- name: collection_claim
UPDATE collection_due
SET at = now() + interval '1 day'
WHERE at <= now();

-- name: collection_postpone
UPDATE collection_due
SET at = now() + make_interval(mins => :minutes::int);
