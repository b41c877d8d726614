-- Overrides (server/release/overrides.c).

-- The same override again replaces the reason and the end. No row: there are too many.
-- name: override_add
INSERT INTO overrides (kind, kernel, key, environment, tag, config, reason, until, made_by,
                       made_by_id)
SELECT :kind, :kernel, :key::text::json, :environment::text::json, :tag::text,
       :config::text::json, :reason,
       CASE WHEN :last_ms::bigint > 0 THEN now() + :last_ms * interval '1 ms'
            WHEN :until_us::bigint > 0 THEN to_timestamp(:until_us / 1000000.0) END,
       :author, :author_id::bigint
WHERE (SELECT count(*) FROM overrides) < :most::bigint
ON CONFLICT (kind, kernel, COALESCE(key::text, ''), (environment::text), COALESCE(tag, ''),
             (config::text)) DO UPDATE
SET reason = excluded.reason, until = excluded.until, made_by = excluded.made_by,
    made_by_id = excluded.made_by_id, made_at = now()
RETURNING id, rfc3339(until) AS until, xmax = 0 AS created;

-- Whether a name or hash (:digest, else null) is that of a kernel.
-- name: override_subject
SELECT EXISTS (SELECT FROM kernels WHERE name = :kernel OR hash = :digest::bytea) AS is_known;

-- name: override_kernel_names
SELECT DISTINCT name FROM kernels ORDER BY name LIMIT 10000;

-- The parameters of the spaces and imported configs of the kernels with a name or hash.
-- name: override_parameters
WITH named AS MATERIALIZED (
    SELECT hash FROM kernels WHERE name = :kernel OR hash = :digest::bytea)
SELECT json_object_keys(COALESCE(s.space::json -> 'parameters', s.space::json -> 'configs' -> 0))
           AS name
FROM spaces s
WHERE s.digest IN (SELECT j.space_digest FROM jobs j JOIN named ON j.kernel = named.hash)
UNION
SELECT json_object_keys(i.config)
FROM imports i
JOIN named ON i.kernel = named.hash
ORDER BY name;

-- name: override_remove
DELETE FROM overrides
WHERE id = :id::bigint
RETURNING json_build_object('kind', kind, 'kernel', kernel, 'config', config, 'reason', reason)
              AS detail;

-- Those that hold now, of any environment.
-- name: overrides_load
SELECT id, kind, kernel, key, environment, tag, config, reason, made_by
FROM overrides
WHERE (until IS NULL OR until > now())
  AND (tag IS NULL OR tag = :tag)
ORDER BY id;

-- Reads one row more than a page has, to see whether there is another page.
-- name: overrides_list
SELECT id, kind, kernel, key, environment, tag, config, reason, rfc3339(until) AS until,
       COALESCE(until <= now(), false) AS ended, made_by, made_by_id, rfc3339(made_at) AS made_at
FROM overrides
WHERE id > :after::bigint
ORDER BY id
LIMIT :limit::bigint + 1;
