-- The summary of the fleet (server/fleet/fleet.h).

-- Each device with what it measures; an agent without devices has one row. An agent that was not
-- seen for :gone_days is left out. A device may hold several leases: the first of them is shown.
-- drained_ms is read from the audit table, and null when that was cleared.
-- name: fleet_devices
SELECT a.id AS agent, a.name AS host, a.version, epoch_ms(a.last_seen) AS seen_ms,
       a.last_seen <= now() - :live_ms::bigint * interval '1 ms' AS is_lost,
       a.drain_reason AS node_reason, a.drained_by AS node_by,
       d.device, d.backend, e.identity ->> 'gpu' AS gpu, e.identity ->> 'arch' AS arch,
       e.identity ->> 'partition' AS partition,
       encode(e.hardware_digest, 'hex') AS hardware, encode(e.digest, 'hex') AS environment,
       d.drain_reason, d.drained_by, epoch_ms(d.suspect_since) AS suspect_ms,
       CASE WHEN a.drain_reason IS NOT NULL OR d.drain_reason IS NOT NULL THEN (
           SELECT epoch_ms(t.at)
           FROM audit t
           WHERE t.object = a.id AND t.action = 'drain'
             AND (t.detail ->> 'device' = d.device
                  OR (t.detail ->> 'device' IS NULL AND a.drain_reason IS NOT NULL))
           ORDER BY t.id DESC
           LIMIT 1) END AS drained_ms,
       l.job_id AS job, k.name AS kernel, j.key, j.tag, j.run, l.stage, l.current_config AS config,
       epoch_ms(l.granted_at) AS granted_ms, l.configs AS of, l.remaining AS left
FROM agents a
LEFT JOIN devices d ON d.agent = a.id
LEFT JOIN environments e ON e.id = d.environment_id
LEFT JOIN (
    SELECT DISTINCT ON (h.agent, h.device) h.agent, h.device, h.job_id, h.stage, h.current_config,
           h.granted_at,
           (SELECT sum(upper(r) - lower(r)) FROM unnest(h.configs) r) AS configs,
           (SELECT sum(upper(r) - lower(r)) FROM unnest(h.remaining) r) AS remaining
    FROM leases h
    WHERE h.state = 'held'
    ORDER BY h.agent, h.device, h.granted_at
) l ON l.agent = a.id AND l.device = d.device
LEFT JOIN jobs j ON j.id = l.job_id
LEFT JOIN kernels k ON k.hash = j.kernel
WHERE a.last_seen > now() - :gone_days::bigint * interval '1 day'
ORDER BY a.name, a.id, d.device;

-- The open jobs of each campaign and hardware, and in every row the totals over all jobs there
-- ever were, as of the same moment. Without open jobs there is one row, whose tag is null.
-- name: fleet_open
WITH open AS MATERIALIZED (
    SELECT * FROM open_jobs
), waiting AS (
    SELECT job_id, count(*) AS n FROM leases WHERE state = 'open' GROUP BY job_id
), held AS (
    SELECT job_id, count(*) AS n FROM leases WHERE state = 'held' GROUP BY job_id
)
SELECT epoch_ms(now()) AS as_of_ms,
       u.device_us + (SELECT COALESCE(sum(spent_us), 0) FROM open) AS total_us,
       u.measurements + (SELECT COALESCE(sum(measurements), 0) FROM open) AS total_measurements,
       u.jobs AS total_jobs, g.*
FROM (SELECT COALESCE(sum(device_us), 0)::float8 AS device_us,
             COALESCE(sum(measurements), 0)::bigint AS measurements,
             COALESCE(sum(done + failed + cancelled), 0)::bigint AS jobs
      FROM job_usage) u
LEFT JOIN (
    SELECT o.tag, o.run, encode(o.device_class, 'hex') AS class,
           count(*) FILTER (WHERE o.state = 'queued') AS queued,
           count(*) FILTER (WHERE o.state = 'running') AS running,
           count(*) FILTER (WHERE NOT o.is_known) AS unknown,
           sum(o.left_us) AS left_us, max(o.ahead_us) AS ahead_us,
           epoch_ms(min(o.created_at) FILTER (WHERE o.state = 'queued')) AS oldest_ms,
           COALESCE(sum(waiting.n), 0)::bigint AS leases_open,
           COALESCE(sum(held.n), 0)::bigint AS leases_held
    FROM open o
    LEFT JOIN waiting ON waiting.job_id = o.id
    LEFT JOIN held ON held.job_id = o.id
    GROUP BY o.tag, o.run, o.device_class
) g ON true;

