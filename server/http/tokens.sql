-- Tokens for authorising requests, and the secret of the database (server/http/tokens.h).

-- name: identities_secret_make
INSERT INTO secrets (name, secret)
VALUES ('leases', :secret::bytea)
ON CONFLICT (name) DO NOTHING;

-- name: identities_secret
SELECT secret
FROM secrets
WHERE name = 'leases';

-- name: tokens_live
SELECT id, name, array_to_string(array_prepend(role, also), ',') AS role, digest, agent, replaces,
       (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, false AS is_expired
FROM tokens t
WHERE token_is_live(t);

-- name: tokens_find
SELECT id, name, array_to_string(array_prepend(role, also), ',') AS role, digest, agent, replaces,
       (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms,
       COALESCE(expires_at <= now(), false) AS is_expired
FROM tokens
WHERE revoked_at IS NULL
  AND digest = ANY (:digests::bytea[]);

-- A replaced token stays valid for longer than a long poll that began with it.
-- name: tokens_settle_used
WITH used AS (
    SELECT id, replaces
    FROM tokens
    WHERE id = ANY (:ids::bigint[])
      AND replaces IS NOT NULL
    FOR UPDATE
), ended AS (
    UPDATE tokens t
    SET expires_at = LEAST(COALESCE(t.expires_at, 'infinity'), now() + interval '40 s')
    FROM used
    WHERE t.id = used.replaces
)
UPDATE tokens t
SET replaces = NULL
FROM used
WHERE t.id = used.id;
