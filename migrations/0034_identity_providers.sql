-- An identity that tokens of an identity provider name, such as CI's (serve --oidc), is a row of
-- tokens: it owns jobs and has a name as any other token. The digest is that of the identity with its
-- roles (oidc.sql); the provider's tokens are not stored.

ALTER TABLE tokens
    ADD COLUMN issuer text, -- URL of the provider; null: an ordinary token
    DROP CONSTRAINT tokens_name_check,
    ADD CONSTRAINT tokens_name_check CHECK (
        CASE WHEN issuer IS NULL THEN name ~ '^[A-Za-z0-9._-]{1,64}$'
             ELSE name ~ '^[a-z0-9-]{1,16}:[!-~]+$' AND length(name) <= 200 END),
    ADD CHECK (issuer IS NULL
               OR (expires_at IS NOT NULL AND role::text NOT IN ('agent', 'enrol', 'admin')));

-- Rules may give one identity other roles for another of its claims, so it may have several rows.
DROP INDEX tokens_live_name;
CREATE UNIQUE INDEX tokens_live_name ON tokens (name) WHERE revoked_at IS NULL AND issuer IS NULL;
