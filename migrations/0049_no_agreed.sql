-- What containers found themselves is no longer served to others, nor stored (serve --agreed).
DROP TABLE evidence;
DROP TRIGGER builds_closure ON builds;
DROP FUNCTION builds_set_closure();
ALTER TABLE builds DROP COLUMN closure; -- and its index: only what containers agreed on was looked up by it

-- Part of it was how long tuning a missed key took; programs state that with the miss.
ALTER TABLE program_misses ADD COLUMN tuning_ms double precision; -- as it was reported last; null: not known

-- Policies replace serve --demand automatic, so they have what it had: any token ('*' in tokens), a number of jobs an hour, a
-- budget of each job, and jobs of any run. Jobs of a policy are those that its token submitted with that run.
DROP FUNCTION policy_of_captures(tokens);
DROP VIEW policy_states;
ALTER TABLE policies
    ADD COLUMN jobs_per_hour bigint CHECK (jobs_per_hour > 0), -- null: no limit
    -- Null: for demand the budget of the kernel's newest job; for captures none.
    ADD COLUMN device_seconds_per_job double precision CHECK (device_seconds_per_job > 0),
    ADD COLUMN run text NOT NULL DEFAULT 'policy';
DROP INDEX jobs_of_policy;
CREATE INDEX jobs_of_owner_finished ON jobs (submitted_by, finished_at);

CREATE VIEW policy_states AS
SELECT p.*, t.id AS token, array_to_string(array_prepend(t.role, t.also), ',') AS roles,
       p.mode <> 'off' AND (p.set_by_id IS NULL AND t.id IS NULL
                            OR array_prepend(t.role, t.also) && '{submitter,operator,admin}') AS acts
FROM policies p
LEFT JOIN LATERAL (SELECT o.*
                   FROM tokens o
                   WHERE o.name = p.set_by AND token_is_live(o)
                   ORDER BY (o.id = p.set_by_id) IS TRUE DESC, o.id DESC
                   LIMIT 1) t ON true;

-- Of the policies that name a token, the one that does most.
CREATE FUNCTION policy_of_captures(reporter tokens) RETURNS SETOF policy_states LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT p.*
    FROM policy_states p
    WHERE p.acts AND p.tokens && ARRAY[(reporter).name, '*'] AND (reporter).revoked_at IS NULL
    ORDER BY p.mode <> 'automatic', p.channel IS NULL, p.id
    LIMIT 1;
END;
