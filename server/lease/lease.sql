-- Whom leases are granted to, and the clock by which they expire.

-- The state of an agent and of one of its devices. A selective one does not take every lease of its
-- hardware.
-- name: lease_asker
SELECT a.drain_reason IS NULL AS only_device_drains,
       COALESCE(a.drain_reason, d.drain_reason) AS drain_reason,
       a.trusted_keys IS NOT NULL OR NOT d.runs @> :all_runs::text[] AS is_selective, e.hardware_digest,
       e.digest AS environment_digest
FROM agents a
LEFT JOIN devices d ON d.agent = a.id AND d.device = :device
LEFT JOIN environments e ON e.id = d.environment_id
WHERE a.id = :agent;

-- name: lease_exists
SELECT FROM leases
WHERE id = :lease::bigint;

-- The clock by which leases expire.
-- name: leases_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms;
