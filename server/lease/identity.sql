-- The tokens that own agents and leases (server/lease/identity.h). An agent's own token represents
-- that agent alone (is_agent), even after the token has ended and the agent has another one.

-- name: identities_agents
SELECT a.token_id, t.name,
       t.agent IS NOT NULL OR t.role = 'enrol' OR t.certificate IS NOT NULL AS is_agent,
       token_is_live(t) AS is_live,
       0 AS epoch
FROM agents a
LEFT JOIN tokens t ON t.id = a.token_id
WHERE a.id = :agent;

-- name: identities_leases
SELECT l.token_id, t.name,
       t.agent IS NOT NULL OR t.role = 'enrol' OR t.certificate IS NOT NULL AS is_agent,
       token_is_live(t) AS is_live,
       l.epoch
FROM leases l
JOIN tokens t ON t.id = l.token_id
WHERE l.id = :lease::bigint;

-- name: identities_claim
UPDATE agents
SET token_id = :token::bigint
WHERE id = :agent AND token_id IS NULL;

-- name: identities_held_epoch
SELECT epoch
FROM leases
WHERE id = :lease::bigint
  AND state = 'held'
  AND CASE WHEN :agent <> '' THEN agent = :agent ELSE token_id = :token::bigint END;
