-- Identities of providers' tokens in the table of tokens (server/oidc/oidc.h).

-- The row of a live identity. After a revocation it is another row with another digest, so that
-- whoever remembers the old digest asks for a revoked row. No row: it was revoked after the token was
-- issued.
-- name: identity_put
WITH revoked AS (
    SELECT max(id) AS id, max(revoked_at) AS at
    FROM tokens
    WHERE issuer = :issuer AND name = :name AND revoked_at IS NOT NULL)
INSERT INTO tokens (name, role, also, digest, expires_at, channels, issuer, made_by)
SELECT :name, split_part(:role, ',', 1)::token_role,
       (string_to_array(:role, ','))[2:]::token_role[],
       CASE WHEN revoked.id IS NULL THEN :digest::bytea
            ELSE sha256(:digest::bytea || convert_to(revoked.id::text, 'UTF8')) END,
       to_timestamp(:until_s::bigint), :channels::text[], :issuer, '(server)'
FROM revoked
WHERE revoked.id IS NULL OR revoked.at < to_timestamp(:issued_s::bigint)
ON CONFLICT (digest) DO UPDATE
    SET expires_at = GREATEST(tokens.expires_at, excluded.expires_at)
    WHERE tokens.revoked_at IS NULL
RETURNING id, digest;
