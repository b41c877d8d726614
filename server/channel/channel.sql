-- Channels: where each (name, tag, regime, environment) points, its history, and the signatures of
-- its entries (server/channel/channel_routes.c).

-- Reads one row more than a page has, to see whether there is another page.
-- name: channels_list
SELECT c.id, c.name, r.environment, c.tag, c.regime, c.counter, c.release, c.signings,
       rfc3339(c.updated_at) AS updated_at, NULL AS moved_by, NULL AS moved_by_id,
       s.expires, s.signatures
FROM channels c
JOIN releases r ON r.digest = c.release
CROSS JOIN LATERAL entry_signed(c.name, c.tag, c.regime, c.environment_digest, c.counter) s
WHERE c.id > :after::bigint
ORDER BY c.id
LIMIT :limit::bigint + 1;

-- The row of a channel for a release's environment, tag and regime. The counter is 0 where there is
-- no entry yet.
-- name: channel_of_release
SELECT c.id, :name::text AS name, r.environment, r.tag, r.regime,
       COALESCE(c.counter, 0) AS counter, c.release, COALESCE(c.signings, 0) AS signings,
       rfc3339(c.updated_at) AS updated_at, NULL AS moved_by, NULL AS moved_by_id,
       s.expires, s.signatures
FROM releases r
LEFT JOIN channels c ON c.name = :name AND c.tag = r.tag AND c.regime = r.regime
                    AND c.environment_digest = r.environment_digest
CROSS JOIN LATERAL entry_signed(c.name, c.tag, c.regime, c.environment_digest, c.counter) s
WHERE r.digest = :release::bytea;

-- The history of a row of channels.
-- name: channel_entries_list
SELECT c.counter AS id, c.name, :environment::json AS environment, c.tag, c.regime, c.counter,
       c.release, 0 AS signings, rfc3339(c.moved_at) AS updated_at, c.moved_by, c.moved_by_id,
       signed_expiry(c.expires_at) AS expires, s.signatures
FROM channel_entries c
CROSS JOIN LATERAL entry_signed(c.name, c.tag, c.regime, c.environment_digest, c.counter) s
WHERE c.name = :name AND c.tag = :tag AND c.regime = :regime
  AND c.environment_digest = :environment_digest::bytea
  AND c.counter < :before::bigint
ORDER BY c.counter DESC
LIMIT :limit::bigint + 1;

-- Moves a row only if it has the counter and signings that were read; counter 0: there was no row.
-- A counter is never used again, so these two identify the state. An open proposal of the release
-- is then promoted. The statement cannot read the rows that it inserts, so it returns expiry and
-- signatures as they were given.
-- name: channel_move
WITH target AS (
  SELECT digest, environment_digest, environment, tag, regime
  FROM releases
  WHERE digest = :release::bytea
), created AS (
  INSERT INTO channels (name, environment_digest, tag, regime, release, counter)
  SELECT :name, environment_digest, tag, regime, digest, 1
  FROM target
  WHERE :from_counter::bigint = 0
  ON CONFLICT (name, tag, regime, environment_digest) DO NOTHING
  RETURNING *
), moved AS (
  UPDATE channels c
  SET release = t.digest, counter = c.counter + 1, updated_at = now()
  FROM target t
  WHERE c.name = :name AND c.tag = t.tag AND c.regime = t.regime
    AND c.environment_digest = t.environment_digest
    AND c.counter = :from_counter AND c.signings = :from_signings::bigint
  RETURNING c.*
), c AS (
  SELECT * FROM created
  UNION ALL
  SELECT * FROM moved
), entry AS (
  INSERT INTO channel_entries (name, environment_digest, tag, regime, counter, release,
                               moved_by, moved_by_id, moved_at, expires_at)
  SELECT name, environment_digest, tag, regime, counter, release,
         :author, :author_id::bigint, updated_at, (:expires::json #>> '{}')::timestamptz
  FROM c
), signed AS (
  INSERT INTO channel_signatures (name, environment_digest, tag, regime, counter,
                                  key, signature, added_by, added_by_id)
  SELECT name, environment_digest, tag, regime, counter,
         decode(substr(s ->> 'key', 8), 'hex'), s ->> 'signature', :author, :author_id
  FROM c, json_array_elements(:signatures::json) s
), promoted AS (
  UPDATE proposals p
  SET state = 'promoted', decided_at = now(), decided_by = :author, decided_by_id = :author_id
  FROM c
  WHERE p.channel = c.name AND p.release = c.release AND p.state = 'open'
)
SELECT c.id, c.name, t.environment, c.tag, c.regime, c.counter, c.release, c.signings,
       rfc3339(c.updated_at) AS updated_at, NULL AS moved_by, NULL AS moved_by_id,
       :expires::json AS expires, :signatures::json AS signatures
FROM c, target t;

-- Adds a signature only to the state that was read. It replaces an earlier one by the same key.
-- name: channel_signature_add
WITH c AS (
  UPDATE channels
  SET signings = signings + 1
  WHERE id = :id AND counter = :counter AND signings = :signings
  RETURNING *
), added AS (
  INSERT INTO channel_signatures (name, environment_digest, tag, regime, counter,
                                  key, signature, added_by, added_by_id)
  SELECT name, environment_digest, tag, regime, counter,
         :key::bytea, :signature, :author, :author_id::bigint
  FROM c
  ON CONFLICT (name, tag, regime, environment_digest, counter, key) DO UPDATE
  SET signature = excluded.signature, added_by = excluded.added_by,
      added_by_id = excluded.added_by_id, added_at = excluded.added_at
)
SELECT id FROM c;

-- name: lookups_state
SELECT hashtextextended(
         concat_ws(' ',
                   (SELECT sum(counter + signings) FROM channels),
                   (SELECT sum(s.xmin::text::bigint)
                    FROM (SELECT DISTINCT release FROM channels) c
                    JOIN choices_signatures s USING (release)),
                   (SELECT string_agg(id || ':' || xmin, ' ' ORDER BY id) FROM compatibilities)),
         0) AS state;
