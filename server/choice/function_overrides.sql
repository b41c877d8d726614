-- The functions that overrides concern (function_overrides.c).

-- The kernels with these hashes or names, each with every function that its builds were packed
-- from: of several builds of one function the newest.
-- name: function_kernels
SELECT DISTINCT ON (k.hash, closure) k.hash, k.name, k.manifest, r.record
FROM kernels k
JOIN builds b ON b.kernel = k.hash
CROSS JOIN LATERAL (SELECT b.build -> 'record') AS r(record)
CROSS JOIN LATERAL (SELECT r.record #>> '{function,closure}') AS c(closure)
WHERE (k.hash = ANY (:hashes::bytea[]) OR k.name = ANY (:names::text[]))
  AND closure IS NOT NULL
ORDER BY k.hash, closure, b.id DESC;
