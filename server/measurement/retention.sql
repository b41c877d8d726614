-- Removing old measurements (retention.h). The functions are in migrations/11_functions.sql.

-- name: retention_due
SELECT first_job, end_job, jobs, bytes
FROM measurements_due(:keep_days::int);

-- name: retention_remove
SELECT jobs, bytes, kept
FROM measurements_remove(:first_job::bigint, :keep_days::int);
