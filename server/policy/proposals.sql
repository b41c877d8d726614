-- Proposals (proposals.h).

-- Changes when a capture, build, job, winner, channel, proposal or policy does.
-- name: proposals_state
SELECT sha256(convert_to(concat_ws(' ',
           (SELECT max(id) FROM captured_launches),
           (SELECT count(*) FROM captured_launches WHERE build IS NULL AND refused IS NULL),
           (SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')),
           (SELECT max(id) FROM jobs), (SELECT max(at) FROM winners),
           (SELECT sum(counter) FROM channels),
           (SELECT max(id) FROM proposals), (SELECT count(*) FROM proposals WHERE state = 'open'),
           (SELECT string_agg(concat_ws(' ', id, set_at, acts, token), ' ' ORDER BY id)
            FROM policy_states)),
                         'UTF8')) AS state;

-- Replaced ones are kept for a while, for people who look for them.
-- name: proposals_collect
DELETE FROM proposals
WHERE state = 'replaced'
  AND decided_at < now() - make_interval(days => :days::int);

-- The environments for which a policy covers images that are done, with what there is to release.
-- `seen` changes with it.
-- name: proposals_places
WITH covered AS (
    SELECT s.*
    FROM policies p
    JOIN tokens t ON p.tokens && ARRAY[t.name, '*'] AND t.revoked_at IS NULL
    JOIN capture_states s ON s.token_id = t.id AND image_fits(s.image, p.images)
    WHERE p.id = :policy::bigint
), done AS (
    SELECT image, hardware
    FROM covered
    GROUP BY image, hardware
    HAVING bool_and(state NOT IN ('waiting', 'building', 'built', 'queued', 'tuning', 'undecided'))
), places AS (
    SELECT environment_id, array_agg(DISTINCT image ORDER BY image) AS images,
           array_agg(DISTINCT digest_text(kernel)) AS kernels, max(job) AS job, count(*) AS n
    FROM covered
    JOIN done USING (image, hardware)
    WHERE state IN ('tuned', 'released', 'proposed', 'served')
    GROUP BY environment_id
)
SELECT e.digest AS environment_digest, e.identity AS environment, w.images,
       array_to_json(w.images) AS image_list, array_to_json(w.kernels) AS kernel_list,
       c.release AS served,
       sha256(convert_to(concat_ws(' ', w.images, w.kernels, w.job, w.n, c.counter, c.release,
                                   p.channel, p.set_at, p.require), 'UTF8')) AS seen
FROM places w
JOIN policies p ON p.id = :policy
JOIN environments e ON e.id = w.environment_id
LEFT JOIN channels c ON c.name = p.channel AND c.tag = 'default' AND c.regime = :regime
                    AND c.environment_digest = e.digest;

-- Of the place, the open proposal, and whether the release was rejected.
-- name: proposals_present
SELECT (SELECT id
        FROM proposals
        WHERE channel = :channel AND environment_digest = :environment_digest::bytea
          AND tag = :tag AND regime = :regime AND state = 'open' AND release = :release::bytea
          AND etag IS NOT DISTINCT FROM :etag) AS same,
       EXISTS (SELECT
               FROM proposals
               WHERE channel = :channel AND release = :release AND state = 'rejected')
           AS is_rejected;

-- Ends open proposals: those of a place, or with no place those to channels without a policy.
-- name: proposals_replace
UPDATE proposals
SET state = 'replaced', reason = :reason, decided_at = now(), decided_by = :author,
    decided_by_id = :author_id::bigint
WHERE state = 'open'
  AND CASE WHEN :environment_digest::bytea IS NULL
           THEN channel NOT IN (SELECT p.channel FROM policies p WHERE p.channel IS NOT NULL)
           ELSE channel = :channel AND environment_digest = :environment_digest AND tag = :tag
                AND regime = :regime END
RETURNING id, channel;

-- name: proposals_add
INSERT INTO proposals (channel, release, environment_digest, environment, tag, regime, winners,
                       images, etag, changes)
VALUES (:channel, :release::bytea, :environment_digest::bytea, :environment::json, :tag, :regime,
        :winners::bigint, :images::text[], :etag, :changes::json)
RETURNING id;

-- name: proposals_list
SELECT p.id, p.channel, p.release, p.environment, p.tag, p.regime, p.winners, p.images, p.etag,
       p.state, p.reason, rfc3339(p.made_at) AS made_at, rfc3339(p.decided_at) AS decided_at,
       p.decided_by, p.decided_by_id, COALESCE(o.promote, false) AS promote,
       json_array_length(p.changes -> 'added') AS added,
       json_array_length(p.changes -> 'removed') AS removed,
       json_array_length(p.changes -> 'changed') AS changed, NULL AS changes
FROM proposals p
LEFT JOIN policies o ON o.channel = p.channel
WHERE p.id < :before::bigint
ORDER BY p.id DESC
LIMIT :limit::bigint + 1;

-- name: proposals_get
SELECT p.id, p.channel, p.release, p.environment, p.tag, p.regime, p.winners, p.images, p.etag,
       p.state, p.reason, rfc3339(p.made_at) AS made_at, rfc3339(p.decided_at) AS decided_at,
       p.decided_by, p.decided_by_id, COALESCE(o.promote, false) AS promote,
       json_array_length(p.changes -> 'added') AS added,
       json_array_length(p.changes -> 'removed') AS removed,
       json_array_length(p.changes -> 'changed') AS changed, p.changes
FROM proposals p
LEFT JOIN policies o ON o.channel = p.channel
WHERE p.id = :id::bigint;

-- name: proposals_reject
UPDATE proposals
SET state = 'rejected', reason = :reason, decided_at = now(), decided_by = :author,
    decided_by_id = :author_id::bigint
WHERE id = :id::bigint
  AND state = 'open'
RETURNING id;

-- name: proposals_open
SELECT id, channel, release, etag
FROM proposals
WHERE state = 'open'
  AND channel = :channel;
