-- Devices that drift: the history of their baselines, and what is quarantined
-- (server/measurement/drift.h).

-- Stores what the baseline took in a lease that ended, and returns it with the history that it is
-- compared with, its own value last. Only the first 64 measurements of a lease are used. The job is
-- that of the lease: of the partitions only one is read. The history does not have the new row yet:
-- a statement does not see what it inserts.
-- name: drift_note
WITH timed AS MATERIALIZED (
    SELECT m.job_id, m.agent, m.device, m.stage, m.regime, m.timer,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY us) AS median_us
    FROM (SELECT *
          FROM measurements
          WHERE job_id = :job::bigint AND lease_id = :lease::bigint AND epoch = :epoch::bigint
          ORDER BY seq
          LIMIT 64) m,
         unnest(m.baseline_us) us
    WHERE NOT m.late AND m.outcome = 'correct'
    GROUP BY 1, 2, 3, 4, 5, 6
    ORDER BY count(*) DESC
    LIMIT 1
), noted AS (
    INSERT INTO device_baselines (agent, device, subject, lease_id, epoch, median_us)
    SELECT t.agent, t.device,
           sha256(convert_to(json_build_array(encode(j.kernel, 'hex'), encode(j.key_digest, 'hex'),
               encode(j.space_digest, 'hex'), j.baseline, j.environment_id, encode(j.build, 'hex'),
               t.stage, t.regime, t.timer)::text, 'UTF8')),
           :lease, :epoch, t.median_us
    FROM timed t
    JOIN jobs j ON j.id = t.job_id
    ON CONFLICT (lease_id, epoch) DO NOTHING
    RETURNING *
)
SELECT n.agent, n.device, n.lease_id, d.drain_reason,
       (extract(epoch FROM d.suspect_since) * 1000000)::bigint AS suspect_since_us,
       past.medians_us || n.median_us::float8 AS medians_us,
       past.ats_us || (extract(epoch FROM n.at) * 1000000)::float8 AS ats_us
FROM noted n
JOIN devices d ON d.agent = n.agent AND d.device = n.device
CROSS JOIN LATERAL (
    SELECT array_agg(newest.median_us::float8 ORDER BY newest.at) AS medians_us,
           array_agg((extract(epoch FROM newest.at) * 1000000)::float8 ORDER BY newest.at) AS ats_us
    FROM (SELECT median_us, at
          FROM device_baselines b
          WHERE b.agent = n.agent AND b.device = n.device AND b.subject = n.subject
            AND b.at > COALESCE(d.history_since, '-infinity')
          ORDER BY at DESC
          LIMIT :history::bigint) newest) past;

-- name: drift_subject
SELECT 'baseline ' || j.baseline || ' of ' || k.name || ' ' || j.key AS subject
FROM leases l
JOIN jobs j ON j.id = l.job_id
JOIN kernels k ON k.hash = j.kernel
WHERE l.id = :lease::bigint;

-- A device that is drained already keeps its reason and its author.
-- name: drift_suspect
UPDATE devices
SET drain_reason = COALESCE(drain_reason, :reason),
    drained_by = CASE WHEN drain_reason IS NULL THEN :author ELSE drained_by END,
    drained_by_id = CASE WHEN drain_reason IS NULL THEN :author_id::bigint ELSE drained_by_id END,
    suspect_since = 'epoch'::timestamptz + :since_us::bigint * interval '1 microsecond'
WHERE agent = :agent AND device = :device AND suspect_since IS NULL;

-- The leases that the device holds, and those with samples of it since then that their jobs still
-- need. It is not part of the next statement, so that this one sees what was committed by the
-- transactions that the lock waited for. The configs of a search's round were chosen from the
-- results of the rounds before it, so samples of earlier rounds are not measured again.
-- name: drift_lock
SELECT l.id, l.job_id, l.state,
       l.state = 'held' AND l.agent = :agent AND l.device = :device AS is_held_here
