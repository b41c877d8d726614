-- Statements of tests/records.c, which hold what statements.cmake and named parameters must leave alone.

-- What stands above a statement belongs to it: a semicolon; in a comment, and a :name.
-- name: records_one
SELECT :flag::boolean AS flag, :count::integer AS count, :its_id::bigint AS its_id,
    :number::float8 AS number,
    :text::text AS text,
    -- a comment within
    rfc3339(:at::timestamptz) AS at, :color::text AS color, :digest::bytea AS digest, :json::json AS json,
    :numbers::real[] AS numbers, :texts::text[] AS texts, :ranges::int8multirange AS ranges;

-- name: records_many
SELECT flag, count, its_id, number, text, rfc3339(at::timestamptz) AS at, color, digest, json::json AS json,
    numbers::real[] AS numbers, texts::text[] AS texts, ranges::int8multirange AS ranges
FROM unnest(:flag::boolean[], :count::bigint[], :its_id::bigint[], :number::float8[], :text::text[], :at::text[],
            :color::text[], :digest::bytea[], :json::text[], :numbers::text[], :texts::text[], :ranges::text[])
     WITH ORDINALITY AS r(flag, count, its_id, number, text, at, color, digest, json, numbers, texts, ranges, n)
ORDER BY n;

-- The record's columns are not written here. Of the two columns "at" the first is read.
-- name: records_expanded
SELECT rfc3339(at) AS at, *
FROM (SELECT {values} FROM unnest({arrays}) WITH ORDINALITY AS r({columns}, n) ORDER BY n) AS given;

-- name: records_quoted
SELECT 'a;b :no ''c'' \d' AS text, "q:no", :x::text || :x AS twice, '[1]'::json -> 0 AS one
FROM (SELECT 7 AS "q:no") AS q;

-- name: pipeline_insert
INSERT INTO pipeline (x)
VALUES (:x::bigint);

-- name: pipeline_sum
SELECT count(*) AS n, sum(x) AS sum
FROM pipeline;

-- name: pipeline_moment
SELECT clock_timestamp() AS moment;

-- name: pipeline_is_before
SELECT now() < :moment::timestamptz AS is_before;

-- Its columns change with the table's, so that it must be prepared again.
-- name: pipeline_first
SELECT *
FROM pipeline
ORDER BY x
LIMIT 1;
