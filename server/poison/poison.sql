-- The ledger of poison (server/poison/poison.h). A loss has its subjects from when it is judged.

-- Whether a loss is to be judged: all losses of its moment are known.
-- name: poison_is_due
SELECT EXISTS (SELECT
               FROM losses
               WHERE judged_at IS NULL
                 AND at < now() - :moment_ms::bigint * interval '1 ms') AS is_due;

-- One transaction at a time changes the ledger, so that a release and a judgement of the same
-- losses do not pass each other. The snapshot of the next statement is taken after the lock.
-- name: poison_lock
SELECT pg_advisory_xact_lock(hashtext('wavetune poison'));

-- name: poison_unjudged
SELECT o.id, o.config, j.kernel, j.build, j.device_class, j.environment_id, j.key, s.space
FROM losses o
JOIN jobs j ON j.id = o.job_id
JOIN spaces s ON s.digest = j.space_digest
WHERE o.judged_at IS NULL
  AND o.at < now() - :moment_ms::bigint * interval '1 ms'
ORDER BY o.id
LIMIT :limit::bigint;

-- name: poison_judged
UPDATE losses o
SET judged_at = now(),
    subjects = array_remove(ARRAY[r.of_config, r.of_kernel, r.of_object], NULL)
FROM unnest(:id::bigint[], :of_config::bytea[], :of_kernel::bytea[], :of_object::bytea[])
     AS r(id, of_config, of_kernel, of_object)
WHERE o.id = r.id;

-- The newest losses of a subject since its last release, and what is known about each. A config is
-- leased again in its place: the lease's stage, round and process.
-- name: poison_losses
WITH mine AS MATERIALIZED (
    SELECT *
    FROM losses o
    WHERE o.subjects @> ARRAY[:subject::bytea]
      AND NOT EXISTS (SELECT
                      FROM poison p
                      WHERE p.subject = ANY (o.subjects)
                        AND p.released_at IS NOT NULL
                        AND p.last_loss >= o.id)
    ORDER BY o.id DESC
    LIMIT :limit::bigint
)
SELECT m.id, m.job_id AS job, m.lease_id AS lease, m.epoch, m.config AS ordinal, m.agent, m.device,
       rfc3339(m.at) AS at, (extract(epoch FROM m.at) * 1000)::bigint AS at_ms,
       m.subjects[1] AS config, moment.same, moment.others,
       EXISTS (SELECT
               FROM leases l
               JOIN measurements x ON (x.job_id, x.stage, x.round, x.process, x.config)
                                      = (l.job_id, l.stage, l.round, l.process, m.config)
               WHERE l.id = m.lease_id AND NOT x.late AND x.outcome = 'correct')
       OR EXISTS (SELECT
                  FROM measurement_partitions r
                  WHERE m.job_id >= r.first_job AND m.job_id < r.end_job
                    AND r.emptied_at IS NOT NULL) AS is_excused
FROM mine m
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.is_same) AS same,
           count(*) FILTER (WHERE NOT a.is_same) AS others
    FROM (SELECT bool_or(COALESCE(o.subjects[1] = m.subjects[1], false)) AS is_same
          FROM losses o
          WHERE o.at > m.at - :moment_ms::bigint * interval '1 ms'
            AND o.at < m.at + :moment_ms * interval '1 ms'
          GROUP BY o.agent) a) moment
ORDER BY m.id;

-- No row: it is in force already.
-- name: poison_add
INSERT INTO poison (scope, subject, device_class, environment_id, kernel, build, object,
                    config_values, reason, evidence)
VALUES (:scope, :subject::bytea, :device_class::bytea, :environment::bigint, :kernel::bytea,
        :build::bytea, :object::bytea, :config_values::json, :reason, :evidence::json)
ON CONFLICT (subject) WHERE released_at IS NULL DO NOTHING
RETURNING id;

-- The entries in force that concern a job with this code on this hardware. An object concerns each
-- build that has it.
-- name: poison_of_code
SELECT r.n, p.id, p.scope, p.object, p.config_values, p.reason
FROM unnest(:kernel::bytea[], :build::bytea[], :device_class::bytea[])
     WITH ORDINALITY AS r(kernel, build, device_class, n)
