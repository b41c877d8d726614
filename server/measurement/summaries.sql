-- Measurements that decisions are made from (server/measurement/summaries.c).

-- The ratio of a config that left its race early is of few rounds and so uncertain: such a config
-- must not displace one that stayed.
-- name: measurements_screen_ranked
WITH correct AS (
    SELECT config, ratio, lease_id, COALESCE("end" IN ('far', 'behind'), false) AS left_early
    FROM measurements
    WHERE job_id = :job::bigint AND stage = :stage::stage AND NOT late AND outcome = 'correct'
)
(SELECT * FROM correct WHERE NOT left_early ORDER BY ratio, config LIMIT :most::bigint)
UNION
(SELECT * FROM correct WHERE left_early ORDER BY ratio, config LIMIT :most::bigint)
UNION
(SELECT * FROM correct WHERE config IN (:always_0::bigint, :always_1::bigint))
ORDER BY ratio, config;

-- Configs that were given up and not run have an example, and do not count.
-- name: measurements_screen_outcomes
SELECT outcome, count(agent) AS n, min(left(detail, 300)) FILTER (WHERE outcome <> 'correct') AS example
FROM measurements
WHERE job_id = :job::bigint AND stage = :stage::stage AND NOT late
GROUP BY outcome
ORDER BY n DESC;

-- name: measurements_search
SELECT config, COALESCE(CASE WHEN outcome = 'correct' THEN ratio END, 'infinity') AS ratio
FROM measurements
WHERE job_id = :job::bigint AND stage = 'screen' AND NOT late
ORDER BY config;

-- name: measurements_final
SELECT config, process, outcome, samples_us, baseline_us, COALESCE(vgprs, 0) AS vgprs,
    COALESCE(spills, 0) AS spills, COALESCE(lds_bytes, 0) AS lds_bytes,
    dense_rank() OVER (ORDER BY agent, device) AS device
FROM measurements
WHERE job_id = :job::bigint AND stage = 'final' AND NOT late
ORDER BY process, config;

-- How the configs that were measured so far agree with the baseline.
-- name: measurements_agreement
SELECT count(*) FILTER (WHERE agreement IN ('bitwise', 'agrees')) AS agree,
    count(*) FILTER (WHERE agreement = 'disagrees') AS disagree,
    max(agreement) FILTER (WHERE config = :baseline::bigint) AS baseline_agreement,
    max(interpreted) FILTER (WHERE config = :baseline::bigint) AS baseline_interpreted,
    max(agreement) FILTER (WHERE config = :default_config::bigint) AS default_agreement,
    max(interpreted) FILTER (WHERE config = :default_config::bigint) AS default_interpreted,
    min(example) AS example
FROM job_agreement(:job::bigint);

-- name: measurements_agreement_of
SELECT config, agreement, interpreted
FROM job_agreement(:job::bigint)
WHERE config = ANY (:configs::bigint[])
ORDER BY config;
