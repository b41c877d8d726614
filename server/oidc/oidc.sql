-- Identities of providers' tokens in the table of tokens (server/oidc/oidc.h).

-- A revoked identity's row lets go of its digest for tokens that were issued later.
-- name: identity_free_digest
UPDATE tokens
SET digest = sha256(digest || convert_to(id::text, 'UTF8'))
WHERE digest = :digest::bytea
  AND revoked_at < to_timestamp(:issued_s::bigint);

-- No row: it was revoked after the token was issued.
-- name: identity_put
INSERT INTO tokens (name, role, also, digest, expires_at, channels, issuer, made_by)
SELECT :name, split_part(:role, ',', 1)::token_role,
       (string_to_array(:role, ','))[2:]::token_role[], :digest::bytea,
       to_timestamp(:until_s::bigint), :channels::text[], :issuer, '(server)'
WHERE NOT EXISTS (SELECT FROM tokens
                  WHERE issuer = :issuer AND name = :name
                    AND revoked_at >= to_timestamp(:issued_s::bigint))
ON CONFLICT (digest) DO UPDATE
    SET expires_at = GREATEST(tokens.expires_at, excluded.expires_at)
    WHERE tokens.revoked_at IS NULL
RETURNING id;
