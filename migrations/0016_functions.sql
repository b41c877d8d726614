-- What several statements say, said once. Functions of one expression without a sub-select are
-- put into the statement by the planner; the others are called.

-- As the API writes times: RFC 3339 in UTC, to the millisecond.
CREATE FUNCTION rfc3339(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- As the API writes digests: of the 32 bytes of a SHA-256.
CREATE FUNCTION digest_text(digest bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'sha256:' || encode(digest, 'hex');

-- Whether a lease of a known job is open, so that the index leases_job serves it. With state = 'open' the planner may
-- choose leases_open, which it believes to be empty when the tables were analysed while no lease was open, and read
-- every open lease there is, once for each job.
CREATE FUNCTION is_open(state lease_state) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN state IN ('open', 'held') AND state <> 'held';

-- Whether one of the keys signed a kernel or a build, and still stands for it.
CREATE FUNCTION is_signed(signed bytea, keys bytea[]) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN EXISTS (SELECT FROM code_signatures c WHERE c.digest = signed AND c.key = ANY (keys)
        AND (c.expires_at IS NULL OR c.expires_at > now()));

-- The signatures of a kernel or build, as the API has them.
CREATE FUNCTION signatures_of(signed bytea) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(json_agg(json_strip_nulls(json_build_object(
            'key', 'sha256:' || encode(c.key, 'hex'), 'signature', c.signature,
            'expires', to_char(c.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
            ORDER BY c.signed_at, c.key), '[]')
        FROM code_signatures c WHERE c.digest = signed);

-- What the leases of a job took of its budget. For a job without one pass NULL, and nothing is read:
-- a condition of the join would be looked at too late.
CREATE FUNCTION job_spending(job bigint)
    RETURNS TABLE (spent_us bigint, opening_us bigint, openings bigint, measured bigint, final_us bigint,
                   final_processes bigint)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT sum(l.device_us + l.opening_us)::bigint, sum(l.opening_us)::bigint, count(*) FILTER (WHERE l.opening_us > 0),
           sum((SELECT sum(o) FROM unnest(l.outcomes) o))::bigint,
           (sum(l.device_us + l.opening_us) FILTER (WHERE l.stage = 'final'))::bigint,
           count(DISTINCT l.process) FILTER (WHERE l.stage = 'final' AND l.state = 'done')
    FROM leases l WHERE l.job_id = job;
END;