JOIN poison p ON p.device_class = r.device_class AND p.released_at IS NULL
WHERE CASE WHEN p.scope = 'object' THEN
               EXISTS (SELECT FROM build_files f WHERE f.build = r.build AND f.digest = p.object)
           ELSE p.kernel = r.kernel AND p.build IS NOT DISTINCT FROM r.build END
ORDER BY r.n, p.id;

-- The leases of a job, or only of one of its rounds, that have one of the configs; they are locked.
-- name: poison_leases
SELECT id
FROM leases
WHERE job_id = :job::bigint
  AND state IN ('open', 'held')
  AND remaining && :configs::int8multirange
  AND (:stage::stage IS NULL OR (stage = :stage::stage AND round = :round::int))
ORDER BY id
FOR UPDATE;

-- Jobs that have not ended and that an entry concerns which is not settled yet.
-- name: poison_open_jobs
SELECT j.id, j.kernel, j.build, j.device_class, j.key, s.space, j.baseline, j.default_config
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
WHERE j.state IN ('queued', 'running')
  AND j.id > :after::bigint
  AND EXISTS (
      SELECT
      FROM poison p
      WHERE p.released_at IS NULL AND p.settled_at IS NULL AND p.device_class = j.device_class
        AND CASE WHEN p.scope = 'object' THEN
                     EXISTS (SELECT
                             FROM build_files f
                             WHERE f.build = j.build AND f.digest = p.object)
                 ELSE p.kernel = j.kernel AND p.build IS NOT DISTINCT FROM j.build END)
ORDER BY j.id
LIMIT :limit::bigint;

-- The code and the space of a job, if there is an entry in force for its hardware.
-- name: poison_job
SELECT j.id, j.kernel, j.build, j.device_class, j.key, s.space, j.baseline, j.default_config
FROM jobs j
JOIN spaces s ON s.digest = j.space_digest
WHERE j.id = :job::bigint
  AND EXISTS (SELECT FROM poison p
              WHERE p.device_class = j.device_class AND p.released_at IS NULL);

-- The entries that are not settled, and those of them that can be settled once they are applied.
-- name: poison_is_unsettled
SELECT EXISTS (SELECT FROM poison WHERE released_at IS NULL AND settled_at IS NULL) AS is_unsettled,
       (SELECT COALESCE(array_agg(id), '{}')
        FROM poison
        WHERE released_at IS NULL AND settled_at IS NULL
          AND at < now() - :settle_ms::bigint * interval '1 ms') AS ended;

-- name: poison_settle
UPDATE poison
SET settled_at = now()
WHERE id = ANY (:ids::bigint[]);

-- name: poison_list
SELECT p.id, p.scope, p.kernel, k.name, p.build, p.object, p.config_values AS config,
       e.identity AS environment, p.reason, p.evidence, rfc3339(p.at) AS at,
       rfc3339(p.released_at) AS released_at, p.released_by, p.released_by_id, p.release_reason
FROM poison p
JOIN kernels k ON k.hash = p.kernel
JOIN environments e ON e.id = p.environment_id
WHERE p.id < :before::bigint
  AND (NOT :in_force::boolean OR p.released_at IS NULL)
ORDER BY p.id DESC
LIMIT :limit::bigint + 1;

-- name: poison_get
SELECT p.id, p.scope, p.kernel, k.name, p.build, p.object, p.config_values AS config,
       e.identity AS environment, p.reason, p.evidence, rfc3339(p.at) AS at,
       rfc3339(p.released_at) AS released_at, p.released_by, p.released_by_id, p.release_reason
FROM poison p
JOIN kernels k ON k.hash = p.kernel
JOIN environments e ON e.id = p.environment_id
WHERE p.id = :id::bigint;

-- No loss that was stored until now is evidence against it any more. No row: it was released.
-- name: poison_release
UPDATE poison
SET released_at = now(), released_by = :author, released_by_id = :author_id::bigint,
    release_reason = :reason,
    last_loss = (SELECT COALESCE(max(id), 0) FROM losses)
WHERE id = :id::bigint
  AND released_at IS NULL
RETURNING id;
