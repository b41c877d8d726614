-- Releases: what they can be made of, storing and reading them (server/release/releases.c).

-- The environments that jobs have tuned or that imports are for, each once. Jobs that wait or were
-- cancelled do not count: their environment, which perhaps no node has, must not make a partial
-- environment ambiguous. The index is followed from the imports of one environment to those of the
-- next, because one environment may have a million imports.
-- name: release_environments
WITH RECURSIVE imported AS (
  (SELECT environment_digest, environment, id
   FROM imports
   WHERE tag = :tag
   ORDER BY environment_digest
   LIMIT 1)
  UNION ALL
  SELECT next.*
  FROM imported
  CROSS JOIN LATERAL (
    SELECT environment_digest, environment, id
    FROM imports
    WHERE tag = :tag AND environment_digest > imported.environment_digest
    ORDER BY environment_digest
    LIMIT 1) next
), every AS (
  SELECT digest, identity, false AS is_later, id
  FROM environments
  WHERE id IN (SELECT environment_id
               FROM jobs
               WHERE tag = :tag AND regime = :regime AND state IN ('done', 'failed'))
  UNION ALL
  SELECT environment_digest, environment, true, id
  FROM imported
), each_once AS (
  SELECT DISTINCT ON (digest) digest, identity, is_later, id
  FROM every
  ORDER BY digest, is_later, id
)
SELECT identity
FROM each_once
ORDER BY is_later, id;

-- name: release_served
SELECT c.counter, c.release, c.signings, r.bytes
FROM channels c
JOIN releases r ON r.digest = c.release
WHERE c.name = :channel AND c.tag = :tag AND c.environment_digest = :environment_digest::bytea
  AND c.regime = :regime;

-- Every job of the environment, tag and regime, with its winner if it has one. kernel_key and
-- build_key are the keys that the agents accepted, if all agents that measured the winner in the
-- final required a signature. They are looked up only if there is a signature.
-- name: release_candidates
SELECT j.id AS job, k.name, j.kernel, false AS is_external, k.language = 'c' AS is_self_timed,
       k.id AS kernel_order, k.manifest -> 'key' AS key_names, j.key, j.space_digest AS space,
       j.run, j.state, j.reason,
       COALESCE((extract(epoch FROM j.finished_at) * 1000000)::bigint, 0) AS finished_us,
       w.config IS NOT NULL AS has_winner, COALESCE(w.config, 0) AS ordinal,
       COALESCE(j.baseline, 0) AS baseline, w.config_values AS config, w.verdict,
       k.manifest ->> 'reference' IS NOT NULL AS has_reference, w.agreement, w.interpreted,
       w.others, j.disagreeing,
       COALESCE((w.flagged ->> 'job')::bigint, 0) AS flagged_by,
       (w.flagged ->> 'ratio')::double precision AS flagged_ratio, w.quarantined,
       (SELECT removed_by FROM removed_builds b WHERE b.digest = j.build) AS build_removed_by,
       json_strip_nulls(json_build_object(
         'origin', 'tuned',
         'build', digest_text(j.build),
         'kernel_key',
         CASE WHEN EXISTS (SELECT FROM code_signatures c WHERE c.digest = j.kernel)
              THEN (SELECT CASE WHEN bool_and(m.conditions ->> 'kernel_key' IS NOT NULL)
                                THEN string_agg(DISTINCT m.conditions ->> 'kernel_key', ' ') END
                    FROM measurements m
                    WHERE m.job_id = w.job_id AND m.stage = 'final' AND m.config = w.config
                      AND NOT m.late) END,
         'build_key',
         CASE WHEN EXISTS (SELECT FROM code_signatures c WHERE c.digest = j.build)
              THEN (SELECT CASE WHEN bool_and(m.conditions ->> 'build_key' IS NOT NULL)
                                THEN string_agg(DISTINCT m.conditions ->> 'build_key', ' ') END
                    FROM measurements m
                    WHERE m.job_id = w.job_id AND m.stage = 'final' AND m.config = w.config
                      AND NOT m.late) END
       )) AS provenance,
       (SELECT sum(device_us + opening_us) FROM leases WHERE job_id = w.job_id)::bigint AS device_us
FROM jobs j
JOIN kernels k ON k.hash = j.kernel
LEFT JOIN winners w ON w.job_id = j.id
WHERE j.environment_id = (SELECT id FROM environments WHERE digest = :environment_digest::bytea)
  AND j.tag = :tag AND j.regime = :regime
  AND (:kernels::bytea[] IS NULL OR j.kernel = ANY (:kernels));

-- The same columns for imports, which have no job, regime or space.
-- name: release_imports
SELECT 0 AS job, k.name, i.kernel, k.language = 'external' AS is_external, false AS is_self_timed,
       k.id AS kernel_order, k.manifest -> 'key' AS key_names, i.key, NULL AS space,
       NULL AS run, 'done' AS state, NULL AS reason,
       (extract(epoch FROM i.imported_at) * 1000000)::bigint AS finished_us,
       true AS has_winner, 0 AS ordinal, 0 AS baseline, i.config, NULL AS verdict,
       false AS has_reference, NULL AS agreement, false AS interpreted, NULL AS others,
       NULL AS disagreeing, 0 AS flagged_by,
       NULL AS flagged_ratio, NULL AS quarantined, NULL AS build_removed_by, i.provenance,
       i.format, to_json(i.ms) AS ms
FROM imports i
JOIN kernels k ON k.hash = i.kernel
WHERE i.environment_digest = :environment_digest::bytea AND i.tag = :tag
  AND (:kernels::bytea[] IS NULL OR i.kernel = ANY (:kernels));

-- name: release_spaces
SELECT digest, space
FROM spaces
WHERE digest = ANY (:digests::bytea[]);

-- name: release_store
INSERT INTO releases (digest, environment_digest, environment, tag, winners, bytes, regime,
                      made_by, made_by_id)
VALUES (:digest::bytea, :environment_digest::bytea, :environment::json, :tag, :winners::integer,
        :bytes::bytea, :regime, :author, :author_id::bigint)
ON CONFLICT (digest) DO NOTHING;

-- Of captured kernels only (capture_states).
-- name: release_captures_store
INSERT INTO release_captures (release, kernel, key_digest)
SELECT DISTINCT :release::bytea, r.kernel, r.key_digest
FROM unnest(:kernel::bytea[], :key_digest::bytea[]) AS r(kernel, key_digest)
JOIN kernels k ON k.hash = r.kernel AND k.manifest ->> 'cases' = 'build';

-- name: release_load
SELECT bytes
FROM releases
WHERE digest = :digest::bytea;

-- Reads one row more than a page has, to see whether there is another page.
-- name: releases_list
SELECT id, digest, environment, tag, regime, winners, rfc3339(created_at) AS created_at,
       made_by, made_by_id
FROM releases
WHERE id < :before::bigint
ORDER BY id DESC
LIMIT :limit::bigint + 1;
