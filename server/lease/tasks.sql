-- Tasks in tables of their own; {table} is one (struct lease_table in lease_kind.h).

-- The caller has locked the tasks.
-- name: tasks_claim
UPDATE {table}
SET epoch = epoch + 1,
    leased_until = now() + :lease_ms::bigint * interval '1 ms',
    leased_by = :holder
WHERE id = ANY (:task::bigint[])
RETURNING id, epoch;

-- name: tasks_renew
UPDATE {table} t
SET leased_until = now() + :lease_ms::bigint * interval '1 ms'
FROM unnest(:task::bigint[], :epoch::bigint[]) AS h(task, epoch)
WHERE t.id = h.task AND t.epoch = h.epoch AND t.leased_until IS NOT NULL
RETURNING t.id;

-- Those that are held at their epochs; they are locked.
-- name: tasks_held
SELECT t.id, h.n
FROM unnest(:task::bigint[], :epoch::bigint[]) WITH ORDINALITY AS h(task, epoch, n)
JOIN {table} t ON t.id = h.task
WHERE t.epoch = h.epoch AND t.leased_until IS NOT NULL
ORDER BY t.id
FOR UPDATE OF t;

-- The caller has locked the tasks.
-- name: tasks_end
UPDATE {table}
SET leased_until = NULL
WHERE id = ANY (:task::bigint[]);

-- Held tasks that have expired; they are locked.
-- name: tasks_expired
SELECT *
FROM {table}
WHERE leased_until < now()
ORDER BY id
LIMIT :limit::bigint
FOR UPDATE SKIP LOCKED;
