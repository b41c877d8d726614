-- Counters of programs (counters.c).

-- A channel that has the tag.
-- name: counters_tag
SELECT id
FROM channels
WHERE tag = :tag
LIMIT 1;
