-- The open and held leases of each job that has any: /metrics and the summary of the fleet count by
-- it. There is one branch for each state, because each state has indexes of its own.
CREATE VIEW job_leases AS
SELECT job_id, sum(open)::bigint AS open, sum(held)::bigint AS held, min(held_since) AS held_since
FROM (
    SELECT job_id, count(*) AS open, 0 AS held, NULL::timestamptz AS held_since
    FROM leases
    WHERE state = 'open'
    GROUP BY job_id
    UNION ALL
    SELECT job_id, 0, count(*), min(granted_at)
    FROM leases
    WHERE state = 'held'
    GROUP BY job_id) l
GROUP BY job_id;
