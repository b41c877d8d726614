-- The functions that overrides concern (function_overrides.c).

-- The kernels with these hashes or names, each with every function that its builds were packed
-- from: of several builds of one function the newest. The functions are read from the index
-- builds_closure, because a kernel may have thousands of builds.
-- name: function_kernels
SELECT k.hash, k.name, k.manifest, b.build -> 'record' AS record
FROM kernels k
CROSS JOIN LATERAL (
    SELECT max(id) AS id
    FROM builds
    WHERE kernel = k.hash AND closure IS NOT NULL
    GROUP BY closure) newest
JOIN builds b ON b.id = newest.id
WHERE k.hash = ANY (:hashes::bytea[]) OR k.name = ANY (:names::text[]);
