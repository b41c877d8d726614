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
                                    environment, image, document)
SELECT DISTINCT ON (f.id, r.digest)
       f.id, f.token_id, r.digest, r.key::json, r.key_digest, r.arch, r.triton,
       r.environment::json, COALESCE(r.image, ''), r.document
FROM unnest(:closure::bytea[], :digest::bytea[], :key::text[], :key_digest::bytea[], :arch::text[],
            :triton::text[], :environment::text[], :image::text[], :document::text[])
     AS r(closure, digest, key, key_digest, arch, triton, environment, image, document)
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

-- `tuned`: keys of which a job found a winner. The launches of a key count as the one that is
-- least far, refused ones last. Of the policies that name the function's token, whatever the image,
-- the one that does most.
-- name: captures_list
SELECT f.id, f.closure, f.name, t.name AS owner, rfc3339(f.seen_at) AS seen_at, l.*,
       p.mode AS policy, p.set_by AS policy_of, p.channel AS target
FROM (SELECT *
      FROM captured_functions
      WHERE id > :after::bigint
      ORDER BY id
      LIMIT :limit::bigint + 1) f
LEFT JOIN tokens t ON t.id = f.token_id
LEFT JOIN LATERAL policy_of_captures(t) p ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS keys,
           count(*) FILTER (WHERE state IN ('waiting', 'building')) AS waiting,
           count(*) FILTER (WHERE state = 'building') AS building,
           count(*) FILTER (WHERE state NOT IN ('waiting', 'building', 'refused')) AS built,
           count(*) FILTER (WHERE state = 'refused') AS refused,
           count(*) FILTER (WHERE state = 'built') AS without_job,
           count(*) FILTER (WHERE state = 'queued') AS queued,
           count(*) FILTER (WHERE state = 'tuning') AS tuning,
           count(*) FILTER (WHERE state IN ('tuned', 'released', 'proposed', 'served')) AS tuned,
           count(*) FILTER (WHERE state = 'undecided') AS undecided,
           count(*) FILTER (WHERE state IN ('failed', 'cancelled')) AS failed,
           count(*) FILTER (WHERE state = 'proposed') AS proposed,
           count(*) FILTER (WHERE state = 'released') AS released,
           count(*) FILTER (WHERE state = 'served') AS served,
           min(s.refused) AS why,
           min(not_queued) FILTER (WHERE state = 'built') AS not_queued,
           COALESCE(min(job) FILTER (WHERE state = 'tuning'), min(job) FILTER (WHERE state = 'queued'),
                    min(job) FILTER (WHERE state = 'undecided'),
                    min(job) FILTER (WHERE state IN ('failed', 'cancelled')), min(job)) AS job,
           min(reason) FILTER (WHERE state IN ('failed', 'cancelled')) AS reason,
           min(s.proposal) FILTER (WHERE state = 'proposed') AS proposal,
           min(s.channel) AS channel
    FROM (SELECT DISTINCT ON (o.key_digest, o.environment::text, o.image) o.key_digest, s.*
          FROM captured_launches o
          JOIN capture_states s USING (id)
          WHERE o.function_id = f.id
          ORDER BY o.key_digest, o.environment::text, o.image, s.state = 'refused',
                   s.state NOT IN ('waiting', 'building'), o.id) s) l
ORDER BY f.id;

-- name: captures_function
SELECT f.id, f.token_id, f.document
FROM captured_functions f
WHERE f.id = :id::bigint;

-- name: captures_launches
SELECT l.id, l.function_id AS function, l.key, l.arch, l.triton, l.image, l.document,
       rfc3339(l.seen_at) AS seen_at, l.seen, l.build, l.kernel, l.refused, l.not_queued, s.state,
       s.job, s.reason, s.proposal, s.channel, t.name AS owner, p.mode AS policy,
       p.set_by AS policy_of, p.channel AS target
FROM captured_launches l
JOIN capture_states s ON s.id = l.id
LEFT JOIN tokens t ON t.id = l.token_id
LEFT JOIN LATERAL policy_of_captures(t) p ON true
WHERE l.function_id = :function::bigint
ORDER BY l.id;

-- name: captures_remove
DELETE FROM captured_functions
WHERE id = :id::bigint
RETURNING name;

-- What a builder leases: of the oldest function that has launches that wait, up to :most launches of
-- the keys of these, which are locked. Launches of one key are built together, so that those that
-- were built already are built again. Rows that another builder is leasing are left to it.
-- name: captures_choose
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
), free AS (
    SELECT l.id, l.key_digest, l.build
    FROM captured_launches l
    JOIN next USING (function_id)
    WHERE l.refused IS NULL
      AND (l.leased_until IS NULL OR l.leased_until < now())
      AND l.triton = :triton
      AND l.arch = ANY (:arches)
), keys AS (
    SELECT key_digest, min(id) AS first, count(*) AS own,
           sum(count(*)) OVER (ORDER BY min(id)) AS with_earlier
    FROM free
    GROUP BY key_digest
    HAVING bool_or(build IS NULL)
), mine AS (
    SELECT l.id
    FROM keys k
    JOIN free f USING (key_digest)
    JOIN captured_launches l ON l.id = f.id
    WHERE l.refused IS NULL
      AND (l.leased_until IS NULL OR l.leased_until < now())
      AND (k.with_earlier <= :most::bigint OR k.with_earlier = k.own)
    ORDER BY k.first, l.id
    LIMIT :most
    FOR UPDATE OF l SKIP LOCKED
)
SELECT l.id, l.document, f.document AS function
FROM mine
JOIN captured_launches l USING (id)
JOIN captured_functions f ON f.id = l.function_id
ORDER BY l.id;

-- Leased launches that have a build wait for one again.
-- name: captures_rebuild
UPDATE captured_launches
SET build = NULL
WHERE id = ANY (:ids::bigint[]) AND build IS NOT NULL;

-- name: captures_keys
SELECT id, key
FROM captured_launches
WHERE id = ANY (:ids::bigint[]);

-- name: captures_build
SELECT b.build, k.manifest
FROM builds b
JOIN kernels k ON k.hash = b.kernel
WHERE b.digest = :digest::bytea;

-- Results of a builder, for launches that it holds. An unknown build changes nothing.
-- name: captures_results
WITH spaces_of_keys AS (
    INSERT INTO spaces (digest, space)
    SELECT DISTINCT r.space_digest, r.space
    FROM unnest(:space_digest::bytea[], :space::text[]) AS r(space_digest, space)
    WHERE r.space_digest IS NOT NULL
    ON CONFLICT (digest) DO NOTHING
)
UPDATE captured_launches l
SET build = b.digest, kernel = b.kernel, refused = r.refused, space_digest = r.space_digest,
    configs = r.configs, job_id = NULL, not_queued = NULL, decided_at = NULL,
    key = COALESCE(r.key::json, l.key), key_digest = COALESCE(r.key_digest, l.key_digest)
FROM unnest(:id::bigint[], :build::bytea[], :refused::text[], :key::text[], :key_digest::bytea[],
            :space_digest::bytea[], :configs::bigint[])
     AS r(id, build, refused, key, key_digest, space_digest, configs)
LEFT JOIN builds b ON b.digest = r.build
WHERE l.id = r.id
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