FROM leases l
WHERE (l.state = 'held' AND l.agent = :agent AND l.device = :device)
   OR l.id IN (
        SELECT m.lease_id
        FROM jobs j
        JOIN measurements m ON m.job_id = j.id
        WHERE j.state IN ('queued', 'running')
          AND (j.search_strategy IS NULL OR m.stage <> 'screen' OR m.round = j.round)
          AND m.stage = j.stage AND NOT m.late
          AND m.agent = :agent AND m.device = :device
          AND m.at > 'epoch'::timestamptz + :since_us::bigint * interval '1 microsecond'
          AND m.outcome = 'correct' AND NOT m.quarantined)
ORDER BY l.id
FOR UPDATE;

-- Samples of the device since then, of jobs that have not ended or ended since. A sample that the
-- job's stage still needs is replaced by another measurement: `late` removes it from
-- measurements_once. The others stay in it, as evidence of what was decided then. A needed sample
-- of a lease that was not locked was stored in between: the check after the device's next lease
-- finds it.
-- name: drift_quarantine
WITH sample AS MATERIALIZED (
    SELECT m.job_id, m.id, m.lease_id, m.config, m.stage, m.late,
           NOT m.late AND m.stage = j.stage AND j.state IN ('queued', 'running')
             AND (j.search_strategy IS NULL OR m.stage <> 'screen' OR m.round = j.round) AS needed
    FROM jobs j
    JOIN measurements m ON m.job_id = j.id
    WHERE (j.state IN ('queued', 'running')
           OR j.finished_at > 'epoch'::timestamptz + :since_us::bigint * interval '1 microsecond')
      AND m.agent = :agent AND m.device = :device
      AND m.at > 'epoch'::timestamptz + :since_us::bigint * interval '1 microsecond'
      AND m.outcome = 'correct' AND NOT m.quarantined
), taken AS MATERIALIZED (
    SELECT *
    FROM sample
    WHERE NOT needed OR lease_id = ANY (:locked::bigint[])
), marked AS (
    UPDATE measurements m
    SET quarantined = true, late = m.late OR t.needed
    FROM taken t
    WHERE m.job_id = t.job_id AND m.id = t.id
)
SELECT t.job_id, t.lease_id, t.samples, t.missing, t.is_final, t.configs,
       COALESCE(t.configs <@ l.configs, false) AS fits
FROM (SELECT job_id, lease_id, count(*) AS samples, count(*) FILTER (WHERE needed) AS missing,
             bool_or(stage = 'final' AND NOT late) AS is_final,
             range_agg(int8range(config, config + 1)) FILTER (WHERE needed) AS configs
      FROM taken
      GROUP BY job_id, lease_id) t
JOIN leases l ON l.id = t.lease_id
ORDER BY t.lease_id;

-- Adds an event about the quarantined samples to each job.
-- name: drift_events
WITH job AS MATERIALIZED (
    SELECT *
    FROM unnest(:job::bigint[], :samples::bigint[], :missing::bigint[]) AS u(id, samples, missing)
), locked AS MATERIALIZED (
    SELECT jobs.id
    FROM jobs
    JOIN job ON job.id = jobs.id
    WHERE job.samples > 0
    ORDER BY jobs.id
    FOR NO KEY UPDATE OF jobs
), counter AS (
    UPDATE jobs
    SET events = events + 1
    FROM locked
    WHERE jobs.id = locked.id
    RETURNING jobs.id, jobs.events
), event AS (
    INSERT INTO job_events (job_id, event, kind, detail)
    SELECT c.id, c.events, 'quarantined',
           json_build_object('agent', :agent::text, 'device', :device::text,
                             'reason', :reason::text, 'measurements', job.samples,
                             'leased_again', job.missing)
    FROM counter c
    JOIN job ON job.id = c.id
)
SELECT j.id, e.hardware_digest
FROM job
JOIN jobs j ON j.id = job.id
JOIN environments e ON e.id = j.environment_id
ORDER BY j.id;

-- It runs after the jobs are locked, because one may have become done meanwhile.
-- name: drift_winners
UPDATE winners w
SET quarantined = :reason
FROM jobs j
WHERE w.job_id = ANY (:jobs::bigint[])
  AND j.id = w.job_id
  AND j.state = 'done'
  AND w.quarantined IS NULL;
