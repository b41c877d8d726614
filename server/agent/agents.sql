-- Agents and their devices, for the API and for the table of heartbeats (server/agent/agents.h).

-- Stores the heartbeats of many agents.
-- name: agents_seen
UPDATE agents a
SET last_seen = GREATEST(a.last_seen, now() - s.age_ms * interval '1 ms')
FROM unnest(:ids::text[], :ages_ms::bigint[]) AS s(id, age_ms)
WHERE a.id = s.id;

-- Stores in the facts of devices which of them their agents gave back to other processes, since when
-- and why, as the agents' last heartbeats stated. The others of these agents are in use again.
-- name: devices_yielded
UPDATE devices d
SET facts = (COALESCE(d.facts::jsonb, '{}') - 'yielded' || stated.fact)::json
FROM (
    SELECT o.agent, o.device,
           COALESCE((SELECT jsonb_build_object('yielded', jsonb_build_object(
                         'since', rfc3339(now() - (s.age_ms + (y ->> 'for_ms')::bigint)
                                                  * interval '1 ms'),
                         'reason', y ->> 'reason'))
                     FROM jsonb_array_elements(s.yielded::jsonb) y
                     WHERE y ->> 'device' = o.device
                     LIMIT 1), '{}') AS fact
    FROM unnest(:ids::text[], :ages_ms::bigint[], :yielded::text[]) AS s(agent, age_ms, yielded)
    JOIN devices o ON o.agent = s.agent) stated
WHERE d.agent = stated.agent
  AND d.device = stated.device
  AND d.facts -> 'yielded' ->> 'reason' IS DISTINCT FROM stated.fact -> 'yielded' ->> 'reason';

-- name: agents_live
SELECT count(*) AS n
FROM agents a
WHERE agent_is_live(a, :live_ms::bigint);

-- No row: no such agent is enrolled with this boot nonce.
-- name: agent_end
UPDATE agents
SET ended_at = now(), last_seen = now()
WHERE id = :agent AND boot = :boot
RETURNING id;

-- name: agents_brief
SELECT a.id, a.boot, a.drain_reason IS NOT NULL AS is_draining, COALESCE(a.token_id, 0) AS token_id,
       t.role = 'enrol' OR t.certificate IS NOT NULL AS has_token
FROM agents a
LEFT JOIN tokens t ON t.id = a.token_id
WHERE a.id = ANY (:ids::text[]);

-- name: agents_brief_draining
SELECT id
FROM agents
WHERE drain_reason IS NOT NULL;

-- name: agent_drain
UPDATE agents
SET drain_reason = :reason,
    refused_at = NULL,
    drained_by = CASE WHEN :reason::text IS NOT NULL THEN :author END,
    drained_by_id = CASE WHEN :reason::text IS NOT NULL THEN :author_id::bigint END
WHERE id = :agent;

-- A device that drifted begins a new history when it is resumed.
-- name: device_drain
UPDATE devices
SET drain_reason = :reason,
    drained_by = CASE WHEN :reason::text IS NOT NULL THEN :author END,
    drained_by_id = CASE WHEN :reason::text IS NOT NULL THEN :author_id::bigint END,
    history_since = CASE WHEN :reason::text IS NULL AND suspect_since IS NOT NULL THEN now()
                         ELSE history_since END,
    suspect_since = CASE WHEN :reason::text IS NOT NULL THEN suspect_since END
WHERE agent = :agent AND device = :device;

-- Marks an agent that is not live as removed. No row: there is no such agent.
-- name: agent_remove
WITH removed AS (
    UPDATE agents a
    SET removed_at = now(), removed_by = :author, removed_by_id = :author_id::bigint
    WHERE id = :agent
      AND NOT agent_is_live(a, :live_ms::bigint)
    RETURNING id
)
SELECT a.name, rfc3339(a.last_seen) AS last_seen,
       NOT EXISTS (SELECT FROM removed) AS is_live
FROM agents a
WHERE a.id = :agent;

-- Without :all it leaves out agents that were removed and not seen since, and those that were not
-- seen for a week. A refused enrolment of an agent's id from another machine is shown for a day.
-- name: agents_list
SELECT a.id, a.name, a.version,
       CASE WHEN a.ended_at IS NOT NULL THEN 'ended'
            WHEN a.drain_reason IS NOT NULL THEN 'draining'
            WHEN agent_is_live(a, :live_ms::bigint) THEN 'live'
            ELSE 'lost' END AS state,
       a.drain_reason, a.drained_by, a.drained_by_id,
       CASE WHEN is_removed THEN rfc3339(a.removed_at) END AS removed_at,
       CASE WHEN is_removed THEN a.removed_by END AS removed_by,
       CASE WHEN is_removed THEN a.removed_by_id END AS removed_by_id,
       (SELECT array_agg(digest_text(k)) FROM unnest(a.trusted_keys) k) AS trusted_keys,
       (SELECT COALESCE(json_agg(json_build_object(
                   'device', d.device, 'backend', d.backend, 'environment', e.identity,
                   'facts', d.facts::jsonb - 'yielded', 'runs', d.runs,
                   'drain_reason', d.drain_reason,
                   'yielded_since', d.facts -> 'yielded' ->> 'since',
                   'yield_reason', d.facts -> 'yielded' ->> 'reason',
                   'drained_by', d.drained_by, 'drained_by_id', d.drained_by_id::text)
                   ORDER BY d.device), '[]')
        FROM devices d
        JOIN environments e ON e.id = d.environment_id
        WHERE d.agent = a.id) AS devices,
       CASE WHEN refusal.is_shown THEN rfc3339(a.refused_at) END AS refused_at,
       CASE WHEN refusal.is_shown THEN a.refused_machine END AS refused_machine,
       CASE WHEN refusal.is_shown THEN a.refused_name END AS refused_name,
       rfc3339(a.last_seen) AS last_seen
FROM agents a
CROSS JOIN LATERAL (SELECT a.refused_at > now() - interval '1 day' AS is_shown) refusal
CROSS JOIN LATERAL (SELECT COALESCE(a.removed_at >= a.last_seen, false) AS is_removed) removal
WHERE a.id > :after
  AND (:all::boolean OR (NOT is_removed AND a.last_seen > now() - interval '7 days'))
ORDER BY a.id
LIMIT :limit::bigint;
