-- What containers agree on (agreed.c).

-- For each key that at least :measured nodes measured: the config that most nodes, and at least
-- :nodes, found best or within 2 % of their best. Of several configs with as many nodes, the one
-- that most nodes found best; then the first by its text. The next ones by that order, up to :most,
-- take its place where it is banned. :is_overridden: keys without such a config are returned too,
-- for pins. tuning_ms is the median of the nodes, which one of them cannot move far; the name is
-- what most of them state. Nodes with the same list are counted before it is unfolded.
-- name: agreed_choices
WITH lately AS MATERIALIZED (
    SELECT function, key_digest, name, key, near::text AS near, tuning_ms
    FROM evidence
    WHERE environment_digest = :environment_digest::bytea
      AND tag = :tag
      AND regime = :regime
      AND last_at > now() - make_interval(days => :days::int)
), measured AS (
    SELECT function, key_digest, count(*) AS measured,
           mode() WITHIN GROUP (ORDER BY name) AS name, min(key::text) AS key,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY tuning_ms) AS tuning_ms
    FROM lately
    GROUP BY function, key_digest
    HAVING count(*) >= :measured::bigint
), lists AS (
    SELECT function, key_digest, near, count(*) AS nodes
    FROM lately
    GROUP BY function, key_digest, near
), votes AS (
    SELECT function, key_digest, config::text AS config, sum(nodes)::bigint AS nodes,
           sum(nodes) FILTER (WHERE place = 1) AS best
    FROM lists
    CROSS JOIN json_array_elements(near::json) WITH ORDINALITY AS c(config, place)
    GROUP BY function, key_digest, config::text
    HAVING sum(nodes) >= :nodes::bigint
), ranked AS (
    SELECT function, key_digest, config, nodes,
           row_number() OVER (PARTITION BY function, key_digest
                              ORDER BY nodes DESC, best DESC NULLS LAST, config) AS rank
    FROM votes
)
SELECT function, m.name, m.key, r.config, r.nodes, m.measured, m.tuning_ms
FROM measured m
LEFT JOIN ranked r USING (function, key_digest)
WHERE r.rank <= :most::bigint
   OR (r.rank IS NULL AND :is_overridden::boolean)
ORDER BY function, key_digest, r.rank;

-- Whether there is evidence of a place.
-- name: agreed_is_there
SELECT id
FROM evidence
WHERE environment_digest = :environment_digest::bytea
  AND tag = :tag
  AND regime = :regime
LIMIT 1;

-- At most :most places that got evidence in the last :seconds, the latest first.
-- name: agreed_places
SELECT environment_digest, min(environment::text)::json AS environment, tag, regime
FROM evidence
WHERE last_at > now() - make_interval(secs => :seconds::float8)
GROUP BY environment_digest, tag, regime
ORDER BY max(last_at) DESC
LIMIT :most::bigint;
