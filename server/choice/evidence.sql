-- Evidence: what containers measured themselves (choices.h).

-- Keeps the last measurement of a node for each key; the input may have a key twice. New rows are
-- dropped when there are :rows_max, or :token_rows_max of the token. Rows are locked in the order
-- of the unique index.
-- name: evidence_add
INSERT INTO evidence AS e (environment_digest, environment, tag, regime, function, key_digest,
                           token_id, node, name, key, near, configs, ms, tuning_ms)
SELECT DISTINCT ON (r.function, r.key_digest)
       :environment_digest::bytea, :environment::json, :tag::text, :regime::text, r.function,
       r.key_digest, :token::bigint, :node::text, r.name, r.key::json, r.near::json, r.configs,
       r.ms, r.tuning_ms
FROM unnest(:function::bytea[], :key_digest::bytea[], :name::text[], :key::text[], :near::text[],
            :configs::bigint[], :ms::float8[], :tuning_ms::float8[])
     AS r(function, key_digest, name, key, near, configs, ms, tuning_ms)
WHERE EXISTS (
          SELECT
          FROM evidence o
          WHERE (o.environment_digest, o.tag, o.regime, o.function, o.key_digest, o.token_id,
                 o.node)
                = (:environment_digest, :tag, :regime, r.function, r.key_digest, :token, :node))
   OR ((SELECT count(*) FROM (SELECT FROM evidence LIMIT :rows_max::bigint) kept) < :rows_max
       AND (SELECT count(*)
            FROM (SELECT FROM evidence WHERE token_id = :token LIMIT :token_rows_max::bigint) kept)
           < :token_rows_max)
ORDER BY r.function, r.key_digest
ON CONFLICT (environment_digest, tag, regime, function, key_digest, token_id, node) DO UPDATE
SET name = excluded.name, near = excluded.near, configs = excluded.configs, ms = excluded.ms,
    tuning_ms = excluded.tuning_ms, last_at = now()
RETURNING e.id;

-- Removes rows that are older than :days. Rows that a report is changing are left out, so that two
-- statements never wait for each other.
-- name: evidence_collect
DELETE FROM evidence
WHERE id IN (SELECT id
             FROM evidence
             WHERE last_at < now() - make_interval(days => :days::int)
             ORDER BY last_at
             LIMIT :at_once::bigint
             FOR UPDATE SKIP LOCKED);

-- A channel that has the tag.
-- name: evidence_tag
SELECT id
FROM channels
WHERE tag = :tag
LIMIT 1;
