-- Tokens as every request needs them, and the secret of the database (server/http/tokens.h).

-- name: identities_secret_make
INSERT INTO secrets (name, secret)
VALUES ('leases', :secret::bytea)
ON CONFLICT (name) DO NOTHING;

-- name: identities_secret
SELECT secret
FROM secrets
WHERE name = 'leases';
