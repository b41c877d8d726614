-- Jobs that a request selects (server/job/job_select.c).

-- `open`: queued or running; `retriable`: failed or cancelled, and not tried again yet. Of ids that
-- are no jobs the least is `missing`.
-- name: jobs_count
SELECT count(*) FILTER (WHERE state IN ('queued', 'running')) AS open,
       count(*) FILTER (WHERE state IN ('done', 'failed', 'cancelled')) AS ended,
       count(*) FILTER (WHERE state IN ('failed', 'cancelled') AND retried_at IS NULL) AS retriable,
       COALESCE(max(id), 0) AS newest,
       count(*) FILTER (WHERE state IN ('queued', 'running')
                          AND submitted_by IS DISTINCT FROM :author) AS others_open,
       count(*) FILTER (WHERE state IN ('failed', 'cancelled') AND retried_at IS NULL
                          AND submitted_by IS DISTINCT FROM :author) AS others_retriable,
       min(submitted_by) FILTER (WHERE submitted_by <> :author) AS other,
       (SELECT min(w.id)
        FROM unnest(:jobs::bigint[]) AS w(id)
        WHERE NOT EXISTS (SELECT FROM jobs known WHERE known.id = w.id)) AS missing
FROM jobs
WHERE (:jobs::bigint[] IS NULL OR id = ANY (:jobs))
  AND (:up_to::bigint IS NULL OR id <= :up_to)
  AND (:tag::text IS NULL OR tag = :tag)
  AND (:run::text IS NULL OR run = :run)
  AND (:owner::text IS NULL OR submitted_by = :owner)
  AND (:kernel::bytea IS NULL OR kernel = :kernel)
  AND (:kernel_name::text IS NULL
       OR kernel IN (SELECT hash FROM kernels WHERE name = :kernel_name));

-- Whether the job is open and others submitted it: 1 or 0.
-- name: job_others
SELECT (state IN ('queued', 'running') AND submitted_by IS DISTINCT FROM :author)::int AS n,
       COALESCE(submitted_by, '') AS other
FROM jobs
WHERE id = :job::bigint;

-- The next jobs of a selection that are in one of the states, by rising ids. Jobs that were tried
-- again are left out, unless they are named by their ids: then `successor` is the job that tries
-- them again.
-- name: jobs_choose
SELECT id, state,
       CASE WHEN retried_at IS NOT NULL
            THEN (SELECT later.id FROM jobs later WHERE later.retry_of = j.id LIMIT 1)
       END AS successor,
       :any::boolean OR submitted_by IS NOT DISTINCT FROM :author AS may_change
FROM jobs j
WHERE id > :after::bigint
  AND state = ANY (:states::job_state[])
  AND (:jobs::bigint[] IS NULL OR id = ANY (:jobs))
  AND (:up_to::bigint IS NULL OR id <= :up_to)
  AND (:tag::text IS NULL OR tag = :tag)
  AND (:run::text IS NULL OR run = :run)
  AND (:owner::text IS NULL OR submitted_by = :owner)
  AND (:kernel::bytea IS NULL OR kernel = :kernel)
  AND (:kernel_name::text IS NULL
       OR kernel IN (SELECT hash FROM kernels WHERE name = :kernel_name))
  AND (retried_at IS NULL OR :jobs::bigint[] IS NOT NULL)
ORDER BY id
LIMIT :limit;

-- The body with which each of the jobs would be submitted.
-- name: jobs_requests
SELECT j.id,
       json_build_object(
         'kernel', digest_text(j.kernel), 'key', j.key, 'space', s.space::json,
         'environment', e.identity, 'tag', j.tag, 'run', j.run, 'regime', j.regime,
         'purpose', j.purpose, 'priority', j.priority,
         'budget', CASE WHEN j.budget_device_ms IS NOT NULL
                        THEN json_build_object('device_seconds',
                                               j.budget_device_ms / 1000.0::float8) END,
         'search', CASE WHEN j.search_strategy IS NOT NULL
                        THEN json_build_object('strategy', j.search_strategy,
                                               'trials', j.search_trials) END,
         'finals', json_build_object('devices', j.final_devices)) AS request
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
JOIN environments e ON e.id = j.environment_id
WHERE j.id = ANY (:jobs::bigint[])
ORDER BY j.id;

-- What became of jobs. Configs are counted for running ones only: those of the others are none or
-- all of them.
-- name: jobs_progress
SELECT j.id, j.state, j.configs,
       CASE WHEN j.state = 'running' THEN (SELECT measured FROM job_progress(j.id)) ELSE 0 END
         AS measured
FROM jobs j
WHERE j.id = ANY (:jobs::bigint[])
ORDER BY j.id;
