-- Entries of channels (entries.h), compatibilities (compatibilities.c) and fetches (fetches.h).

-- Adds to what this server and others stored, in the order in which collect_fetches locks rows.
-- Releases that were removed meanwhile are left out. A release that was only made counts as used,
-- but has no row of a fetch.
-- name: fetches_store
WITH noted AS (
    SELECT n.*
    FROM unnest(:release::bytea[], :kind::text[], :channel::text[], :rule::text[],
                :fetched_by::text[], :fetched_by_id::bigint[], :requests::bigint[],
                :first_ms::bigint[], :last_ms::bigint[])
             AS n (release, kind, channel, rule, fetched_by, fetched_by_id, requests, first_ms,
                   last_ms)
    JOIN releases r ON r.digest = n.release
), used AS (
    INSERT INTO release_fetches (release, fetched_at)
    SELECT DISTINCT release, now()
    FROM noted
    ORDER BY release
    ON CONFLICT (release) DO UPDATE
    SET fetched_at = excluded.fetched_at
)
INSERT INTO release_fetchers AS f (release, kind, channel, rule, fetched_by, fetched_by_id,
                                   requests, first_at, last_at)
SELECT release, kind, coalesce(channel, ''), coalesce(rule, ''), fetched_by, fetched_by_id,
       requests, now() - first_ms * interval '1 ms', now() - last_ms * interval '1 ms'
FROM noted
WHERE kind <> 'none'
ORDER BY release, fetched_by_id, fetched_by, kind, coalesce(channel, ''), coalesce(rule, '')
ON CONFLICT (release, fetched_by_id, fetched_by, kind, channel, rule) DO UPDATE
SET requests = f.requests + excluded.requests,
    first_at = least(f.first_at, excluded.first_at),
    last_at = greatest(f.last_at, excluded.last_at);

-- Keeps the :most rows of each of the releases that were fetched last. Rows that another server
-- just changes stay until the next time.
-- name: fetches_trim
DELETE FROM release_fetchers
WHERE id IN (
    SELECT id
    FROM release_fetchers
    WHERE id IN (
        SELECT id
        FROM (SELECT id, row_number() OVER (PARTITION BY release
                                            ORDER BY last_at DESC, id DESC) AS n
              FROM release_fetchers
              WHERE release = ANY (:release::bytea[])) r
        WHERE n > :most::bigint)
    FOR UPDATE SKIP LOCKED);

-- name: fetches_release
SELECT digest
FROM releases
WHERE digest = :release::bytea;

-- name: fetches_list
SELECT id, kind, nullif(channel, '') AS channel, nullif(rule, '') AS rule, fetched_by,
       fetched_by_id, requests, rfc3339(first_at) AS first_at, rfc3339(last_at) AS last_at
FROM release_fetchers
WHERE release = :release::bytea
  AND id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

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

-- The entries of a channel, tag and regime, in the order in which they were made.
-- name: channel_rows
SELECT c.id, c.name, r.environment, c.tag, c.regime, c.counter, c.release, c.signings,
       rfc3339(c.updated_at) AS updated_at, NULL AS moved_by, NULL AS moved_by_id,
       s.expires, s.signatures
FROM channels c
JOIN releases r ON r.digest = c.release
CROSS JOIN LATERAL entry_signed(c.name, c.tag, c.regime, c.environment_digest, c.counter) s
WHERE c.name = :name AND c.tag = :tag AND c.regime = :regime
ORDER BY c.id;
