-- What keeps PostgreSQL from removing dead rows (health.h). A role sees the sessions of other roles
-- only as a member of pg_read_all_stats; it may end them as a member of pg_signal_backend.

-- Sessions of this database that are idle in a transaction in which old row versions stay, the
-- longest idle first. Those of servers are left out: PostgreSQL ends them when they are idle
-- (db.c), and their names are this session's.
-- name: health_sessions
SELECT pid, application_name, usename AS role,
       extract(epoch FROM clock_timestamp() - state_change)::float8 AS idle_s
FROM pg_stat_activity
WHERE datname = current_database()
  AND state IN ('idle in transaction', 'idle in transaction (aborted)')
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND application_name NOT LIKE 'wavetune-server%'
  AND application_name <> current_setting('application_name')
ORDER BY state_change
LIMIT :limit::bigint;

-- Ends a session, if it is still idle in that transaction.
-- name: health_end_session
SELECT pg_terminate_backend(pid) AS is_ended
FROM pg_stat_activity
WHERE pid = :pid::int
  AND datname = current_database()
  AND state IN ('idle in transaction', 'idle in transaction (aborted)')
  AND clock_timestamp() - state_change >= :idle_ms::bigint * interval '1 ms';

-- How many transactions have begun since the oldest one that vacuum respects: of a session, a
-- replica or a prepared transaction.
-- name: health_xmin_age
SELECT GREATEST(
    0,
    (SELECT max(GREATEST(age(backend_xmin), age(backend_xid)))
     FROM pg_stat_activity
     WHERE datname = current_database() OR backend_type = 'walsender'),
    (SELECT max(age(xmin)) FROM pg_replication_slots),
    (SELECT max(age(transaction)) FROM pg_prepared_xacts WHERE database = current_database())
) AS age;

-- name: health_dead_rows
SELECT relname, n_dead_tup
FROM pg_stat_user_tables
WHERE relid = ANY (:tables::regclass[]);
