-- Signatures over the choices of releases (choices.h).

-- The channels that point at a release.
-- name: choices_channels
SELECT DISTINCT name
FROM channels
WHERE release = :release::bytea
ORDER BY name;

-- A new signature by a key replaces the older one. A signature by another key is not stored when
-- the release has :most of them.
-- name: choices_sign
INSERT INTO choices_signatures (release, key, choices, signature)
SELECT :release::bytea, :key::bytea, :choices::bytea, :signature
WHERE (SELECT count(*)
       FROM choices_signatures
       WHERE release = :release
         AND key <> :key) < :most::bigint
ON CONFLICT (release, key) DO UPDATE
SET choices = excluded.choices, signature = excluded.signature, signed_at = now()
RETURNING key;

-- name: choices_signatures
SELECT key, signature
FROM choices_signatures
WHERE release = :release::bytea
  AND choices = :choices::bytea
ORDER BY signed_at, key;
