-- The summary of the fleet (server/fleet/fleet.h).

-- Each device with what it measures; an agent without devices has one row. An agent that was not
-- seen for :gone_days is left out. A device may hold several leases: the first of them is shown.
-- drained_ms is read from the audit table, and null when that was cleared.
--
-- The joins are FULL ones, which PostgreSQL never makes as nested loops: it would make those of all
-- devices and all leases when the tables were analysed while there were none. With a.id IS NOT NULL
-- they would be LEFT joins.
-- name: fleet_devices
SELECT a.id AS agent, a.name AS host, a.version, epoch_ms(a.last_seen) AS seen_ms,
       a.last_seen <= now() - :live_ms::bigint * interval '1 ms' AS is_lost,
       a.ended_at IS NOT NULL AS is_ended,
       a.drain_reason AS node_reason, a.drained_by AS node_by,
       d.device, d.backend, e.identity ->> 'gpu' AS gpu, e.identity ->> 'arch' AS arch,
       e.identity ->> 'partition' AS partition,
       encode(e.hardware_digest, 'hex') AS hardware, encode(e.digest, 'hex') AS environment,
       d.drain_reason, d.drained_by, epoch_ms(d.suspect_since) AS suspect_ms,
       epoch_ms((d.facts -> 'yielded' ->> 'since')::timestamptz) AS yielded_ms,
       d.facts -> 'yielded' ->> 'reason' AS yield_reason,
       CASE WHEN a.drain_reason IS NOT NULL OR d.drain_reason IS NOT NULL THEN (
           SELECT epoch_ms(t.at)
           FROM audit t
           WHERE t.object = a.id AND t.action = 'drain'
             AND (t.detail ->> 'device' = d.device
                  OR (t.detail ->> 'device' IS NULL AND a.drain_reason IS NOT NULL))
           ORDER BY t.id DESC
           LIMIT 1) END AS drained_ms,
       l.job_id AS job, l.kernel, l.key, l.tag, l.run, l.stage, l.current_config AS config,
       epoch_ms(l.granted_at) AS granted_ms, l.configs AS of, l.remaining AS left
FROM (
    SELECT *
    FROM agents
    WHERE last_seen > now() - :gone_days::bigint * interval '1 day'
      AND COALESCE(removed_at < last_seen, true)
) a
FULL JOIN devices d ON d.agent = a.id
FULL JOIN environments e ON e.id = d.environment_id
FULL JOIN (
    SELECT DISTINCT ON (h.agent, h.device) h.agent, h.device, h.job_id, k.name AS kernel, j.key,
           j.tag, j.run, h.stage, h.current_config, h.granted_at,
           (SELECT sum(upper(r) - lower(r)) FROM unnest(h.configs) r) AS configs,
           (SELECT sum(upper(r) - lower(r)) FROM unnest(h.remaining) r) AS remaining
    FROM leases h
    JOIN jobs j ON j.id = h.job_id
    JOIN kernels k ON k.hash = j.kernel
    WHERE h.state = 'held'
    ORDER BY h.agent, h.device, h.granted_at
) l ON l.agent = d.agent AND l.device = d.device
WHERE COALESCE(a.id, '') <> ''
ORDER BY a.name, a.id, d.device;

-- The open jobs of each campaign, hardware, owner and priority, and in every row the totals over all
-- jobs there ever were, as of the same moment. ahead_us: what the owner's jobs of that priority on
-- that hardware take until the last of these is done. Without open jobs there is one row, whose tag
-- is null. Jobs and counts of leases are brought together by grouping, because a join becomes a
-- nested loop over all of both when the tables were analysed while no lease was open.
-- name: fleet_open
WITH open AS MATERIALIZED (
    SELECT id, tag, run, owner, priority, device_class, state, created_at, is_known, left_us,
           spent_us, measurements,
           sum(left_us) OVER (PARTITION BY device_class, priority, owner ORDER BY id) AS ahead_us
    FROM open_jobs
), parts AS (
    SELECT id, tag, run, owner, priority, encode(device_class, 'hex') AS class, state::text,
           created_at, is_known, left_us, ahead_us, 0 AS leases_open, 0 AS leases_held
    FROM open
    UNION ALL
    SELECT job_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, open, held
    FROM job_leases
), by_job AS (
    SELECT max(tag) AS tag, max(run) AS run, max(owner) AS owner, max(priority) AS priority,
           max(class) AS class, max(state) AS state,
           min(created_at) AS created_at, bool_and(is_known) AS is_known, max(left_us) AS left_us,
           max(ahead_us) AS ahead_us, sum(leases_open) AS leases_open,
           sum(leases_held) AS leases_held
    FROM parts
    GROUP BY id
    -- Else the job ended, and its leases are about to be cancelled.
    HAVING max(tag) IS NOT NULL
)
SELECT epoch_ms(now()) AS as_of_ms,
       u.device_us + (SELECT COALESCE(sum(spent_us), 0) FROM open) AS total_us,
       u.measurements + (SELECT COALESCE(sum(measurements), 0) FROM open) AS total_measurements,
       u.jobs AS total_jobs, g.*, COALESCE(o.weight, 1) AS weight,
       COALESCE(o.day = (now() AT TIME ZONE 'UTC')::date
                AND o.day_us >= o.device_seconds_per_day * 1e6, false) AS is_over
FROM (SELECT COALESCE(sum(device_us), 0)::float8 AS device_us,
             COALESCE(sum(measurements), 0)::bigint AS measurements,
             COALESCE(sum(done + failed + cancelled), 0)::bigint AS jobs
      FROM job_usage) u
LEFT JOIN (
    SELECT tag, run, class, owner, priority,
           count(*) FILTER (WHERE state = 'queued') AS queued,
           count(*) FILTER (WHERE state = 'running') AS running,
           count(*) FILTER (WHERE NOT is_known) AS unknown,
           sum(left_us) AS left_us, max(ahead_us) AS ahead_us,
           epoch_ms(min(created_at) FILTER (WHERE state = 'queued')) AS oldest_ms,
           sum(leases_open)::bigint AS leases_open, sum(leases_held)::bigint AS leases_held
    FROM by_job
    GROUP BY tag, run, class, owner, priority
) g ON true
LEFT JOIN owners o ON o.name = g.owner;

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
