-- Tokens: made, listed, revoked (server/token/tokens.h). The statements that authorise requests are
-- in server/http/tokens.sql.

-- Frees the name of an expired token.
-- name: tokens_end_expired
UPDATE tokens
SET revoked_at = expires_at
WHERE name = :name
  AND revoked_at IS NULL
  AND expires_at <= now();

-- A certificate's digest is always the same, and digests are unique: a token that has ended gets
-- another one.
-- name: tokens_free_digest
UPDATE tokens t
SET digest = sha256(digest || convert_to(id::text, 'UTF8'))
WHERE digest = :digest::bytea
  AND NOT token_is_live(t);

-- name: tokens_make
INSERT INTO tokens (name, role, also, digest, expires_at, uses_left, agent_name, environment, agent,
                    replaces, channels, made_by, made_by_id, certificate)
VALUES (:name, split_part(:role, ',', 1)::token_role,
        (string_to_array(:role, ','))[2:]::token_role[], :digest::bytea,
        now() + :expires_in_ms::bigint * interval '1 ms', :uses::int, :agent_name,
        :environment::json, :agent, :replaces::bigint, :channels::text[], :author,
        :author_id::bigint, :certificate)
ON CONFLICT DO NOTHING;

-- name: token_channels
SELECT pattern
FROM tokens, unnest(channels) AS pattern
WHERE id = :token::bigint;

-- The live admin tokens are locked in the order of their ids, so that of two concurrent revocations
-- the second sees the result of the first: PostgreSQL reads a row again after waiting for it.
-- name: tokens_revoke
WITH admins AS MATERIALIZED (
    SELECT id
    FROM tokens t
    WHERE role = 'admin' AND token_is_live(t)
    ORDER BY id
    FOR UPDATE
), named AS MATERIALIZED (
    SELECT t.id,
           role = 'admin'
             AND NOT EXISTS (SELECT FROM admins WHERE admins.id <> t.id) AS is_last_admin
    FROM tokens t
    WHERE name = :name AND revoked_at IS NULL
), revoked AS (
    UPDATE tokens t
    SET revoked_at = now(), revoked_by = :author, revoked_by_id = :author_id::bigint
    FROM named
    WHERE t.id = named.id AND t.revoked_at IS NULL
      AND (:may_be_last_admin::boolean OR NOT named.is_last_admin)
    RETURNING t.id
)
SELECT named.is_last_admin, revoked.id IS NOT NULL AS is_revoked
FROM named
LEFT JOIN revoked USING (id);

-- Reads one row more than a page has, to see whether there is another page.
-- name: tokens_list
SELECT id, name, array_to_string(array_prepend(role, also), ',') AS role,
       rfc3339(created_at) AS created_at, rfc3339(revoked_at) AS revoked_at,
       rfc3339(expires_at) AS expires_at, agent, uses_left, agent_name, environment, channels,
       certificate, issuer, made_by, made_by_id, revoked_by, revoked_by_id
FROM tokens
WHERE id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;

-- name: token_own
SELECT name, array_to_string(array_prepend(role, also), ',') AS role,
       rfc3339(expires_at) AS expires_at, channels
FROM tokens
WHERE id = :token::bigint;
