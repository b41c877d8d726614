-- Reading jobs (server/job/job_routes.c).

-- The id of the :searched-th newest job that passes the other filters.
-- name: jobs_search_end
SELECT j.id
FROM jobs j
WHERE j.id < :before::bigint
  AND (:state::job_state IS NULL OR j.state = :state::job_state)
  AND (:tag::text IS NULL OR j.tag = :tag)
  AND (:run::text IS NULL OR j.run = :run)
  AND (:owner::text IS NULL OR j.submitted_by = :owner)
  AND (:kernel::bytea IS NULL OR j.kernel = :kernel)
  AND (:kernel_name::text IS NULL
       OR j.kernel IN (SELECT hash FROM kernels WHERE name = :kernel_name))
ORDER BY j.id DESC
OFFSET :searched::bigint - 1
LIMIT 1;

-- The page is found first: a plan from a time with few jobs sorts all that pass the filters, and
-- would add up what each of them has measured. The filters are those of jobs_search_end.
-- name: jobs_list
WITH page AS MATERIALIZED (
    SELECT j.id
    FROM jobs j
    WHERE j.id < :before::bigint
      AND j.id >= :end::bigint
      AND (:state::job_state IS NULL OR j.state = :state::job_state)
      AND (:tag::text IS NULL OR j.tag = :tag)
      AND (:run::text IS NULL OR j.run = :run)
      AND (:owner::text IS NULL OR j.submitted_by = :owner)
      AND (:kernel::bytea IS NULL OR j.kernel = :kernel)
      AND (:kernel_name::text IS NULL
           OR j.kernel IN (SELECT hash FROM kernels WHERE name = :kernel_name))
      AND (:contains::text IS NULL
           OR position(lower(:contains) IN lower(concat_ws(E'\n', j.id,
                  (SELECT name FROM kernels WHERE hash = j.kernel),
                  (SELECT string_agg(key || '=' || value, ' ') FROM json_each_text(j.key)),
                  j.submitted_by, j.reason))) > 0)
    ORDER BY j.id DESC
    LIMIT :limit::bigint + 1)
SELECT j.id, j.id AS job, j.state, j.stage, j.round, j.kernel, k.name, j.key, j.space_digest,
    e.identity AS environment, j.tag, j.run, j.regime, j.purpose, j.priority,
    j.budget_device_ms / 1000.0::float8 AS budget_device_seconds, j.runner, j.build, j.baseline,
    j.baseline_from, j.seed, j.search_strategy, j.search_trials, j.final_devices, j.configs,
    t.measured, t.outcomes, t.spent_device_seconds, t.opening_device_seconds, j.reason,
    rfc3339(j.created_at) AS created_at, rfc3339(j.finished_at) AS finished_at,
    j.submitted_by, j.submitted_by_id, j.cancelled_by, j.cancelled_by_id, j.retry_of,
    w.config AS winner_config, w.config_values AS winner_values, w.agreement AS winner_agreement,
    to_json(w.interpreted) AS winner_interpreted
FROM page
JOIN jobs j ON j.id = page.id
JOIN kernels k ON k.hash = j.kernel
JOIN environments e ON e.id = j.environment_id
LEFT JOIN winners w ON w.job_id = j.id
CROSS JOIN LATERAL job_progress(j.id) t
ORDER BY j.id DESC;

