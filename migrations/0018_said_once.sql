-- What several statements say, said once, as in 0016. The planner puts each of these functions into
-- the statement that names it.

-- Whether a token is accepted.
CREATE FUNCTION token_is_live(token tokens) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN token.revoked_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > now());

-- An expiry as it was signed: to the second.
CREATE FUNCTION signed_expiry(at timestamptz) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_json(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));

-- The expiry and the signatures of one entry of a channel: one row, also where there is no such
-- entry.
CREATE FUNCTION entry_signed(of_name text, of_tag text, of_regime text, of_environment bytea,
                             of_counter bigint)
    RETURNS TABLE (expires json, signatures json) LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT (SELECT signed_expiry(e.expires_at)
            FROM channel_entries e
            WHERE e.name = of_name AND e.tag = of_tag AND e.regime = of_regime
              AND e.environment_digest = of_environment AND e.counter = of_counter),
           (SELECT COALESCE(json_agg(json_build_object('key', digest_text(s.key),
                                                       'signature', s.signature) ORDER BY s.key), '[]')
            FROM channel_signatures s
            WHERE s.name = of_name AND s.tag = of_tag AND s.regime = of_regime
              AND s.environment_digest = of_environment AND s.counter = of_counter);
END;

-- What of a job was measured, and what that took.
CREATE FUNCTION job_progress(job bigint)
    RETURNS TABLE (spent_device_seconds float8, opening_device_seconds float8, measured bigint,
                   outcomes json)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT COALESCE(sum(l.device_us + l.opening_us), 0)::bigint / 1e6::float8,
           COALESCE(sum(l.opening_us), 0)::bigint / 1e6::float8,
           COALESCE(sum(l.outcomes[1] + l.outcomes[2] + l.outcomes[3] + l.outcomes[4] + l.outcomes[5]
                        + l.outcomes[6]) FILTER (WHERE l.stage = 'screen'), 0),
           json_strip_nulls(json_build_object(
               'correct', nullif(sum(l.outcomes[1]) FILTER (WHERE l.stage = 'screen'), 0),
               'compile', nullif(sum(l.outcomes[2]) FILTER (WHERE l.stage = 'screen'), 0),
               'runtime', nullif(sum(l.outcomes[3]) FILTER (WHERE l.stage = 'screen'), 0),
               'correctness', nullif(sum(l.outcomes[4]) FILTER (WHERE l.stage = 'screen'), 0),
               'timeout', nullif(sum(l.outcomes[5]) FILTER (WHERE l.stage = 'screen'), 0),
               'constraints', nullif(sum(l.outcomes[6]) FILTER (WHERE l.stage = 'screen'), 0)))
    FROM leases l
    WHERE l.job_id = job;
END;
