-- Enrolments, each in one transaction (server/agent/enrolment.c).

-- Locks the token, so that its uses are counted one after the other.
-- name: enrolment_terms_lock
SELECT token_is_live(t) AS is_live, uses_left, name AS token_name, agent_name, environment
FROM tokens t
WHERE id = :token::bigint
FOR UPDATE;

-- name: enrolment_use
UPDATE tokens
SET uses_left = uses_left - 1
WHERE id = :token::bigint;

-- name: enrolment_known
SELECT id
FROM agents
WHERE token_id = :token::bigint AND boot = :boot
LIMIT 1;

-- name: agent_before_lock
SELECT a.name, a.machine, rfc3339(a.last_seen) AS last_seen,
       agent_is_live(a, :live_ms::bigint) AS agent_is_live,
       COALESCE(a.token_id, 0) AS token_id, t.role = 'enrol' AS is_enrol,
       t.certificate IS NOT NULL AS is_of_certificate,
       token_is_live(t) AS is_live,
       t.uses_left, t.name AS token_name, t.agent_name, t.environment
FROM agents a
LEFT JOIN tokens t ON t.id = a.token_id
WHERE a.id = :agent
FOR UPDATE OF a;

-- name: agent_note_refused
UPDATE agents
SET refused_at = now(), refused_machine = :machine, refused_name = :name
WHERE id = :agent;

-- name: agent_enrol
WITH before AS MATERIALIZED (
    SELECT boot
    FROM agents
    WHERE id = :id
    FOR UPDATE
), stored AS (
    INSERT INTO agents (id, boot, name, version, machine, token_id, trusted_keys)
    VALUES (:id, :boot, :name, :version, :machine, NULLIF(:token::bigint, 0),
            (SELECT array_agg(decode(substr(k.id, 8), 'hex') ORDER BY k.n)
             FROM unnest(:trusted_keys::text[]) WITH ORDINALITY AS k(id, n)))
    ON CONFLICT (id) DO UPDATE
    SET boot = excluded.boot, name = excluded.name, version = excluded.version,
        machine = excluded.machine, trusted_keys = excluded.trusted_keys,
        token_id = COALESCE(excluded.token_id, agents.token_id), last_seen = now(),
        enrolled_at = now(), ended_at = NULL
)
SELECT COALESCE((SELECT boot FROM before), '') AS boot_before;

-- name: agents_of_token
SELECT count(DISTINCT a.id) AS agents, count(d.device) AS devices
FROM agents a
LEFT JOIN devices d ON d.agent = a.id
WHERE a.token_id = :token::bigint
  AND a.last_seen > now() - interval '1 day';

-- Replaces the agent's devices. The member "yielded" of their facts is the server's (agents.sql).
-- name: agent_devices
WITH device AS MATERIALIZED (
    SELECT i.device, i.backend, (i.facts::jsonb - 'yielded')::json AS facts,
           i.runs::text[] AS runs, e.id AS environment_id
    FROM unnest(:device::text[], :backend::text[], :environment_digest::bytea[], :facts::text[],
                :runs::text[])
         AS i(device, backend, environment, facts, runs)
    JOIN environments e ON e.digest = i.environment
), gone AS (
    DELETE FROM devices
    WHERE agent = :agent AND device <> ALL (:device::text[])
)
INSERT INTO devices (agent, device, backend, environment_id, facts, runs)
SELECT :agent, device, backend, environment_id, facts, runs
FROM device
ON CONFLICT (agent, device) DO UPDATE
SET backend = excluded.backend, environment_id = excluded.environment_id, facts = excluded.facts,
    runs = excluded.runs;

-- Ends the agent's tokens. With :replaces, the token of the request, it ends only the unused ones
-- that were made earlier to replace that token. One of them may have been made after this transaction
-- began.
-- name: agent_tokens_end
UPDATE tokens
SET revoked_at = GREATEST(now(), created_at), revoked_by = :author,
    revoked_by_id = :author_id::bigint
WHERE agent = :agent
  AND revoked_at IS NULL
  AND (:replaces::bigint = 0 OR (id <> :replaces AND replaces IS NOT NULL));

-- The token is to be replaced when a third of its life remains.
-- name: agent_token_rotate_in
SELECT COALESCE((GREATEST(0, extract(epoch FROM expires_at - now())
                             - extract(epoch FROM expires_at - created_at) / 3)
                 * 1000)::bigint, -1) AS ms
FROM tokens
WHERE id = :token::bigint;
