-- Shares of the owners of jobs, for the API (server/token/shares.c). Grants read them in
-- server/lease/shares.sql.

-- Reads one row more than a page has, to see whether there is another page.
-- name: shares_list
WITH unfinished AS MATERIALIZED (
    SELECT owner_id, count(*) AS n, min(created_at) FILTER (WHERE state = 'queued') AS since
    FROM jobs
    WHERE state IN ('queued', 'running')
    GROUP BY owner_id)
SELECT o.id, o.name AS owner, o.weight, o.device_seconds_per_day,
       share_decayed(o.used_us, o.used_at) / 1e6 AS device_seconds,
       CASE WHEN o.day = (now() AT TIME ZONE 'UTC')::date THEN o.day_us ELSE 0 END / 1e6
           AS device_seconds_today,
       COALESCE(u.n, 0) AS open_jobs, rfc3339(u.since) AS waiting_since
FROM owners o
LEFT JOIN unfinished u ON u.owner_id = o.id
WHERE o.id > :after::bigint
ORDER BY o.id
LIMIT :limit::bigint + 1;

-- No row: there is no token of this name, and no job of such an owner.
-- name: share_set
INSERT INTO owners (name, weight, device_seconds_per_day)
SELECT :owner::text, :weight::float8, :device_seconds_per_day::float8
WHERE EXISTS (SELECT FROM tokens WHERE name = :owner::text)
   OR EXISTS (SELECT FROM owners WHERE name = :owner::text)
ON CONFLICT (name) DO UPDATE
    SET weight = excluded.weight, device_seconds_per_day = excluded.device_seconds_per_day
RETURNING id;