-- That of the newest first job first.
-- name: fleet_campaigns
SELECT c.tag, c.run, (array_agg(DISTINCT c.owner))[1:16] AS owners,
       (array_agg(DISTINCT k.name))[1:16] AS kernels,
       sum(c.queued)::bigint AS queued, sum(c.running)::bigint AS running,
       sum(c.done)::bigint AS done, sum(c.failed)::bigint AS failed,
       sum(c.cancelled)::bigint AS cancelled, sum(c.configs)::bigint AS configs,
       sum(c.measurements)::bigint AS measurements,
       sum(c.device_us)::float8 / 1e6::float8 AS device_seconds,
       epoch_ms(min(c.first_at)) AS first_ms, epoch_ms(max(c.last_at)) AS last_ms
FROM (
    SELECT tag, run, owner, kernel, 0 AS queued, 0 AS running, sum(done) AS done,
           sum(failed) AS failed, sum(cancelled) AS cancelled, sum(configs) AS configs,
           sum(measurements) AS measurements, sum(device_us)::float8 AS device_us,
           min(first_at) AS first_at, max(last_at) AS last_at
    FROM job_usage
    GROUP BY tag, run, owner, kernel
    UNION ALL
    SELECT tag, run, owner, kernel, count(*) FILTER (WHERE state = 'queued'),
           count(*) FILTER (WHERE state = 'running'), 0, 0, 0, sum(configs), sum(measurements),
           sum(spent_us), min(created_at), NULL
    FROM open_jobs
    GROUP BY tag, run, owner, kernel
) c
JOIN kernels k ON k.hash = c.kernel
GROUP BY c.tag, c.run
HAVING sum(c.queued + c.running + c.done + c.failed + c.cancelled) > 0
ORDER BY min(c.first_at) DESC, c.tag, c.run;

-- Open jobs count today, but not as jobs.
-- name: fleet_cost
SELECT x.name, sum(x.device_us) / 1e6::float8 AS device_seconds, sum(x.jobs)::bigint AS jobs,
       sum(x.measurements)::bigint AS measurements,
       sum(sum(x.device_us)) OVER () / 1e6::float8 AS all_seconds,
       (sum(sum(x.jobs)) OVER ())::bigint AS all_jobs,
       (sum(sum(x.measurements)) OVER ())::bigint AS all_measurements
FROM (
    SELECT CASE :by::text
               WHEN 'week' THEN to_char(date_trunc('week', r.day::timestamp), 'YYYY-MM-DD')
               WHEN 'day' THEN to_char(r.day, 'YYYY-MM-DD')
               WHEN 'kernel' THEN k.name
               WHEN 'tag' THEN r.tag
               WHEN 'run' THEN r.run
               ELSE r.owner
           END AS name,
           r.device_us, r.jobs, r.measurements
    FROM (
        SELECT day, kernel, tag, run, owner, device_us::float8, done + failed + cancelled AS jobs,
               measurements
        FROM job_usage
        UNION ALL
        SELECT (now() AT TIME ZONE 'UTC')::date, kernel, tag, run, owner, spent_us, 0, measurements
        FROM open_jobs
        WHERE spent_us > 0
    ) r
    JOIN kernels k ON k.hash = r.kernel
    WHERE (:from_ms::bigint IS NULL
           OR r.day >= (to_timestamp(:from_ms::bigint / 1000.0) AT TIME ZONE 'UTC')::date)
      AND (:to_ms::bigint IS NULL
           OR r.day <= (to_timestamp(:to_ms::bigint / 1000.0) AT TIME ZONE 'UTC')::date)
) x
GROUP BY x.name
HAVING sum(x.jobs) > 0 OR sum(x.device_us) > 0
ORDER BY CASE WHEN :by::text IN ('week', 'day') THEN x.name END DESC, sum(x.device_us) DESC, x.name
LIMIT :limit::bigint;

-- The device time of the kernels and tags that were used last, and of all.
-- name: fleet_device_seconds
SELECT k.name AS kernel, r.tag, sum(r.device_us) / 1e6::float8 AS device_seconds,
       sum(sum(r.device_us)) OVER () / 1e6::float8 AS all_seconds
FROM (
    SELECT day, kernel, tag, device_us::float8
    FROM job_usage
    UNION ALL
    SELECT (now() AT TIME ZONE 'UTC')::date, kernel, tag, spent_us
    FROM open_jobs
    WHERE spent_us > 0
) r
JOIN kernels k ON k.hash = r.kernel
GROUP BY k.name, r.tag
ORDER BY max(r.day) DESC, sum(r.device_us) DESC, k.name, r.tag
LIMIT :limit::bigint;
