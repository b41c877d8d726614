-- Measurements: storing a post of results, and reading them (measurements.h).
--
-- A post is one transaction. It locks its lease first, so that posts of one lease are stored one
-- after the other, and the job's row last: no transaction waits for a lease while it holds a job's
-- row.

-- It is not part of the statement that locks: its snapshot contains what an earlier post of the
-- lease stored while this one waited. The job is that of the lease: of the partitions only one is
-- read.
-- name: results_known
SELECT p.seq, m.body_digest, m.refused
FROM unnest(:seq::bigint[]) AS p(seq)
CROSS JOIN LATERAL (
    SELECT body_digest, refused
    FROM measurements
    WHERE job_id = :job::bigint AND lease_id = :lease::bigint AND epoch = :epoch::bigint
      AND seq = p.seq
    LIMIT 1
) m;

-- {columns}, {arrays} and {values} are those of a measurement's record
-- (common/measurement/measurement.h).
-- name: results_insert
INSERT INTO measurements (job_id, lease_id, epoch, stage, agent, device, refused, body_digest, ratio,
                          late, {columns})
SELECT :job::bigint, :lease::bigint, :epoch::bigint, :stage::stage, :agent::text, :device::text,
    :refused::boolean, body_digest, ratio, late, {values}
FROM unnest(:body_digest::bytea[], :ratio::float8[], :late::boolean[], {arrays})
     WITH ORDINALITY AS posted(body_digest, ratio, late, {columns}, n)
ORDER BY n
RETURNING id, seq;

-- name: results_objects
INSERT INTO measurement_objects (job_id, measurement, object)
SELECT :job::bigint, measurement, object
FROM unnest(:measurement::bigint[], :object::bytea[]) AS timed(measurement, object);

-- The best ratio only falls, and does so more and more rarely. A post without a better ratio does
-- not write the job's row.
-- name: results_best
UPDATE jobs
SET best_ratio = :ratio::float8
WHERE id = :job::bigint AND :ratio::float8 < COALESCE(best_ratio, 'infinity');

-- name: results_late
WITH counter AS (
    UPDATE jobs SET events = events + 1 WHERE id = :job::bigint RETURNING id, events
)
INSERT INTO job_events (job_id, event, kind, detail)
SELECT id, events, 'late',
    json_build_object('lease', :lease::bigint::text, 'epoch', :epoch::bigint,
                      'current_epoch', :current_epoch::bigint,
                      'measurements', :measurements::bigint)
FROM counter;

-- A page with many samples ends early, which bounds its size in memory, but it has at least one
-- measurement. There are two columns "at"; the server reads the first.
-- name: job_measurements_list
SELECT j.id AS job, rfc3339(m.at) AS at, o.object, m.*
FROM jobs j
LEFT JOIN LATERAL (
    SELECT *, count(*) OVER () AS n,
        sum(2 * cardinality(samples_us)) OVER (ORDER BY id)
            - 2 * cardinality(samples_us) AS times_before
    FROM (
        SELECT *
        FROM measurements
        WHERE job_id = :job::bigint AND id > :after::bigint
        ORDER BY id
        LIMIT :limit::bigint
    ) page
) m ON m.times_before < 100000
LEFT JOIN measurement_objects o ON o.job_id = m.job_id AND o.measurement = m.id
WHERE j.id = :job::bigint
ORDER BY m.id;
