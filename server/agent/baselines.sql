-- What a device's baselines took, lease by lease (server/agent/baselines.c).

-- No row: there is no such device. One row without a time: nothing was measured on it.
-- name: baselines_list
SELECT rfc3339(b.at) AS at, encode(b.subject, 'hex') AS subject, l.job_id AS job, k.name, j.key,
    j.baseline AS config, b.median_us, b.at > COALESCE(d.history_since, '-infinity') AS counts,
    (l.device_us + l.opening_us) / 1e6::float8 AS device_seconds,
    CASE WHEN l.id IS NOT NULL THEN json_build_object('correct', l.outcomes[1],
        'compile', l.outcomes[2], 'runtime', l.outcomes[3], 'correctness', l.outcomes[4],
        'timeout', l.outcomes[5], 'constraints', l.outcomes[6]) END AS outcomes
FROM devices d
LEFT JOIN LATERAL (
    SELECT *
    FROM device_baselines
    WHERE agent = d.agent AND device = d.device
    ORDER BY at DESC
    LIMIT :limit::bigint
) b ON true
LEFT JOIN leases l ON l.id = b.lease_id
LEFT JOIN jobs j ON j.id = l.job_id
LEFT JOIN kernels k ON k.hash = j.kernel
WHERE d.agent = :agent AND d.device = :device
ORDER BY b.at DESC;
