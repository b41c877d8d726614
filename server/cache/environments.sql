-- Environments, and how many agents and devices have them (server/cache/environments.h).

-- name: environments_store
INSERT INTO environments (digest, hardware_digest, identity)
SELECT digest, hardware_digest, identity::json
FROM unnest(:digest::bytea[], :hardware_digest::bytea[], :identity::text[])
     AS e(digest, hardware_digest, identity)
WHERE NOT EXISTS (SELECT FROM environments known WHERE known.digest = e.digest)
ORDER BY digest
ON CONFLICT (digest) DO NOTHING;

-- `works`: the device could take work. Of several agents one with such a device is returned, if
-- there is one.
-- name: environments_known
WITH candidate AS (
    SELECT d.environment_id, a.id, a.name,
           a.trusted_keys IS NOT NULL OR NOT d.runs @> :all_runs::text[] AS is_selective,
           agent_is_live(a, :live_ms::bigint)
             AND a.drain_reason IS NULL AND d.drain_reason IS NULL AS works
    FROM devices d
    JOIN agents a ON a.id = d.agent
)
SELECT e.hardware_digest, e.identity,
       count(DISTINCT c.id) FILTER (WHERE works) AS agents,
       count(*) FILTER (WHERE works) AS devices,
       bool_or(works AND is_selective) AS is_selective,
       (array_agg(c.id ORDER BY works DESC, c.id))[1] AS agent,
       (array_agg(c.name ORDER BY works DESC, c.id))[1] AS agent_name
FROM candidate c
JOIN environments e ON e.id = c.environment_id
GROUP BY e.id
ORDER BY e.id;

-- Reads one row more than a page has, to see whether there is another page.
-- name: environments_list
SELECT e.id, e.identity AS environment, e.digest,
       count(DISTINCT a.id) FILTER (
           WHERE agent_is_live(a, :live_ms::bigint)
             AND a.drain_reason IS NULL AND d.drain_reason IS NULL) AS agents,
       rfc3339(max(a.last_seen)) AS last_seen
FROM environments e
LEFT JOIN devices d ON d.environment_id = e.id
LEFT JOIN agents a ON a.id = d.agent
WHERE e.id > :after::bigint
GROUP BY e.id
ORDER BY e.id
LIMIT :limit::bigint + 1;
