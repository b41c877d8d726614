-- Which choices are rendered before they are requested (prepare.c).

-- At most :most releases: those that channels point at, then others that were made in the last hour
-- or read in the last day, for programs that state one. The latest first.
-- name: prepare_releases
SELECT release
FROM (SELECT release, true AS is_served, updated_at AS used_at
      FROM channels
      UNION ALL
      SELECT digest, false, created_at
      FROM releases
      WHERE created_at > now() - interval '1 hour'
      UNION ALL
      SELECT release, false, fetched_at
      FROM release_fetches
      WHERE fetched_at > now() - interval '1 day') r
GROUP BY release
ORDER BY bool_or(is_served) DESC, max(used_at) DESC
LIMIT :most::bigint;

-- Numbers that change when releases, kernels or builds are added, and when a build is removed.
-- name: prepare_state
SELECT hashtextextended(concat_ws(' ', k.n, k.last, b.n, b.last), 0) AS pushed,
       (SELECT COALESCE(max(id), 0) FROM releases) AS releases,
       (SELECT COALESCE(max(id), 0) FROM removed_builds) AS removed
FROM (SELECT count(*) AS n, max(id) AS last FROM kernels) k,
     (SELECT count(*) AS n, max(id) AS last FROM builds) b;
