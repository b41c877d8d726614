-- Migrations, and whether a database exists (server/db/migrate.c).

-- name: migrations_list
SELECT version, name, checksum
FROM schema_migrations
WHERE version >= :base::integer
ORDER BY version;

-- What made a database that is older than the base; no row: it is not.
-- name: migrations_before_base
SELECT max(version) AS version,
       encode(sha256(convert_to(string_agg(checksum, ' ' ORDER BY version), 'UTF8')), 'hex')
           AS checksums
FROM schema_migrations
WHERE version < :base::integer
HAVING count(*) > 0;

-- name: migrations_note
INSERT INTO schema_migrations (version, name, checksum)
VALUES (:version::integer, :name, :checksum);

-- name: migrations_exist
SELECT to_regclass('schema_migrations') IS NOT NULL AS there;

-- name: migrations_version
SELECT coalesce(max(version), 0) AS version
FROM schema_migrations;

-- The role that will serve, and whether it may act as the owner of the tables.
-- name: migrate_role
SELECT quote_ident(r.rolname) AS role, quote_ident(current_schema()) AS schema,
       pg_has_role(r.oid, c.relowner, 'MEMBER') AS is_owner
FROM pg_roles r, pg_class c
WHERE r.rolname = :role AND c.oid = 'audit'::regclass;

-- name: database_exists
SELECT
FROM pg_database
WHERE datname = 'wavetune';