-- `waiting`: why open leases of the job are not granted. winner_resources: the resources that the
-- finalists used, each in the last process that measured it.
-- name: job_get
SELECT j.id AS job, j.state, j.stage, j.round, j.kernel, k.name, j.key, j.space_digest,
    e.identity AS environment, j.tag, j.run, j.regime, j.purpose, j.priority,
    j.budget_device_ms / 1000.0::float8 AS budget_device_seconds, j.runner, j.build, j.baseline,
    j.baseline_from, j.seed, j.search_strategy, j.search_trials, j.final_devices, j.configs,
    t.measured, t.outcomes, t.spent_device_seconds, t.opening_device_seconds, j.reason,
    rfc3339(j.created_at) AS created_at, rfc3339(j.finished_at) AS finished_at,
    j.submitted_by, j.submitted_by_id, j.cancelled_by, j.cancelled_by_id, j.retry_of,
    w.config AS winner_config, w.config_values AS winner_values, w.agreement AS winner_agreement,
    to_json(w.interpreted) AS winner_interpreted, w.verdict AS winner_verdict,
    CASE WHEN w.job_id IS NOT NULL THEN (
        SELECT COALESCE(json_agg(json_build_object(
                'config', config, 'vgprs', vgprs, 'agprs', agprs, 'spills', spills,
                'lds_bytes', lds_bytes, 'occupancy', occupancy, 'object', digest_text(object),
                'conditions', conditions) ORDER BY config), '[]')
        FROM (
            SELECT DISTINCT ON (config) config, vgprs, agprs, spills, lds_bytes, occupancy, object,
                conditions
            FROM measurements m
            LEFT JOIN measurement_objects o ON o.job_id = m.job_id AND o.measurement = m.id
            WHERE m.job_id = :job::bigint AND stage = 'final' AND NOT late AND outcome = 'correct'
            ORDER BY config, process DESC
        ) last)
    END AS winner_resources,
    w.flagged, w.quarantined, s.space::json AS space,
    (SELECT l.handed_back
     FROM leases l
     WHERE l.job_id = j.id AND l.handed_back IS NOT NULL AND l.fruitless > 0
     ORDER BY l.granted_at DESC
     LIMIT 1) AS handed_back,
    (SELECT rfc3339(CASE WHEN j.id < p.end_job THEN p.emptied_at END)
     FROM measurement_partitions p
     WHERE p.first_job <= j.id
     ORDER BY p.first_job DESC
     LIMIT 1) AS measurements_removed_at,
    CASE
        WHEN j.state NOT IN ('queued', 'running')
            OR NOT EXISTS (SELECT FROM leases l WHERE l.job_id = j.id AND is_open(l.state))
            THEN NULL
        WHEN d.taking = 0
            THEN 'no device that could measure it is live and takes leases'
                || COALESCE('; drained: ' || nullif(d.drained, 0), '')
                || COALESCE('; yielded to other programs: ' || nullif(d.yielded, 0), '')
                || COALESCE('; without the regime ' || j.regime || ': ' || nullif(d.unable, 0), '')
        WHEN q.is_over
            THEN 'the quota of ' || j.submitted_by || ' (' || q.device_seconds_per_day
                || ' device seconds a day) is used; it gets no leases until midnight (UTC)'
        ELSE (
            SELECT count(*) || ' of its final''s processes are kept for devices that have none of'
                || ' them, as it asks for ' || j.final_devices || ', for at most '
                || ceil(extract(epoch FROM max(l.apart_until) - now())) || ' s more'
            FROM leases l
            WHERE l.job_id = j.id AND is_open(l.state) AND l.apart_until > now()
            HAVING count(*) > 0)
    END AS waiting
FROM jobs j
JOIN kernels k ON k.hash = j.kernel
JOIN environments e ON e.id = j.environment_id
JOIN spaces s ON s.digest = j.space_digest
LEFT JOIN winners w ON w.job_id = j.id
CROSS JOIN LATERAL job_progress(j.id) t
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE able AND NOT drains AND NOT yields) AS taking,
        count(*) FILTER (WHERE able AND drains) AS drained,
        count(*) FILTER (WHERE able AND NOT drains AND yields) AS yielded,
        count(*) FILTER (WHERE NOT able) AS unable
    FROM environments o
    JOIN devices dv ON dv.environment_id = o.id
    JOIN agents a ON a.id = dv.agent
    CROSS JOIN LATERAL (
        SELECT may_measure(dv.runs, j.regime) AS able,
            COALESCE(a.drain_reason, dv.drain_reason) IS NOT NULL AS drains,
            dv.facts -> 'yielded' IS NOT NULL AS yields
    ) s
    WHERE (o.digest = j.device_class OR o.hardware_digest = j.device_class)
      AND agent_is_live(a, :live_ms::bigint)
      AND j.state IN ('queued', 'running')
) d
LEFT JOIN LATERAL (
    SELECT device_seconds_per_day,
        day = (now() AT TIME ZONE 'UTC')::date
            AND day_us >= device_seconds_per_day * 1e6 AS is_over
    FROM owners
    WHERE id = j.owner_id
) q ON true
WHERE j.id = :job::bigint;

-- No row: there is no such job. One row without an event: there is no newer event.
-- name: job_events_list
SELECT x.event, x.kind, rfc3339(x.at) AS at, x.detail
FROM jobs j
LEFT JOIN LATERAL (
    SELECT *
    FROM job_events
    WHERE job_id = j.id AND event > :after::bigint
    ORDER BY event
    LIMIT :limit
) x ON true
WHERE j.id = :job
ORDER BY x.event;
