-- Launches that programs recorded (captures.h).

-- Rows are locked in the order of the unique index. New functions beyond :functions_max of the
-- token are dropped.
-- name: captures_functions_add
INSERT INTO captured_functions AS f (token_id, closure, name, document)
SELECT DISTINCT ON (r.closure) :token::bigint, r.closure, r.name, r.document
FROM unnest(:closure::bytea[], :name::text[], :document::text[]) AS r(closure, name, document)
WHERE EXISTS (SELECT
              FROM captured_functions o
              WHERE (o.token_id, o.closure) = (:token, r.closure))
   OR (SELECT count(*)
       FROM (SELECT
             FROM captured_functions
             WHERE token_id = :token
             LIMIT :functions_max::bigint) kept) < :functions_max
ORDER BY r.closure
ON CONFLICT (token_id, closure) DO UPDATE
SET seen_at = now()
RETURNING f.id;

-- Launches of functions of the token. New ones beyond :keys_max of a function, or beyond :day_max
-- that the token made within a day, are dropped.
-- name: captures_launches_add
INSERT INTO captured_launches AS l (function_id, token_id, digest, key, key_digest, arch, triton,
                                    document)
SELECT DISTINCT ON (f.id, r.digest)
       f.id, f.token_id, r.digest, r.key::json, r.key_digest, r.arch, r.triton, r.document
FROM unnest(:closure::bytea[], :digest::bytea[], :key::text[], :key_digest::bytea[], :arch::text[],
            :triton::text[], :document::text[])
     AS r(closure, digest, key, key_digest, arch, triton, document)
JOIN captured_functions f ON f.token_id = :token::bigint
                         AND f.closure = r.closure
WHERE EXISTS (SELECT
              FROM captured_launches o
              WHERE (o.function_id, o.digest) = (f.id, r.digest))
   OR ((SELECT count(*)
        FROM (SELECT
              FROM captured_launches
              WHERE function_id = f.id
              LIMIT :keys_max::bigint) kept) < :keys_max
       AND (SELECT count(*)
            FROM (SELECT
                  FROM captured_launches
                  WHERE token_id = :token
                    AND created_at > now() - interval '1 day'
                  LIMIT :day_max::bigint) made) < :day_max)
ORDER BY f.id, r.digest
ON CONFLICT (function_id, digest) DO UPDATE
SET seen_at = now(), seen = l.seen + 1
RETURNING l.id;

-- A key is tuned when a job of the build's kernel has a winner for it.
-- name: captures_list
SELECT f.id, f.closure, f.name, t.name AS owner, rfc3339(f.seen_at) AS seen_at, l.*
FROM (SELECT * FROM captured_functions WHERE id > :after::bigint ORDER BY id LIMIT :limit::bigint) f
LEFT JOIN tokens t ON t.id = f.token_id
CROSS JOIN LATERAL (
    SELECT count(*) AS keys,
           count(*) FILTER (WHERE build IS NULL AND refused IS NULL) AS waiting,
           count(*) FILTER (WHERE build IS NULL AND refused IS NULL
                                  AND leased_until > now()) AS building,
           count(build) AS built,
           count(refused) AS refused,
           count(*) FILTER (
               WHERE build IS NOT NULL
                 AND EXISTS (SELECT
                             FROM jobs j
                             JOIN winners w ON w.job_id = j.id
                             WHERE j.kernel = c.kernel
                               AND j.key_digest = c.key_digest
                               AND j.state = 'done')) AS tuned,
           min(refused) AS why
    FROM captured_launches c
    WHERE c.function_id = f.id) l
ORDER BY f.id;

-- name: captures_function
SELECT f.id, f.token_id, f.document
FROM captured_functions f
WHERE f.id = :id::bigint;

-- name: captures_launches
SELECT id, key, arch, triton, document, rfc3339(seen_at) AS seen_at, seen, build, kernel, refused,
       leased_until > now() AND build IS NULL AND refused IS NULL AS is_building
FROM captured_launches
WHERE function_id = :function::bigint
ORDER BY id;

-- name: captures_remove
DELETE FROM captured_functions
WHERE id = :id::bigint
RETURNING name;

-- Leases the oldest function that has launches that wait, and up to :most of these. Rows that
-- another builder is leasing are left to it.
-- name: captures_lease
WITH next AS (
    SELECT function_id
    FROM captured_launches
    WHERE build IS NULL
      AND refused IS NULL
      AND (leased_until IS NULL OR leased_until < now())
      AND triton = :triton
      AND arch = ANY (:arches::text[])
    ORDER BY id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), mine AS (
    SELECT l.id
    FROM captured_launches l
    JOIN next USING (function_id)
    WHERE l.build IS NULL
      AND l.refused IS NULL
      AND (l.leased_until IS NULL OR l.leased_until < now())
      AND l.triton = :triton
      AND l.arch = ANY (:arches)
    ORDER BY l.id
    LIMIT :most::bigint
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE captured_launches l
SET leased_until = now() + make_interval(secs => :lease_s::int), leased_by = :author,
    epoch = l.epoch + 1
FROM mine, captured_functions f
WHERE l.id = mine.id
  AND f.id = l.function_id
RETURNING l.id, l.epoch, l.document, f.document AS function;

-- Results of a builder. One without build and refusal says that the builder still works at it. An
-- unknown build, a removed launch and an older epoch change nothing.
-- name: captures_results
UPDATE captured_launches l
SET build = b.digest, kernel = b.kernel, refused = r.refused,
    leased_until = CASE WHEN r.build IS NULL AND r.refused IS NULL
                        THEN now() + make_interval(secs => :lease_s::int) END
FROM unnest(:id::bigint[], :epoch::bigint[], :build::bytea[], :refused::text[])
     AS r(id, epoch, build, refused)
LEFT JOIN builds b ON b.digest = r.build
WHERE l.id = r.id
  AND l.epoch = r.epoch
  AND l.build IS NULL
  AND l.refused IS NULL
  AND (r.build IS NULL) = (b.digest IS NULL)
RETURNING l.id;

-- name: captures_collect
DELETE FROM captured_launches
WHERE id IN (SELECT id
             FROM captured_launches
             WHERE seen_at < now() - make_interval(days => :days::int)
             ORDER BY seen_at
             LIMIT :at_once::bigint
             FOR UPDATE SKIP LOCKED);

-- name: captures_collect_functions
DELETE FROM captured_functions f
WHERE seen_at < now() - make_interval(days => :days::int)
  AND NOT EXISTS (SELECT FROM captured_launches l WHERE l.function_id = f.id);
